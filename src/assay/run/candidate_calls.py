"""One probe in a candidate's worker: build the candidate, make its calls, copy what it returned."""

from __future__ import annotations

import gc
import time
from contextlib import nullcontext
from typing import Any

import torch

from assay.probe.backward import parsed
from assay.run import backward, codec, mixed, tiled, traces, ways, weights, wire
from assay.run.attested import describe, device_lost, facts_of
from assay.run.candidate_state import State, instantiate
from assay.run.instruments import Instruments
from assay.run.on_device import DeviceHung, settle
from assay.run.placed import Arena, allocated


def run(state: State, frame: wire.Frame) -> tuple[dict[str, Any], list[memoryview]]:
    """Run one probe: build the candidate, make its calls, copy what it returned."""
    header = frame.header
    began = time.perf_counter()
    if state.emulation is not None:
        state.emulation.reset()
        state.emulation.force_config(header.get("config"))
        state.emulation.run_in_order((header.get("conditions") or {}).get("order"))
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
            model, found = instantiate(state, header["key"], header.get("dtype"))
        is_module = isinstance(model, torch.nn.Module)
        reply["weights"] = found.how
        reply["weights_text"] = found.text
        if found.how == "unmatched":
            reply["facts"] = facts_of(state)
            return reply, []
        before = {n: t.detach().clone() for n, t in weights.named_state(model).items()}
        phase = "inputs"
        arena = Arena(state, header["region"])
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
            reply["error"]["sticky"] = isinstance(error, DeviceHung) or device_lost()
    lost = bool(reply.get("error", {}).get("sticky"))
    reply["facts"] = {**facts_of(state), **tools.facts(lost), "modes": state.modes[:20], "module": is_module,
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


def _collect(state: State, outputs: Any, gradients: Any, seconds: float, calls: list[dict[str, Any]],
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
    return sum(allocated(size) for size in storages.values())


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


def _instance_for(state: State, models: dict[int, tuple[Any, str]], call: dict[str, Any], header: dict[str, Any],
                  found: weights.WeightMatch, tools: Instruments) -> Any:
    """The instance that a call is for, built when first asked for, with the weights that the call wants."""
    number, key = int(call.get("instance", 0)), str(call.get("key") or header["key"])
    if number not in models:
        with tools:
            models[number] = (instantiate(state, header["key"], header.get("dtype"))[0], header["key"])
    model, loaded = models[number]
    if key != loaded:
        weights.replace(model, state.instances[key][2], found)
        models[number] = (model, key)
    return model


def _name_devices(state: State, part: dict[str, Any], outputs: Any) -> None:
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


def _call(state: State, model: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor], header: dict[str, Any],
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
