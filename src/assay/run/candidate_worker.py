"""The only place where candidate source is imported.

Holds no reference, no expected value, no tolerance and no plan: each request brings the inputs, and what goes
back is a description and raw bytes. Whatever this process says about itself is marked as attested by it.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import linecache
import mmap
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from assay.probe.backward import parsed
from assay.run import backward, bait, builds, codec, integrity, mixed, tiled, timed, traces, ways, weights, wire
from assay.run.instruments import Instruments
from assay.run.on_device import DeviceHung, settle

ERROR_TEXT = 2000
RED_ZONE = 512
ALLOCATION = 512
"""Bytes that sizes of GPU memory are rounded up to by torch's allocator."""


class _State:
    """What one worker process keeps between requests."""

    def __init__(self, options: dict[str, Any], arena_fd: int) -> None:
        self.options = options
        self.arena_fd = arena_fd
        self.device, self.entered = "cpu", False
        self.emulation: Any = None
        self.compiler: Any = None
        self.on_device: Any = None
        self.module: Any = None
        self.entry: Callable[..., Any] | None = None
        self.instances: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, torch.Tensor], dict[str, Any]]] = {}
        self.watched: dict[str, dict[str, Any]] = {}
        self.changed = integrity.changed
        self.threads: frozenset[str] = frozenset()
        self.environment: dict[str, str] = {}
        self.modes: list[str] = []
        self.bait, self.expected = bait.plant(), torch.zeros(1)
        self.builds = builds.Builds(os.path.join(os.getcwd(), "builds"))
        self.benches: dict[str, timed.Bench] = {}


def main(sock: socket.socket, arena_fd: int, spec: dict[str, Any]) -> None:
    """Answer requests until the judge closes the channel."""
    state = _State(spec["options"], arena_fd)
    torch.set_num_threads(1)
    while True:
        try:
            frame = wire.receive(sock)
        except wire.WireFault:
            return
        operation = frame.header.get("op")
        handler = {"warm": _warm, "load": _load, "instance": _instance, "run": _run, "time": _time}[str(operation)]
        try:
            header, chunks = handler(state, frame)
        except SystemExit as stop:
            # an exit asked for by the candidate is an exit: nothing is reported over the channel
            os._exit(stop.code if isinstance(stop.code, int) else 1)
        except BaseException as error:
            header, chunks = {"error": describe(error, "worker")}, []
            if state.device != "cpu" and _device_lost():
                # the device's doing, and no answer that makes no sense
                header = {"error": {**header["error"], "sticky": True}, "calls": []}
        offered = state.builds.offered()
        if offered:
            header["built"] = [[key, name, len(data)] for key, name, data in offered]
            chunks = [*chunks, *[memoryview(data) for _, _, data in offered]]
        header["token"] = frame.header.get("token")
        wire.send(sock, header, chunks)


def describe(error: BaseException, phase: str) -> dict[str, Any]:
    """An exception as bounded text: type, message, phase, and where it was raised in the candidate."""
    kind = type(error)
    try:
        message = str(error)[:ERROR_TEXT]
    except BaseException:
        message = "<the exception has no text>"
    place = ""
    try:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.endswith("candidate.py"):
                place = f"candidate.py:{frame.lineno}"
    except BaseException:
        place = ""
    return {"type": str(kind.__name__)[:200], "message": message, "phase": phase, "place": place,
            "needs_gpu": str(getattr(error, "call", ""))[:200] if kind.__name__ == "NeedsGpu" else None,
            "memory": isinstance(error, MemoryError) or kind.__name__ == "OutOfMemoryError"
            or "can't allocate memory" in message[:400] or "not enough memory" in message[:400]}


