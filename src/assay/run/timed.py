"""Batches of calls in a candidate's worker, made for a judge that holds a clock of its own.

What this process says about time is a claim. Its clocks and its copying are bound below, before any candidate is
imported, so that replacing `torch.cuda.Event`, `time.perf_counter` or `torch.cuda.synchronize` changes nothing
here; code that gets at this module all the same is contradicted by the judge's clock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.run import codec, wire
from assay.run.clocks import DeviceClock, HostClock

_now = time.perf_counter_ns
_synchronize: Any = getattr(torch._C, "_cuda_synchronize", None)
_zero, _copy, _clone, _mul = torch.Tensor.zero_, torch.Tensor.copy_, torch.Tensor.clone, torch.mul
_peak, _allocated, _forget = (torch.cuda.max_memory_allocated, torch.cuda.memory_allocated,
                              torch.cuda.reset_peak_memory_stats)
_PLAIN = (torch.Tensor, torch.nn.Parameter)
SCALED = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
"""Dtypes whose values a factor makes new."""


@dataclass
class Bench:
    """What a worker keeps of one contender.

    Attributes:
        model: what is called.
        clock: how time is told here.
        tree: nesting of the inputs.
        forms: how each tensor input lies.
        sources: by draw, its inputs as storages.
        storages: by buffer, the storages that inputs are passed in.
        arguments: by buffer, the arguments that lie there.
        flush: memory whose filling empties the caches.
        held: what the calls of the last batch returned.
        copies: by call of the last batch, what it returned as it was when it returned.
        compiled: whether torch.compile was asked for.
    """

    model: Any
    clock: Any
    tree: Any
    forms: list[codec.TensorForm]
    device: str
    sources: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    storages: list[list[torch.Tensor]] = field(default_factory=list)
    arguments: list[tuple[Any, Any]] = field(default_factory=list)
    flush: torch.Tensor | None = None
    held: list[Any] = field(default_factory=list)
    copies: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    compiled: bool = False


def answer(benches: dict[str, Bench], frame: wire.Frame, device: str, build: Callable[[], Any],
           facts: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], list[memoryview]]:
    """Answer one request about timing.

    Args:
        benches: what this worker keeps, by name.
        frame: the request: `step` and what belongs to it.
        device: `cpu` or `cuda`.
        build: makes the model that the request names.
        facts: what this process says of itself.
    """
    header, name = frame.header, str(frame.header["name"])
    step = str(header["step"])
    if step == "prepare":
        benches[name] = _prepare(header, device, build())
        return {"ok": True}, []
    bench = benches[name]
    if step == "feed":
        tensors, _ = codec.unpack_tensors(header["inputs"], memoryview(frame.payload))
        bench.sources[int(header["draw"])] = [_laid(form, device, t)
                                              for form, t in zip(bench.forms, tensors, strict=True)]
        return {"ok": True}, []
    if step == "fill":
        _fill(bench, header["contents"])
        return {"ok": True}, []
    if step == "batch":
        watched = {int(position): int(draw) for position, draw in header.get("watched", {}).items()}
        return _batch(bench, str(header["kind"]), header["order"], watched), []
    if step == "collect":
        return _collect(bench, header)
    if step == "memory":
        return {"bytes": _memory(bench), "graphs": _graphs() if bench.compiled else None, "facts": facts()}, []
    return {"ok": benches.pop(name) is not None, "facts": facts()}, []


def _prepare(header: dict[str, Any], device: str, model: Any) -> Bench:
    """Buffers for the inputs, and the caches' enemy."""
    forms = [codec.TensorForm.from_json(form) for form in header["forms"]]
    if header.get("compile"):
        model = torch.compile(model)
    bench = Bench(model, HostClock() if device == "cpu" else DeviceClock(), header["tree"], forms, device,
                  compiled=bool(header.get("compile")))
    for _ in range(int(header["buffers"])):
        storages = [_laid(form, device) for form in forms]
        views = [s.as_strided(f.shape, f.stride) for s, f in zip(storages, forms, strict=True)]
        bench.storages.append(storages)
        args, kwargs = codec.unflatten(header["tree"], views)
        bench.arguments.append((tuple(args), dict(kwargs)))
    if header.get("flush"):
        bench.flush = torch.empty(int(header["flush"]), dtype=torch.uint8, device=device)
    return bench


def _laid(form: codec.TensorForm, device: str, values: torch.Tensor | None = None) -> torch.Tensor:
    """A flat storage that a tensor of this form lies in from its start on, with its values."""
    length = 0 if 0 in form.shape else 1 + sum((n - 1) * s for n, s in zip(form.shape, form.stride, strict=True))
    flat = torch.zeros(length, dtype=codec.DTYPES[form.dtype], device=device)
    if values is not None and length:
        # an expanded dimension holds one value however often it is seen
        shape = [1 if s == 0 else n for n, s in zip(form.shape, form.stride, strict=True)]
        once = values
        for dim, size in enumerate(shape):
            once = once.narrow(dim, 0, size)
        flat.as_strided(shape, form.stride).copy_(once)
    return flat


