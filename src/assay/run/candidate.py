"""The judge's side of one candidate: feeds probes, survives whatever happens, returns observations."""

from __future__ import annotations

import math
import mmap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.probe.backward import PASSES
from assay.probe.layouts import Placement, as_made, place
from assay.probe.model import Probe
from assay.probe.record import MemoryEvent, Observation, Truth
from assay.run import codec, killed, reply
from assay.run.ahead import Ahead, Wanted
from assay.run.arena import Region
from assay.run.build_cache import BuildCache
from assay.run.process import Death, Limits, Worker, Zygote
from assay.run.reply import printable
from assay.run.sandbox import Level
from assay.run.stub_cache import StubCache
from assay.run.wire import Frame

ARENA_BYTES = 4 << 30
LOAD_ATTEMPTS = 2
REPLY_SLACK = 64 << 20
BUILD_SECONDS = 300.0
"""Seconds that a candidate which builds extensions may take to load."""
BUILT_BYTES = 96 << 20
"""Bytes of a reply that hands on what was built."""


@dataclass(frozen=True)
class Weights:
    """What the candidate's constructor and parameters are fed at some sizes.

    Attributes:
        key: names the sizes and dtype.
        init: (args, kwargs) of the constructor.
        state: the reference's parameters and buffers by name.
        buffers: which of them are buffers.
        seed: seed set before the constructor.
        training: mode of the reference after construction.
        base: weights as constructed, which names are matched by, when `state` holds varied values.
        others: weights that single draws ask for, by parameter seed.
    """

    key: str
    init: tuple[Sequence[Any], Mapping[str, Any]]
    state: Mapping[str, torch.Tensor]
    buffers: tuple[str, ...]
    seed: int
    training: bool | None
    base: Weights | None = None
    others: Mapping[int, Weights] = field(default_factory=dict)