def _enter_device(state: _State) -> None:
    """Make the process one of the device, or of its emulation; nothing where it is one already."""
    if state.entered:
        return
    state.entered = True
    if state.options.get("mode") == "compile":
        from assay.run import compile_only

        state.compiler = compile_only.install(str(state.options["target"]))
    elif state.options.get("device", "cpu") == "cpu":
        from assay.run import emulation

        state.emulation = emulation.install(str(state.options.get("target", "sm_90")))
    else:
        state.device = "cuda"
        began = time.perf_counter()
        torch.zeros(1, device="cuda")
        if state.options.get("mode") != "time":
            # writing launches down takes time itself
            from assay.run import on_device

            state.on_device = on_device.install()
            state.on_device.spent["context"] = round(1e6 * (time.perf_counter() - began))
    state.builds.install()


def _warm(state: _State, frame: wire.Frame) -> tuple[dict[str, Any], list[memoryview]]:
    """Do what a candidate's first launch would have to wait for. No candidate has been here."""
    _enter_device(state)
    if state.on_device is not None:
        from assay.run import warm_kernel

        warm_kernel.launch()
        state.on_device.reset()
        state.on_device.took()
    return {"ok": True}, []


def _load(state: _State, frame: wire.Frame) -> tuple[dict[str, Any], list[memoryview]]:
    """Import the candidate's source from a file of its own."""
    header = frame.header
    _enter_device(state)
    view, kept = memoryview(frame.payload), []
    for key, name, size in header.get("builds", []):
        kept.append((key, name, bytes(view[:size])))
        view = view[size:]
    state.builds.restore(kept)
    state.watched = integrity.snapshot()
    state.threads, state.environment = frozenset(traces.native_threads()), dict(os.environ)
    path = os.path.join(os.getcwd(), "candidate.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(header["source"])
    linecache.checkcache(path)
    began = time.perf_counter()
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        raise
    except BaseException as error:
        return {"error": describe(error, "import")}, []
    state.module = module
    for name in header["entries"]:
        found = getattr(module, name, None)
        if callable(found):
            state.entry = found
            return {"ok": True, "entry": name, "seconds": time.perf_counter() - began,
                    "facts": _facts(state)}, []
    return {"error": {"type": "NoEntry", "message": f"the candidate defines none of {header['entries']}",
                      "phase": "import", "place": "", "needs_gpu": None, "memory": False}}, []


def _instance(state: _State, frame: wire.Frame) -> tuple[dict[str, Any], list[memoryview]]:
    """Remember constructor arguments and the reference's weights under a key."""
    header, view = frame.header, memoryview(frame.payload)
    (args, kwargs), used = codec.unpack(header["init"], view)
    tensors, _ = codec.unpack_tensors(header["state"], view[used:])
    weights_by_name = dict(zip(header["names"], tensors, strict=True))
    state.instances[header["key"]] = (tuple(args), dict(kwargs), weights_by_name, header)
    return {"ok": True}, []


def _time(state: _State, frame: wire.Frame) -> tuple[dict[str, Any], list[memoryview]]:
    """One step of a benchmark."""
    header = frame.header

    def build() -> Any:
        if header.get("tf32") is not None:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = bool(header["tf32"])
        model, found = _build(state, header["key"], None)
        if found.how == "unmatched":
            raise RuntimeError(f"its weights do not match: {found.text}")
        return model

    try:
        return timed.answer(state.benches, frame, state.device, build, lambda: _facts(state))
    except SystemExit:
        raise
    except BaseException as error:
        return {"error": describe(error, str(header.get("step")))}, []


def _build(state: _State, key: str, dtype: str | None) -> tuple[Any, weights.WeightMatch]:
    """A fresh candidate for one probe, with the reference's weights."""
    args, kwargs, reference, header = state.instances[key]
    entry = state.entry
    assert entry is not None
    torch.manual_seed(header["seed"])
    if not isinstance(entry, type):
        return entry, weights.WeightMatch("none", {})
    model = entry(*_own(args), **_own(kwargs))
    if isinstance(model, torch.nn.Module) and getattr(model, "adopts_weights", False) is True:
        weights.adopt(model, reference, frozenset(header["buffers"]))
    if isinstance(model, torch.nn.Module) and state.device != "cpu":
        model = model.to(state.device)
    # paired by the values as constructed: varied ones would hide which tensor is which
    constructed = state.instances[header["base"]][2]
    found = weights.match(constructed, weights.named_state(model), frozenset(header["buffers"]))
    if found.how != "unmatched":
        weights.replace(model, reference, found)
    if dtype is not None and isinstance(model, torch.nn.Module):
        model = model.to(codec.DTYPES[dtype])
    if isinstance(model, torch.nn.Module) and header.get("training") is not None and header["force_mode"]:
        model.train(header["training"])
    return model, found


def _own(value: Any) -> Any:
    """Constructor arguments as private copies."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {k: _own(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_own(v) for v in value)
    return value


class _Arena:
    """The probe's region of shared memory, as tensors.

    On a GPU each storage is copied to the device with its red zones round it, and copied back after the calls,
    so that the judge reads the same bytes whatever the device.
    """

    def __init__(self, state: _State, region: dict[str, int]) -> None:
        self._device = state.device
        self._map = mmap.mmap(state.arena_fd, region["size"], offset=region["offset"]) if region["size"] else None
        self._mirrors: list[tuple[int, torch.Tensor]] = []

    def tensor(self, place: dict[str, Any]) -> torch.Tensor:
        """The tensor at one placement: dtype, shape, stride, offset (elements), start (bytes), length (elements)."""
        dtype = codec.DTYPES[place["dtype"]]
        if self._map is None or place["length"] == 0:
            return torch.empty(place["shape"], dtype=dtype, device=self._device)
        if self._device == "cpu":
            flat = torch.frombuffer(self._map, dtype=dtype, count=place["length"], offset=place["start"])
            return flat.as_strided(place["shape"], place["stride"], place["offset"])
        begin, size = place["start"] - RED_ZONE, place["length"] * dtype.itemsize
        raw = torch.frombuffer(self._map, dtype=torch.uint8, count=size + 2 * RED_ZONE, offset=begin)
        mirror = raw.to(self._device)
        self._mirrors.append((begin, mirror))
        flat = mirror[RED_ZONE:RED_ZONE + size].view(dtype)
        return flat.as_strided(place["shape"], place["stride"], flat.storage_offset() + place["offset"])

    def again(self, tensor: torch.Tensor, place: dict[str, Any]) -> torch.Tensor:
        """Another tensor object over the memory of one that `tensor` made at `place`."""
        if self._device == "cpu":
            return self.tensor(place)
        return torch.utils.dlpack.from_dlpack(tensor.detach())

    def held(self) -> int:
        """Bytes of the device that the copies take."""
        return sum(_allocated(mirror.numel()) for _, mirror in self._mirrors)

    def write_back(self) -> None:
        """Copy what the device holds now into the shared memory."""
        for begin, mirror in self._mirrors:
            assert self._map is not None
            self._map[begin:begin + mirror.numel()] = bytes(codec.tensor_bytes(mirror))


def _run(state: _State, frame: wire.Frame) -> tuple[dict[str, Any], list[memoryview]]:
    """Run one probe: build the candidate, make its calls, copy what it returned."""
    header = frame.header
    began = time.perf_counter()
    if state.emulation is not None:
        state.emulation.reset()
        state.emulation.force_config(header.get("config"))
        state.emulation.memory.poison = 0x00 if header.get("poison") == "zero" else 0xFF
    if state.compiler is not None:
        state.compiler.reset()
    if state.on_device is not None:
        state.on_device.reset()
        state.on_device.forced = header.get("config")
    phase = "construct"
    calls: list[dict[str, Any]] = []
    chunks: list[memoryview] = []
    reply: dict[str, Any] = {"calls": calls}
    ranges: dict[str, list[list[int]]] = {}
    shared: list[list[int]] = []
    stage: list[str] = []
    state.modes = []
    is_module = True
    tools = Instruments(header.get("conditions") or {}, state.emulation, state.on_device)
    try:
        with tools:
            model, found = _build(state, header["key"], header.get("dtype"))
        is_module = isinstance(model, torch.nn.Module)
        reply["weights"] = found.how
        reply["weights_text"] = found.text
        if found.how == "unmatched":
            reply["facts"] = _facts(state)
            return reply, []
        before = {n: t.detach().clone() for n, t in weights.named_state(model).items()}
        phase = "inputs"
        arena = _Arena(state, header["region"])
        kept: list[list[torch.Tensor]] = []
        previous: list[torch.Tensor] = []
        places: list[dict[str, Any]] = []
        models = {0: (model, header["key"])}
        staged: list[torch.Tensor] = []
        conditions = header.get("conditions") or {}
        busy = state.device != "cpu" and "stream" in conditions
        # an interpreted kernel costs what it computes, whatever else the machine is doing
        clock = time.process_time if state.device == "cpu" else time.perf_counter
        tile = tiled.parse(conditions["tile"]) if "tile" in conditions else None
        cotangents: list[torch.Tensor] = []
        if header.get("cotangents"):
            cotangents, _ = codec.unpack_tensors(header["cotangents"], memoryview(frame.payload))
        for call in header["calls"]:
            phase = "inputs"
            if call["storage"] == "fresh":
                places = call["places"]
                previous = [arena.tensor(place) for place in places]
            elif call["storage"] == "overwrite":
                staged = [arena.tensor(place) for place in call["places"]]
                if not busy:
                    _overwrite(previous, staged)
            elif call["storage"] == "reused":
                _overwrite(previous, [arena.tensor(place) for place in call["places"]])
                # other objects, as when an allocator hands the same memory out again
                previous = [arena.again(t, place) for t, place in zip(previous, places, strict=True)]
            ranges[str(len(calls))] = [[s.data_ptr(), s.data_ptr() + s.nbytes()]
                                       for s in (t.untyped_storage() for t in previous)]
            if tile is not None:
                previous = tiled.repeat(previous, tile[0], tile[2])
            model = _instance_for(state, models, call, header, found, tools)
            args, kwargs = codec.unflatten(call["tree"], previous)
            torch.manual_seed(call["seed"])
            phase = "call"
            tools.before_call()
            started = clock()
            with tools:
                if busy and call["storage"] == "overwrite":
                    outputs, gradients = _behind_busy_stream(model, args, kwargs, previous, staged), None
                else:
                    outputs, gradients = _call(state, model, args, kwargs, previous, header, cotangents, found, stage,
                                               len(calls))
            if state.device != "cpu":
                settle(float(header.get("settle") or 10.0))
            seconds = clock() - started
            phase = "collect"
            if "state" in conditions:
                outputs = [outputs, _buffers(model, conditions["state"].split(","), found)]
            with torch._C.DisableTorchFunctionSubclass():
                for each in _blocks(outputs, tile, len(header["calls"])):
                    live = _collect(state, each, gradients, seconds, calls, chunks)
                    tools.after_call(live)
                    kept.append([t.detach() for t in live])
            if "hold" in conditions:
                tools.hold(traces.held(state.device) - _kept_bytes(kept, chunks, state.device)
                           - arena.held(), traces.descriptors())
            if tile is not None:
                break
        if header.get("late"):
            phase = "collect"
            late, pieces = codec.pack(kept[:-1])
            reply["late"] = late
            chunks += pieces
        arena.write_back()
        after = weights.named_state(models[0][0])
        shared = [[s.data_ptr(), s.data_ptr() + s.nbytes()] for s in (t.untyped_storage() for t in after.values())]
        reply["parameters_changed"] = [
            n for n, t in before.items()
            if n not in after or not _same_bits(t, after[n].detach())
        ] if models[0][1] == header["key"] else []
    except SystemExit:
        raise
    except BaseException as error:
        reply["error"] = describe(error, "/".join([phase, *stage[-1:]]))
        if state.device != "cpu":
            # nothing more can be asked of a device that does not come back
            reply["error"]["sticky"] = isinstance(error, DeviceHung) or _device_lost()
    lost = bool(reply.get("error", {}).get("sticky"))
    reply["facts"] = {**_facts(state), **tools.facts(lost), "modes": state.modes[:20], "module": is_module,
                      "inputs": ranges, "parameters": shared}
    if state.on_device is not None:
        reply["facts"]["spent"] = state.on_device.took()
    reply["seconds"] = time.perf_counter() - began
    gc.collect(0)
    return reply, chunks


def _blocks(outputs: Any, tile: tuple[int, int, tuple[int, ...]] | None, count: int) -> list[Any]:
    """What is recorded of one call: its outputs, or blocks of those of a repeated batch."""
    if tile is None:
        return [outputs]

    def change(tree: Any, cut: Any) -> Any:
        description, tensors = codec.flatten(tree)
        return codec.unflatten(description, [cut(t) for t in tensors])

    return tiled.blocks(outputs, tile[0], tile[1], count, change)


def _collect(state: _State, outputs: Any, gradients: Any, seconds: float, calls: list[dict[str, Any]],
             chunks: list[memoryview]) -> list[torch.Tensor]:
    """Describe and copy what a call returned; its tensors."""
    part, pieces = codec.pack(outputs)
    if state.emulation is not None:
        _name_devices(state, part, outputs)
    _, live = codec.flatten(outputs)
    record = {"outputs": part, "seconds": seconds}
    # copied now: a later call may write into the same buffer
    chunks += [memoryview(bytes(piece)) for piece in pieces]
    if gradients is not None:
        grad_part, grad_pieces = codec.pack(gradients)
        record["gradients"] = grad_part
        chunks += [memoryview(bytes(piece)) for piece in grad_pieces]
    calls.append(record)
    return live


def _kept_bytes(kept: list[list[torch.Tensor]], chunks: list[memoryview], device: str) -> int:
    """Bytes on a device that this process itself keeps of earlier calls."""
    storages = {s.data_ptr(): s.nbytes() for outputs in kept for s in (t.untyped_storage() for t in outputs)}
    if device == "cpu":
        return sum(storages.values()) + sum(map(len, chunks))
    return sum(_allocated(size) for size in storages.values())


def _allocated(size: int) -> int:
    """Bytes that the allocator of a GPU hands out for a request."""
    return size + -size % ALLOCATION


def _overwrite(targets: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    for target, value in zip(targets, values, strict=True):
        target.copy_(value)


def _behind_busy_stream(model: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor],
                        staged: list[torch.Tensor]) -> Any:
    """One call behind a busy stream; the outputs as they were on that stream."""
    from assay.run.on_device import behind_busy_stream

    def call() -> Any:
        with torch.no_grad():
            return model(*args, **kwargs)

    outputs, copies = behind_busy_stream(lambda: _overwrite(inputs, staged), call, lambda o: codec.flatten(o)[1])
    return codec.unflatten(codec.flatten(outputs)[0], copies)


def _instance_for(state: _State, models: dict[int, tuple[Any, str]], call: dict[str, Any], header: dict[str, Any],
                  found: weights.WeightMatch, tools: Instruments) -> Any:
    """The instance that a call is for, built when first asked for, with the weights that the call wants."""
    number, key = int(call.get("instance", 0)), str(call.get("key") or header["key"])
    if number not in models:
        with tools:
            models[number] = (_build(state, header["key"], header.get("dtype"))[0], header["key"])
    model, loaded = models[number]
    if key != loaded:
        weights.replace(model, state.instances[key][2], found)
        models[number] = (model, key)
    return model


def _name_devices(state: _State, part: dict[str, Any], outputs: Any) -> None:
    """Replace the host's device names by those that the emulated machine would give."""
    _, live = codec.flatten(outputs)
    for form, tensor in zip(part["forms"], live, strict=True):
        form[3] = str(state.emulation.device_of(tensor))


def _buffers(model: Any, names: list[str], found: weights.WeightMatch) -> dict[str, torch.Tensor]:
    """Buffers as a call left them, by the reference's names; those that the candidate has not got are left out."""
    live = weights.named_state(model)
    return {n: live[found.pairs[n]].detach().clone() for n in names if found.pairs.get(n) in live}


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bytes(codec.tensor_bytes(a)) == bytes(codec.tensor_bytes(b))


def _call(state: _State, model: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor], header: dict[str, Any],
          cotangents: list[torch.Tensor], found: weights.WeightMatch, stage: list[str],
          number: int) -> tuple[Any, Any]:
    """One forward, and its backward passes when asked; (outputs, gradients or None)."""
    # bait in this frame: a kernel never looks here
    reference, expected = state.bait, state.expected
    conditions = header.get("conditions") or {}
    if conditions.get("mode") == "eval" and isinstance(model, torch.nn.Module):
        model.eval()

    def forward(others: Any = None) -> Any:
        own = (args, kwargs) if others is None else codec.unflatten(header["calls"][number]["tree"], list(others))
        with _autocast(conditions):
            before = traces.modes()
            outputs = model(*own[0], **own[1])
            # looked at in here: contexts round the call would put back what it changed
            state.modes += [f"{name} from {before[name]} to {now}" for name, now in traces.modes().items()
                            if now != before[name]]
        return outputs

    if not header.get("grad"):
        if "ways" in conditions:
            stage.append(conditions["ways"].split(",")[number])
            outputs = ways.take(stage[-1], model, forward, inputs)
            stage.clear()
        else:
            with torch.no_grad():
                outputs = forward()
        del reference, expected
        return outputs, None
    if "tie" in conditions:
        first, second = (int(i) for i in conditions["tie"].split(","))
        inputs = [inputs[first] if i == second else t for i, t in enumerate(inputs)]
        args, kwargs = codec.unflatten(header["calls"][number]["tree"], inputs)
    steps = parsed(str(conditions.get("backward", "")))
    taken = backward.follow(conditions.get("follow", ""), steps[min(number, len(steps) - 1)],
                            forward, inputs, _answering(model, found), cotangents, stage, forward)
    del reference, expected
    return taken


