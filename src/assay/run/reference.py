"""The judge's side of the reference worker: studies, weights and truths."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import Any

import torch

from assay.contract.domain import Declared
from assay.errors import InputError
from assay.oracle import Arithmetic, LeafTruth, ModeTruth
from assay.oracle.cache import TruthCache, key_of, machine, package_version
from assay.oracle.truth import Kind
from assay.probe.model import Draw
from assay.probe.record import Truth
from assay.run import codec, killed
from assay.run.candidate import Weights
from assay.run.cost import Cost
from assay.run.process import Death, Limits, Worker, Zygote
from assay.run.reply import scalars
from assay.task import Task
from assay.task.facts import Study

REPLY_LIMIT = 8 << 30
PARAMETER_SEED = 42


class ReferenceFailed(RuntimeError):
    """The reference worker died or broke; the text says how."""


@dataclass(frozen=True)
class ScreenTrialInputs:
    """What one trial of the screen feeds and expects.

    Attributes:
        truth: inputs, and native outputs as leaves without a tolerance.
        call_seed: RNG seed of the candidate's call: the trial's own, or, where the reference drew random
            numbers, one that stands for the state in which the reference left the generator.
    """

    truth: Truth
    call_seed: int


class ReferenceSession:
    """Evaluates one task in a worker of its own, which is replaced when it dies.

    Args:
        zygote: the warm parent.
        task: the task.
        numerics: options of `assay.oracle.arithmetic_for`.
        timeout: seconds for one evaluation.
        device: where the reference and its replay run, `cpu` or `cuda`.
        cache: where truths are kept; None evaluates all of them. Live callables are never kept: their source
            is not all they are.
    """

    def __init__(self, zygote: Zygote, task: Task, numerics: dict[str, Any] | None = None,
                 timeout: float = 120.0, device: str = "cpu", cache: TruthCache | None = None) -> None:
        self._device = device
        self._cache = cache if task.handle is None else None
        self._zygote, self._task, self._timeout = zygote, task, timeout
        self.numerics = numerics or {}
        self._worker: Worker | None = None
        self._lock = threading.Lock()
        self._weights: dict[str, Weights] = {}
        self._study: Study | None = None
        self._found: Study | None = None
        self._declared: dict[int, Declared] = {}
        self.seconds = 0.0

    def _request(self, header: dict[str, Any], timeout: float | None = None) -> tuple[dict[str, Any], memoryview]:
        with self._lock:
            fresh = self._worker is None
            if self._worker is None:
                self._worker = self._zygote.spawn("reference", limits=Limits(file_bytes=0),
                                                  options={"device": self._device})
                self._exchange({"op": "task", "task": self._task.model_dump(mode="json")}, 60.0)
            if fresh and self._study is not None and header["op"] != "study":
                self._exchange(self._restored(), 60.0)
            return self._exchange(header, timeout or self._timeout)

    def _exchange(self, header: dict[str, Any], timeout: float) -> tuple[dict[str, Any], memoryview]:
        assert self._worker is not None
        reply = self._worker.request(header, timeout=timeout, payload_limit=REPLY_LIMIT)
        if isinstance(reply, Death):
            self._worker = None
            if reply.kind == "machine":
                raise ReferenceFailed(f"{killed.OUT_OF_MEMORY} that the reference ran in")
            raise ReferenceFailed(f"the reference worker {reply.kind.replace('_', ' ')}"
                                  f"{f' ({reply.code})' if reply.code is not None else ''}: {reply.text[-400:]}")
        if "task_error" in reply.header:
            what, where, todo = reply.header["task_error"]
            raise InputError(what, where, todo)
        if "failed" in reply.header:
            raise ReferenceFailed(reply.header["failed"])
        return reply.header, memoryview(reply.payload)

    def study(self, budget_s: float | None = None) -> Study:
        """Study the task, once. Raises InputError when the task is at fault, ReferenceFailed otherwise.

        Args:
            budget_s: seconds for trying sizes; None for the study's own.
        """
        if budget_s is None and self._found is not None:
            return self._found
        options = {} if budget_s is None else {"budget_s": budget_s}
        header, _ = self._request({"op": "study", "options": options}, max(self._timeout, 120.0))
        if "memory" in header:
            raise InputError(f"the task does not fit in memory: {header['memory']}", self._task.shown,
                             "give it smaller sizes")
        self._study = self._found = Study.model_validate(header["study"])
        return self._study

    def declare(self, study: Study, declared: dict[int, Declared]) -> None:
        """Make inputs in the domain that a contract declares from here on.

        Args:
            study: the task's study, narrowed by the contract.
            declared: by position, the inputs whose domain the contract changes.
        """
        self._study, self._declared = study, declared
        self._request(self._restored())

    def _restored(self) -> dict[str, Any]:
        assert self._study is not None
        return {"op": "restore", "study": self._study.model_dump(mode="json"),
                "declared": {str(i): clause.model_dump(mode="json") for i, clause in self._declared.items()}}

    def weights(self, sizes: dict[str, int], parameters: int = 0) -> Weights:
        """Constructor arguments and weights at some sizes. Raises InputError or ReferenceFailed.

        Args:
            sizes: overrides of the task's integers.
            parameters: 0 for weights as constructed, else the seed they are varied with.
        """
        key = f"{sorted(sizes.items())!r}/{parameters}"
        if key not in self._weights:
            base = self.weights(sizes) if parameters else None
            header, view = self._request({"op": "instance", "sizes": sizes, "seed": PARAMETER_SEED,
                                          "parameters": parameters})
            if "memory" in header:
                raise ReferenceFailed(f"out of memory: {header['memory']}")
            (args, kwargs), used = codec.unpack(header["init"], view)
            tensors, _ = codec.unpack_tensors(header["state"], view[used:])
            self._weights[key] = Weights(key, (args, kwargs), dict(zip(header["names"], tensors, strict=True)),
                                         tuple(header["buffers"]), PARAMETER_SEED, header["training"], base)
        return self._weights[key]

    def truth(self, sizes: dict[str, int], dtype: str | None, draw: Draw, call_seed: int, *,
              parameters: int = 0, grad: str = "", modes: str = "", approximate: bool = False,
              buffers: tuple[str, ...] = (), backward: dict[str, Any] | None = None) -> Truth:
        """The reference on one draw; never raises for what the reference does there.

        With `grad`, a kind of cotangent, also the gradients. With `modes`, also what arithmetic coarser than the
        declared one would do, `approximate` intrinsics among it: `few` or `all` ways of rounding, or the name of one
        mode for how much it grants alone. With `buffers`, the outputs are a list
        of the reference's own and the named buffers as the call leaves them. `backward` says what else of the probe
        shapes the gradients: `steps` (see `assay.probe.backward`), `tie` (two inputs that are one tensor), `eval` (the
        mode), `follow` (`train` or `second`, see `assay.run.training`).
        """
        request = {"op": "truth", "sizes": sizes, "dtype": dtype, "draw": draw.model_dump(mode="json"),
                   "seed": PARAMETER_SEED, "call_seed": call_seed, "numerics": self.numerics, "grad": grad,
                   "parameters": parameters, "modes": modes, "approximate": approximate, "buffers": list(buffers),
                   **(backward or {})}
        key = self._key(request) if self._cache is not None else ""
        kept = self._cache.get(key) if self._cache is not None else None
        if kept is not None:
            with contextlib.suppress(codec.CodecError, KeyError, TypeError, ValueError):
                return _read_truth(kept[0], memoryview(kept[1]))
        try:
            header, view = self._request(request)
        except InputError as error:
            return Truth(status="raised", text=error.what)
        except ReferenceFailed as error:
            return Truth(status="failed", text=str(error))
        if "memory" in header:
            return Truth(status="memory", text=str(header["memory"]))
        if "inapplicable" in header:
            return Truth(status="inapplicable", text=str(header["inapplicable"]))
        if "raised" in header:
            return Truth(status="raised", text=str(header["raised"]))
        if self._cache is not None:
            self._cache.put(key, header, [view])
        return _read_truth(header, view)

    def _key(self, request: dict[str, Any]) -> str:
        """Everything that the answer to a request for a truth depends on, hashed."""
        inputs = [] if self._study is None else [i.model_dump(mode="json") for i in self._study.tensor_inputs()]
        declared = {str(i): clause.model_dump(mode="json") for i, clause in self._declared.items()}
        random = None if self._study is None else self._study.random
        return key_of(package_version(), machine(self._device), self._device, self._task.digest, inputs, declared,
                      random, request)

    def cost(self, sizes: dict[str, int], seed: int) -> Cost:
        """Bytes and operations of one forward at some sizes. Raises InputError or ReferenceFailed."""
        header, _ = self._request({"op": "cost", "sizes": sizes, "seed": PARAMETER_SEED, "call_seed": seed})
        if "memory" in header:
            raise ReferenceFailed(f"out of memory: {header['memory']}")
        return Cost(**header["cost"])

    def screen(self, seed: int, dtype: str | None, *, private: bool) -> ScreenTrialInputs:
        """One trial of the screen, on one model that lives for as long as this session's worker.

        Args:
            seed: set before `get_inputs`, and again before the forward.
            dtype: what tensor inputs and parameters are cast to; None leaves the task's own.
            private: True gives the candidate the inputs as drawn, False as the reference left them.

        Raises InputError or ReferenceFailed.
        """
        header, view = self._request({"op": "screen", "seed": PARAMETER_SEED, "dtype": dtype,
                                      "input_seed": seed, "private": private})
        if "memory" in header:
            raise ReferenceFailed(f"out of memory: {header['memory']}")
        inputs, used = codec.unpack_tensors(header["inputs"], view)
        outputs, _ = codec.unpack_tensors(header["outputs"], view[used:])
        tree, forms = header["outputs"]["tree"], header["inputs"]["forms"]
        truth = Truth(status="ok", tree=header["inputs"]["tree"], inputs=tuple(inputs),
                      strides=tuple(codec.TensorForm.from_json(f).stride for f in forms),
                      structure=codec.skeleton(tree), scalars=scalars(tree),
                      paths=tuple(codec.leaf_paths(tree)), leaves=tuple(_native_leaf(t) for t in outputs))
        return ScreenTrialInputs(truth, int(header["call_seed"]))

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _read_truth(header: dict[str, Any], view: memoryview) -> Truth:
    inputs, used = codec.unpack_tensors(header["inputs"], view)
    flat, _ = codec.unpack_tensors(header["parts"], view[used:])
    source = iter(flat)
    leaves = tuple(
        LeafTruth.from_parts(meta, {name: next(source) for name in names})
        for meta, names in zip(header["leaves"], header["names"], strict=True)
    )
    modes = tuple(ModeTruth.from_parts(meta, {n: next(source) for n in names})
                  for meta, names in header.get("modes", []))
    gradients: dict[str, LeafTruth] = {}
    for name, meta, names in header.get("gradients", []):
        gradients[name] = LeafTruth.from_parts(meta, {n: next(source) for n in names})
    cotangents = tuple(next(source) for _ in range(header.get("cotangents", 0)))
    nan = {name: next(source) for name in header.get("nan", [])}
    tree = header["output"]["tree"]
    return Truth(
        status="ok", tree=header["inputs"]["tree"], inputs=tuple(inputs),
        strides=tuple(codec.TensorForm.from_json(f).stride for f in header["inputs"]["forms"]),
        structure=codec.skeleton(tree), scalars=scalars(tree), paths=tuple(codec.leaf_paths(tree)), leaves=leaves,
        contiguous=tuple(header["contiguous"]), random=bool(header["random"]),
        unmodelled=tuple(header["unmodelled"]), ops=dict(header["ops"]),
        arithmetic=Arithmetic.from_json(header["arithmetic"]), modes=modes, gradients=gradients, cotangents=cotangents,
        requires_grad=tuple(header.get("requires_grad", ())),
        backward_refused=tuple(header.get("refused", ())), gradient_nan=nan,
        aliases=tuple(header["aliases"]), mutated=tuple(header["mutated"]), seconds=float(header["seconds"]),
        work=dict(header.get("work") or {}), reseeds=bool(header.get("reseeds")),
        numbers=_numbers(scalars(tree), header.get("numbers", [])),
    )


def _numbers(found: dict[str, Any], truths: list[list[float]]) -> dict[str, tuple[float, float]]:
    """Value and tolerance of each floating number by its path; nothing where they cannot be told apart."""
    paths = [path for path, value in found.items() if isinstance(value, float)]
    if len(paths) != len(truths):
        return {}
    return {path: (value, tolerance) for path, (value, tolerance) in zip(paths, truths, strict=True)}


def _native_leaf(value: torch.Tensor) -> LeafTruth:
    """A truth that knows the native value and no tolerance."""
    nothing = torch.empty(0, dtype=torch.float64)
    kind: Kind = "complex" if value.is_complex() else "float" if value.is_floating_point() else "int"
    return LeafTruth(kind=kind, dtype=str(value.dtype), native=value, y=value, spread=nothing, pooled=nothing,
                     decided=torch.empty(0, dtype=torch.bool), unit=0.0, floor=0.0)