class CandidateSession:
    """One candidate and the workers it uses up.

    Args:
        zygote: the warm parent.
        source: the candidate's source text.
        entries: names its entry point may have, in order.
        options: worker options: `device`, `target`.
        limits: resource limits.
        sandbox: `auto`, `strict` or `off`; None for the warm parent's own.
        hide: files that the candidate finds empty.
        failures: failed attempts to load the candidate, shared by all its sessions.
        patience: seconds; loading, which may compile, gets twelve times that.
        build_cache: extensions that the candidate built, shared by all its sessions.
        kills: probes on which it was ended from outside, shared by all its sessions.
        ahead: workers that were started before the candidate was there.
        stubs: launcher stubs for candidates of any source; None keeps none.

    Attributes:
        wanted: what its workers are started with.
    """

    def __init__(self, zygote: Zygote, source: str, entries: Sequence[str], options: dict[str, Any],
                 limits: Limits, *, sandbox: str | None = None, hide: Sequence[str] = (),
                 failures: list[Observation] | None = None, patience: float = 10.0,
                 build_cache: BuildCache | None = None, kills: list[str] | None = None,
                 ahead: Ahead | None = None, stubs: StubCache | None = None) -> None:
        self._zygote, self._source, self._entries = zygote, source, list(entries)
        self.wanted = Wanted(options, limits, sandbox, tuple(hide))
        self._ahead, self._stubs = ahead, stubs
        self._worker: Worker | None = None
        self._keys: set[str] = set()
        self._load_failures: list[Observation] = [] if failures is None else failures
        self._patience, self._load_seconds = patience, 12 * patience
        self._build_cache = build_cache if build_cache is not None else BuildCache()
        self._builds = any(mark in source for mark in ("cpp_extension", "load_inline"))
        self._kills: list[str] = [] if kills is None else kills
        self._ran = self._hung = False
        self._ending: list[Worker] = []
        self.entry = ""
        self.deaths = self.lost_devices = 0
        self.load_seconds = 0.0
        self._token = 0

    @property
    def level(self) -> Level:
        """How its workers are confined."""
        return self._zygote.level(self.wanted.sandbox)

    def run(self, probe: Probe, truths: Sequence[Truth], weights: Weights, seeds: Sequence[int],
            timeout: float, left: float = math.inf) -> Observation:
        """Run one probe. Never raises for anything the candidate does.

        Args:
            probe: the experiment.
            truths: one per draw of the probe; all `ok`.
            weights: constructor arguments and weights at the probe's sizes.
            seeds: RNG seed set before each call.
            timeout: seconds for the whole probe; more is a hang.
            left: seconds that there are at all; a probe that they end decides nothing.
        """
        end = time.monotonic() + left

        def once(longer: float = 1.0) -> Observation:
            return self._once(probe, truths, weights, seeds, longer * timeout, end - time.monotonic(),
                              longer * max(self._patience, timeout / 3.0))

        observation = killed.decided(once(), once, self._kills)
        if hung_on_device(observation) and not self._hung:
            # neighbours may have kept the device busy: what hangs again in a new process, for longer, does so itself
            self._retire()
            observation = once(longer=2.5)
            self._hung = hung_on_device(observation)
        return observation

    def _once(self, probe: Probe, truths: Sequence[Truth], weights: Weights, seeds: Sequence[int],
              timeout: float, left: float, settle: float) -> Observation:
        """Run one probe, in the worker that is there or a fresh one; a device has `settle` seconds to be done."""
        began = time.monotonic()
        failed = self._ensure_loaded(probe.id, left)
        self.load_seconds += time.monotonic() - began
        if failed is not None:
            return failed
        worker = self._worker
        assert worker is not None
        for needed in (weights, *weights.others.values()):
            if needed.key not in self._keys:
                refused = self._send_instance(worker, needed, left, probe.id)
                if refused is not None:
                    return refused
        region = _region(probe, truths)
        if worker.arena_used and worker.arena_used + region.size > ARENA_BYTES:
            self._retire()
            return self._once(probe, truths, weights, seeds, timeout, left, settle)
        worker.reserve(worker.arena_used + region.size + 2 * mmap.PAGESIZE)
        image = region.write(worker.arena, worker.arena_used)
        worker.arena_used += region.size + -region.size % mmap.PAGESIZE
        self._token += 1
        header, chunks = self._header(probe, truths, weights, seeds, region)
        header["settle"] = settle
        outputs = sum(leaf.native.numel() * leaf.native.element_size() for t in truths for leaf in t.leaves
                      if leaf.native is not None)
        limit = REPLY_SLACK + 8 * max(1, len(probe.calls)) * (outputs + sum(
            t.numel() * t.element_size() for truth in truths for t in truth.inputs))
        if probe.grad:
            limit *= 1 + len(PASSES)
        if self._builds and not self._ran:
            # extensions may be built by the first call as well
            limit += BUILT_BYTES
            timeout = max(timeout, BUILD_SECONDS)
        began = time.monotonic()
        answer = worker.request(header, chunks, timeout=min(timeout, left), payload_limit=limit)
        if isinstance(answer, Death):
            return self._lost(probe.id, answer, timeout <= left)
        try:
            observation = self._read(probe, answer, time.monotonic() - began)
        except Exception as error:
            # whatever a description can break is the doing of whoever sent it
            self._retire()
            self.deaths += 1
            return Observation(probe=probe.id, status="forged",
                               text=printable(f"the reply makes no sense: {error}", 500))
        self._ran = True
        self._hear(worker, answer)
        others, files = worker.census()
        if others or files:
            observation = observation.model_copy(update={"left": others, "files": files})
        made = len(observation.calls)
        memory = tuple(MemoryEvent(f.kind, f.leaf, f.count, f.index, f.distance, f.before, f.after)
                       for f in region.check(worker.arena, image, max(made, 1)))
        if others or _lost_device(answer):
            self.lost_devices += _lost_device(answer)
            self._retire()
        elif ends_its_worker(probe):
            self.end()
        return observation.model_copy(update={"memory": memory})

    def load(self, left: float) -> None:
        """Have the candidate loaded before its first probe comes; whatever goes wrong then is that probe's."""
        if not self._builds:
            self._ensure_loaded("load", left)

    def opened(self, weights: Weights, name: str, left: float = math.inf) -> Worker | Observation:
        """A worker with the candidate loaded and some weights sent, for exchanges that are no probes.

        Args:
            weights: constructor arguments and weights.
            name: what an observation of a failure is called.
            left: seconds that there are.
        """
        failed = self._ensure_loaded(name, left)
        if failed is None and weights.key not in self._keys:
            assert self._worker is not None
            failed = self._send_instance(self._worker, weights, left, name)
        if failed is not None:
            return failed
        assert self._worker is not None
        return self._worker

    def lost(self, death: Death, name: str) -> Observation:
        """What the end of a worker that was `opened` is; the next one starts anew."""
        return self._lost(name, death, True)

    def _ensure_loaded(self, probe_id: str, left: float) -> Observation | None:
        if self._worker is not None:
            return None
        if len(self._load_failures) >= LOAD_ATTEMPTS:
            return self._load_failures[-1].model_copy(update={"probe": probe_id})
        ready = self._ahead.take(self.wanted) if self._ahead is not None else None
        worker = ready or self.wanted.start(self._zygote)
        kept = self._build_cache.items() if self._builds else []
        stubs, objects = self._stubs.offer(worker) if self._stubs is not None else (None, [])
        header = {"op": "load", "source": self._source, "entries": self._entries,
                  "builds": [[key, name, len(data)] for key, name, data in kept], "stubs": stubs}
        limit = max(self._load_seconds, BUILD_SECONDS if self._builds else 0.0)
        answer = worker.request(header, [*(memoryview(data) for _, _, data in kept), *objects],
                                timeout=min(limit, left), payload_limit=BUILT_BYTES)
        failure: Observation | None = None
        if isinstance(answer, Death):
            failure = self._lost(probe_id, answer, limit <= left)
            if failure.status in ("not_run", "machine"):
                return failure
            if failure.status == "timed_out" and self._builds:
                failure = failure.model_copy(update={
                    "status": "toolchain", "text": f"its extension was not built within {limit:.0f} s"})
        elif isinstance(answer.header.get("error"), dict):
            failure = Observation(probe=probe_id, status=_error_status(answer.header["error"]),
                                  error=reply.clean_error(answer.header["error"]))
            worker.close()
            # an import that raises raises again: one attempt is enough
            self._load_failures.append(failure)
        elif not answer.header.get("ok"):
            worker.close()
            failure = Observation(probe=probe_id, status="forged", text="the reply to `load` makes no sense")
        if failure is not None:
            # so does one that hangs hang again
            hung = failure.status in ("timed_out", "toolchain")
            self._load_failures += [failure] * (LOAD_ATTEMPTS if hung else 1)
            return failure
        assert isinstance(answer, Frame)
        self._hear(worker, answer)
        self._worker, self._keys = worker, set()
        self.entry = printable(answer.header.get("entry", ""), 200)
        return None

    def _hear(self, worker: Worker, answer: Frame) -> None:
        """Note what a worker built on the way to an answer."""
        self._build_cache.take(answer.header.get("built"), memoryview(answer.payload))
        if self._stubs is not None:
            self._stubs.take(worker, answer.header.get("stubs"), self.wanted.sandbox, self.wanted.hide)

    def _send_instance(self, worker: Worker, weights: Weights, left: float,
                       probe_id: str) -> Observation | None:
        if weights.base is not None and weights.base.key not in self._keys:
            refused = self._send_instance(worker, weights.base, left, probe_id)
            if refused is not None:
                return refused
        init, chunks = codec.pack([list(weights.init[0]), dict(weights.init[1])])
        tensors = list(weights.state.values())
        header = {"op": "instance", "key": weights.key, "init": init, "names": list(weights.state),
                  "state": {"forms": [codec.form_of(t).to_json() for t in tensors]},
                  "buffers": list(weights.buffers), "seed": weights.seed, "training": weights.training,
                  "force_mode": False, "base": weights.base.key if weights.base else weights.key}
        answer = worker.request(header, [*chunks, *[codec.tensor_bytes(t) for t in tensors]],
                                timeout=min(self._load_seconds, left), payload_limit=1 << 20)
        if isinstance(answer, Death):
            return self._lost(probe_id, answer, self._load_seconds <= left)
        if answer.header.get("ok") is not True:
            self._retire()
            error = answer.header.get("error")
            if isinstance(error, dict):
                return Observation(probe=probe_id, status=_error_status(error),
                                   error=reply.clean_error(error))
            return Observation(probe=probe_id, status="forged", text="the reply to `instance` makes no sense")
        self._keys.add(weights.key)
        return None

    def _header(self, probe: Probe, truths: Sequence[Truth], weights: Weights, seeds: Sequence[int],
                region: Region) -> tuple[dict[str, Any], list[memoryview]]:
        calls = [
            {"storage": call.storage, "tree": truths[call.draw].tree, "seed": seed,
             "places": [slot.to_json() for slot in slots], "instance": call.instance,
             "key": _key(weights, probe, call.draw)}
            for call, seed, slots in zip(probe.calls, seeds, region.slots, strict=True)
        ]
        conditions = dict(c.split(":", 1) for c in probe.conditions if ":" in c)
        header: dict[str, Any] = {
            "op": "run", "token": self._token, "key": weights.key, "dtype": probe.dtype, "calls": calls,
            "region": {"offset": region.offset, "size": region.size}, "grad": probe.grad,
            "late": len(probe.calls) > 1,
            "config": int(conditions["config"]) if "config" in conditions else None,
            "poison": conditions.get("poison", "nan"), "conditions": conditions,
        }
        chunks: list[memoryview] = []
        if probe.grad:
            cotangents = truths[probe.calls[0].draw].cotangents
            header["cotangents"] = {"forms": [codec.form_of(t).to_json() for t in cotangents]}
            chunks = [codec.tensor_bytes(t) for t in cotangents]
        return header, chunks

    def _read(self, probe: Probe, answer: Frame, elapsed: float) -> Observation:
        header, view = answer.header, memoryview(answer.payload)
        if header.get("token") != self._token:
            raise codec.CodecError("a late or repeated frame")
        common: dict[str, Any] = {
            "probe": probe.id, "facts": reply.facts(header.get("facts")),
            "weights": printable(header.get("weights", "none"), 40),
            "seconds": reply.seconds(header.get("seconds", 0.0), elapsed),
        }
        if common["weights"] == "unmatched":
            return Observation(status="weights", text=printable(header.get("weights_text", ""), 1000),
                               **common)
        calls, used = [], 0
        for record in header["calls"][: len(probe.calls)]:
            result, used = reply.call_result(record, view, used, elapsed)
            calls.append(result)
        late = None
        if header.get("late") is not None:
            tensors, _ = codec.unpack_tensors(header["late"], view[used:])
            counts = [len(c.outputs) for c in calls[:-1]]
            if sum(counts) == len(tensors):
                source = iter(tensors)
                late = tuple(tuple(next(source) for _ in range(n)) for n in counts)
        if isinstance(header.get("error"), dict):
            error = reply.clean_error(header["error"])
            return Observation(status=_error_status(header["error"]), error=error, calls=tuple(calls),
                               late=late, **common)
        if len(calls) != len(probe.calls):
            raise codec.CodecError("fewer calls than asked for")
        changed = header.get("parameters_changed", [])
        return Observation(status="ok", calls=tuple(calls), late=late,
                           parameters_changed=tuple(printable(n, 200) for n in changed[:50]), **common)

    def _lost(self, probe_id: str, death: Death, hung: bool) -> Observation:
        """What the end of a worker is for the probe; an end by the clock counts only where it `hung`."""
        self._worker = None
        self.deaths += 1
        if death.kind == "timed_out" and not hung:
            return Observation(probe=probe_id, status="not_run", text="budget spent")
        return _of_death(probe_id, death)

    def _retire(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def abort(self) -> None:
        """Order the end of the current worker from another thread; the probe that runs ends with it."""
        worker = self._worker
        if worker is not None:
            worker.kill()

    def end(self) -> None:
        """Order the end of the current worker, if there is one; `close` waits for it, which takes a while on a GPU."""
        if self._worker is not None:
            self._worker.kill()
            self._ending.append(self._worker)
            self._worker = None

    def close(self) -> None:
        """End its workers, and wait until they have."""
        self.end()
        while self._ending:
            self._ending.pop().close()


def hung_on_device(observation: Observation) -> bool:
    """Whether a worker says that its device was not done long after the call had returned."""
    return observation.status == "timed_out" and (observation.error or {}).get("type") == "DeviceHung"


def ends_its_worker(probe: Probe) -> bool:
    """Whether a worker is of no use afterwards: what a module keeps from inference mode no other mode may write."""
    return any("inference" in condition for condition in probe.conditions)


def _key(weights: Weights, probe: Probe, draw: int) -> str:
    """Key of the weights that a draw is computed with."""
    seed = probe.draws[draw].parameters
    return weights.key if seed is None or seed == probe.parameters else weights.others[seed].key


def _region(probe: Probe, truths: Sequence[Truth]) -> Region:
    """Lay the probe's inputs out in guarded memory."""
    conditions = dict(c.split(":", 1) for c in probe.conditions if ":" in c)
    region = Region(pad=int(conditions.get("pad", "255")))
    first: list[Placement] = []
    for call in probe.calls:
        truth, draw = truths[call.draw], probe.draws[call.draw]
        if call.storage not in ("overwrite", "reused"):
            first = [_placement(draw.layouts, i, t, s)
                     for i, (t, s) in enumerate(zip(truth.inputs, truth.strides, strict=True))]
        region.add_call(call.storage, truth.inputs, first)
    return region


def _placement(layouts: Sequence[str], leaf: int, tensor: torch.Tensor, stride: Sequence[int]) -> Placement:
    if leaf < len(layouts) and layouts[leaf] != "task":
        chosen = place(layouts[leaf], tuple(tensor.shape))
        if chosen is not None:
            return chosen
    return as_made(tuple(tensor.shape), stride)


def _of_death(probe_id: str, death: Death) -> Observation:
    if death.kind == "machine":
        return Observation(probe=probe_id, status="machine", text=killed.OUT_OF_MEMORY)
    status = death.kind if death.kind != "closed_by_judge" else "closed"
    return Observation.model_validate({"probe": probe_id, "status": status, "code": death.code,
                                       "left": death.left, "text": printable(death.text[-2000:])})


TOOLCHAIN_ERRORS = frozenset({"OutOfResources", "PTXASError", "ToolchainError", "UnsupportedLanguageConstruct"})
"""Errors by which a compiler or a device refuses a kernel: the resources gate judges those."""


COMPILED_BY_TORCH = frozenset({"InductorError", "BackendCompilerFailed", "CppCompileError", "InvalidCxxCompiler"})
"""Errors of `torch.compile`, which may wrap those of the C++ compiler: its sources are not the candidate's."""
_CXX_ERRORS = ("CppCompileError", "InvalidCxxCompiler", "C++ compile error", "No working C++ compiler")


def _lost_device(answer: Frame) -> bool:
    """Whether the worker says that its device context is broken: every later call would fail with it."""
    error = answer.header.get("error")
    return isinstance(error, dict) and bool(error.get("sticky"))


def _error_status(error: dict[str, Any]) -> Any:
    if error.get("needs_gpu"):
        return "needs_gpu"
    if error.get("memory"):
        return "memory"
    if error.get("type") == "DeviceHung":
        return "timed_out"
    if error.get("phase") == "worker":
        # before the candidate was reached: the device or our own process failed
        return "unavailable"
    if error.get("type") == "ModuleNotFoundError" and error.get("phase") == "import":
        return "toolchain"
    if error.get("type") in TOOLCHAIN_ERRORS or (
            error.get("type") in COMPILED_BY_TORCH and any(m in str(error.get("message")) for m in _CXX_ERRORS)):
        return "toolchain"
    return "raised"