def _autocast(conditions: dict[str, Any]) -> Any:
    """The autocast context that a probe asks for, which the emulated device has too."""
    return mixed.context(str(conditions["autocast"]), "cuda") if "autocast" in conditions else nullcontext()


def _answering(model: Any, found: weights.WeightMatch) -> dict[str, torch.Tensor]:
    """The candidate's parameters and buffers by the reference's names."""
    names = weights.named_state(model)
    return {theirs: names[ours] for theirs, ours in found.pairs.items() if ours in names}


def _device_lost() -> bool:
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def _facts(state: _State) -> dict[str, Any]:
    """What this process says of itself after a request."""
    facts: dict[str, Any] = {
        "patched": state.changed(state.watched)[:50],
        "bait": bait.touched(),
        "threads": traces.threads(state.threads, native=state.device == "cpu"),
        "environment": traces.environment(state.environment)[:20],
        "handlers": [s.name for s in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
                     if signal.getsignal(s) not in (signal.SIG_DFL, signal.SIG_IGN, None,
                                                    signal.default_int_handler)],
        "traced": sys.gettrace() is not None or sys.getprofile() is not None,
    }
    if state.on_device is not None:
        facts.update(state.on_device.facts())
    if state.compiler is not None:
        facts["compiled"] = state.compiler.facts()
    if state.emulation is not None:
        facts["launches"] = [_launch(launch) for launch in list(state.emulation.recorder.launches)[:100]]
        facts["launch_count"] = state.emulation.recorder.total
        facts["access"] = [dataclasses.asdict(fault) for fault in state.emulation.access_faults()[:50]]
        facts["configs"] = state.emulation.configs()
    return facts


def _launch(launch: Any) -> dict[str, Any]:
    """A launch as JSON data."""
    return {
        "kernel": launch.kernel, "line": launch.line, "grid": list(launch.grid), "completed": launch.completed,
        "programs": launch.programs, "error": (launch.error or "")[:300] or None, "signature": launch.signature,
        "constexprs": {k: repr(v)[:200] for k, v in launch.constexprs.items()},
        "options": {k: repr(v)[:80] for k, v in launch.options.items()}, "dots": [list(d) for d in launch.dots],
    }