def _fill(bench: Bench, contents: Sequence[Sequence[Any]]) -> None:
    """Write a draw times a factor into each buffer; integers as they are."""
    # let go of here, where no clock runs
    bench.held, bench.copies = [], {}
    gc.collect(0)
    for storages, (draw, factor) in zip(bench.storages, contents, strict=True):
        for source, target in zip(bench.sources[int(draw)], storages, strict=True):
            if float(factor) != 1.0 and source.dtype in SCALED:
                _mul(source, float(factor), out=target)
            else:
                _copy(target, source)
    bench.clock.settle()


def _batch(bench: Bench, kind: str, order: Sequence[int], watched: dict[int, int]) -> dict[str, Any]:
    """Call the model on some buffers in turn.

    Kinds: `warm` calls back to back; `cold` empties the caches before each; `flush` empties them and calls
    nothing; `witness` writes the inputs of watched calls behind a busy stream just before it calls, and copies what
    they returned as soon as they return, on that stream: who neither waits for it nor makes it wait is found out.

    Returns seconds: `total` with every stream at rest at both ends, `calls` of each cold call, `tail` from the end
    of the calling stream's work to that of all streams; and the `types` of outputs that are no plain tensors.
    """
    clock, model, arguments, flush = bench.clock, bench.model, bench.arguments, bench.flush
    held: list[Any] = []
    pairs: list[tuple[Any, Any]] = []
    strange: set[str] = set()
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.no_grad():
            clock.settle()
            first = clock.stamp()
            if kind == "warm":
                for number in order:
                    args, kwargs = arguments[number]
                    held.append(model(*args, **kwargs))
            elif kind in ("cold", "flush"):
                for number in order:
                    if flush is not None:
                        _zero(flush)
                    begun = clock.stamp()
                    if kind == "cold":
                        args, kwargs = arguments[number]
                        held.append(model(*args, **kwargs))
                    pairs.append((begun, clock.stamp()))
            else:
                for position, number in enumerate(order):
                    args, kwargs = arguments[number]
                    if position in watched:
                        clock.occupy()
                        fresh = bench.sources[watched[position]]
                        for source, target in zip(fresh, bench.storages[number], strict=True):
                            _copy(target, source)
                    held.append(model(*args, **kwargs))
                    if position in watched:
                        bench.copies[position] = _copies(held[-1], strange)
            last = clock.stamp()
            clock.wait(last)
            own = _now()
            clock.settle()
            tail = _now() - own
            end = clock.stamp()
            clock.wait(end)
    finally:
        if collecting:
            gc.enable()
    bench.held = held
    for outputs in held[:2]:
        _leaves(outputs, strange)
    return {"total": clock.seconds(first, end), "calls": [clock.seconds(a, b) for a, b in pairs],
            "tail": tail / 1e9, "types": sorted(strange)[:5]}


def _leaves(outputs: Any, strange: set[str]) -> list[torch.Tensor]:
    """Tensors of an output; the types of those that are no plain tensors are noted."""
    _, leaves = codec.flatten(outputs)
    strange.update(f"{type(t).__module__}.{type(t).__qualname__}"[:100] for t in leaves if type(t) not in _PLAIN)
    return leaves


def _copies(outputs: Any, strange: set[str]) -> list[torch.Tensor]:
    """Copies of what is there now, whatever a subclass says."""
    with torch._C.DisableTorchFunctionSubclass():
        return [_clone(t.detach()) for t in _leaves(outputs, strange)]


def _collect(bench: Bench, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """What some calls of the last batch returned: whole, or the elements at some flat positions of each tensor."""
    calls: list[dict[str, Any]] = []
    chunks: list[memoryview] = []
    strange: set[str] = set()
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        for number in header["calls"]:
            copied = bench.copies.get(int(number))
            outputs = bench.held[int(number)]
            leaves = _leaves(outputs, strange) if copied is None else copied
            shapes = [list(t.shape) for t in leaves]
            places = header.get("places")
            if places is not None:
                leaves = [_at(t.detach(), where) for t, where in zip(leaves, places, strict=True)]
            part, pieces = codec.pack([t.detach() for t in leaves])
            calls.append({"outputs": part, "shapes": shapes})
            chunks += [memoryview(bytes(piece)) for piece in pieces]
    return {"calls": calls}, chunks


def _at(tensor: torch.Tensor, where: Sequence[int]) -> torch.Tensor:
    """The elements at flat positions in row-major order; all of them where none are named."""
    if not where:
        return tensor
    return torch.take(tensor, torch.tensor(where, device=tensor.device))


def _graphs() -> int:
    """Graphs that torch.compile made in this process: none where it gave up without a word."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def _memory(bench: Bench) -> int | None:
    """Most bytes that one call allocates at a time beyond what there was before; None where nobody counts."""
    bench.held, bench.copies = [], {}
    if bench.device == "cpu":
        return None
    _synchronize()
    _forget()
    before = _allocated()
    args, kwargs = bench.arguments[0]
    with torch.no_grad():
        outputs = bench.model(*args, **kwargs)
    _synchronize()
    del outputs
    return int(_peak() - before)
