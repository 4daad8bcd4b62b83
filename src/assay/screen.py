"""The cheap check: five random inputs at the native sizes, one tolerance. It says what is worth a look.

Two variants follow the KernelBench rule, seed for seed and verdict for verdict; one is hardened. In all of
them the candidate runs in a process of its own, and what it returns is compared by the judge.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import torch
from pydantic import Field

from assay.environment import describe as describe_environment
from assay.errors import InputError
from assay.gates.base import FAULT_REASONS
from assay.gates.numbers import unravel
from assay.probe.model import Call, Draw, Frozen, Probe
from assay.probe.record import CallResult, Observation, Truth
from assay.run import codec
from assay.run.candidate import CandidateSession, Weights
from assay.run.process import Limits, Zygote
from assay.run.reference import ReferenceFailed, ReferenceSession, ScreenTrialInputs
from assay.task import Candidate, Task
from assay.vocabulary import Outcome, Reason

SEED = 42
TRIALS = 5
TOGETHER_BYTES = 1 << 30
"""Inputs of all trials are held at once below this, so that one instance can be called with each in turn."""


class ScreenVariant(StrEnum):
    """Which rule decides."""

    KERNELBENCH_V0 = "kernelbench-v0"
    KERNELBENCH = "kernelbench"
    HARDENED = "hardened"


PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Precisions that the `kernelbench` rule casts to."""


@dataclass(frozen=True)
class Rule:
    """One way to screen.

    Attributes:
        tolerance: atol and rtol.
        precision: dtype that inputs and parameters are cast to; None leaves the task's own.
        hardened: private inputs, both call orders, matched weights, dtype compared, NaN equal to NaN.
    """

    tolerance: float
    precision: str | None = None
    hardened: bool = False


def rule_of(variant: ScreenVariant, precision: str = "fp32") -> Rule:
    """The rule of a variant.

    `kernelbench-v0`: atol = rtol = 1e-2 and inputs as the task makes them, the rule of the revisions up to
    October 2025 that published results used. `kernelbench`: the later rule, which casts every tensor input
    (integers too) and the parameters to one precision, and takes 1e-4 at fp32 and 1e-2 at half precision.
    `hardened`: 1e-2 like the first, with the gaps of the procedure closed.

    Raises InputError for an unknown precision.
    """
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision `{precision}`", "--precision", f"use {', '.join(PRECISIONS)}")
    if variant is ScreenVariant.KERNELBENCH:
        return Rule(1e-4 if precision == "fp32" else 1e-2, PRECISIONS[precision])
    return Rule(1e-2, hardened=variant is ScreenVariant.HARDENED)


class ScreenTrial(Frozen):
    """One call of the candidate on one set of inputs."""

    seed: int
    """Seed set before `get_inputs`."""
    outcome: Outcome
    """`pass`, `fail` or `inconclusive`."""
    reason: Reason | None = None
    """Why not `pass`."""
    output: str | None = None
    """Path of the output concerned."""
    index: tuple[int, ...] | None = None
    """Element with the largest excess over the tolerance."""
    expected: str | None = None
    """What the reference gives."""
    actual: str | None = None
    """What came instead."""
    max_error: float | None = None
    """Largest finite absolute error over all outputs; None where nothing could be compared."""


class ScreenReport(Frozen):
    """What the screen says of one candidate. Passing it is no verdict of correctness."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    variant: ScreenVariant
    """The rule."""
    tolerance: float
    """atol and rtol of the comparison."""
    precision: str | None = None
    """dtype that inputs and parameters were cast to, or None."""
    outcome: Outcome
    """`pass` when every trial passed; `inconclusive` when the screen could not run here."""
    reason: Reason | None = None
    """Why not `pass`."""
    text: str | None = None
    """The candidate's error, or what was missing, in one line."""
    trials: tuple[ScreenTrial, ...] = ()
    """One per call, up to the first that ends the screen."""
    task: str
    """Readable name of the task."""
    task_sha256: str
    """Content hash of the reference."""
    candidate_sha256: str
    """Content hash of the candidate."""
    scope: str
    """`cpu-emulation`, or the GPU."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """Machine and versions."""
    timing: dict[str, float] = Field(default_factory=dict)
    """Seconds: `total_s` and `start_s`, the part spent on starting processes."""

    @property
    def passed(self) -> bool:
        """True when every trial passed."""
        return self.outcome is Outcome.PASS

    def to_json(self, *, timing: bool = True) -> str:
        """Canonical JSON; with `timing=False` the same bytes for the same machine."""
        from assay.report.model import canonical_json

        return canonical_json(self.model_dump(mode="json", exclude=None if timing else {"timing"}))


def screen_task(task: Task, candidate: Candidate, *, variant: ScreenVariant = ScreenVariant.KERNELBENCH_V0,
                precision: str = "fp32", device: str = "auto", target: str = "sm_90", timeout: float = 300.0,
                zygote: Zygote | None = None) -> ScreenReport:
    """Screen a candidate.

    Args:
        task: the task.
        candidate: the source under test.
        variant: the rule.
        precision: precision of the `kernelbench` rule: fp32, fp16 or bf16.
        device: `auto`, `cpu` or `cuda`.
        target: device that CPU emulation answers as.
        timeout: seconds for the candidate's calls.
        zygote: a warm parent to use; None starts one for this call.

    Raises:
        InputError: the task is at fault, also when the reference raises on the screen's inputs.
    """
    rule = rule_of(variant, precision)
    if zygote is None:
        with Zygote() as own:
            return screen_task(task, candidate, variant=variant, precision=precision, device=device,
                               target=target, timeout=timeout, zygote=own)
    from assay.verify import address_space, entries, resolve_device

    began = time.monotonic()
    where = resolve_device(device)
    zygote.wait_ready()
    started = time.monotonic() - began
    reference = ReferenceSession(zygote, task)
    session = CandidateSession(
        zygote, candidate.source, entries(task, candidate), {"device": where, "target": target},
        Limits(address_space=address_space(where)),
    )
    try:
        trials, text = _run(reference, session, rule, task, timeout, where)
    finally:
        reference.close()
        session.close()
    environment = describe_environment(where, target)
    bad = next((t for t in trials if t.outcome is not Outcome.PASS), None)
    return ScreenReport(
        variant=variant, tolerance=rule.tolerance, precision=rule.precision,
        outcome=bad.outcome if bad else Outcome.PASS, reason=bad.reason if bad else None, text=text,
        trials=tuple(trials), task=task.id, task_sha256=task.digest, candidate_sha256=candidate.digest,
        scope="cpu-emulation" if where == "cpu" else str(environment["gpu"]), environment=environment,
        timing={"total_s": round(time.monotonic() - began, 3), "start_s": round(started, 3)},
    )


def trial_seeds(seed: int = SEED, trials: int = TRIALS) -> list[int]:
    """Seeds of the trials: draws of `torch.randint(0, 2**32 - 1, (1,))` after `torch.manual_seed(seed)`."""
    generator = torch.Generator().manual_seed(seed)
    return [int(torch.randint(0, 2**32 - 1, (1,), generator=generator)) for _ in range(trials)]


def _run(reference: ReferenceSession, session: CandidateSession, rule: Rule, task: Task, timeout: float,
         device: str) -> tuple[list[ScreenTrial], str | None]:
    """Every trial up to the first that ends the screen, and the candidate's error if there was one."""
    seeds = trial_seeds()
    try:
        weights = _weights(reference, rule)
        drawn = [reference.screen(seed, rule.precision, private=rule.hardened) for seed in seeds]
    except ReferenceFailed as error:
        advice = "this rule casts every input, also integers: try --variant kernelbench-v0"
        raise InputError(f"the reference raises on the screen's inputs: {error}", task.shown,
                         advice if rule.precision else "make it run on what get_inputs returns") from None
    trials: list[ScreenTrial] = []
    deadline = time.monotonic() + timeout
    for group in _groups(drawn, rule):
        probe = Probe(id=f"screen/{len(trials)}", gate="screen", kind="screen", dtype=rule.precision,
                      draws=tuple(Draw(seed=seeds[i]) for i in group),
                      calls=tuple(Call(draw=n) for n in range(len(group))))
        truths = [drawn[i].truth for i in group]
        seen = session.run(probe, truths, weights, [drawn[i].call_seed for i in group],
                           max(1.0, deadline - time.monotonic()))
        for position, call in enumerate(seen.calls):
            i = group[position]
            trials.append(_compare(seeds[i], drawn[i].truth, call, rule, device))
        if not seen.ran:
            at = group[min(len(seen.calls), len(group) - 1)]
            trials.append(_unanswered(seeds[at], seen, device))
            return trials, _error_text(seen)
    return trials, None


def _groups(drawn: Sequence[ScreenTrialInputs], rule: Rule) -> Iterator[tuple[int, ...]]:
    """Trials that one instance of the candidate is called with, in order."""
    order = list(range(len(drawn)))
    if rule.hardened:
        # each input again, in reverse: a result that depends on what was called before shows
        order += order[::-1]
    size = sum(t.numel() * t.element_size() for i in order for t in drawn[i].truth.inputs)
    if size <= TOGETHER_BYTES:
        yield tuple(order)
    else:
        yield from ((i,) for i in order)


def _weights(reference: ReferenceSession, rule: Rule) -> Weights:
    """Constructor arguments, and the reference's weights where the rule hands them over.

    The KernelBench rule relies on both constructors drawing the same numbers from one seed.
    """
    found = reference.weights({})
    if rule.hardened:
        return found
    args, kwargs = found.init
    if rule.precision is not None:
        dtype = codec.DTYPES[rule.precision]
        args = tuple(a.to(dtype) if isinstance(a, torch.Tensor) else a for a in args)
    return replace(found, key="screen", init=(args, kwargs), state={}, buffers=(), base=None)


def _unanswered(seed: int, seen: Observation, device: str) -> ScreenTrial:
    """The trial that the candidate did not answer."""
    undecided = {"needs_gpu": Reason.NEEDS_GPU, "memory": Reason.OUT_OF_MEMORY, "toolchain": Reason.TOOLCHAIN,
                 "weights": Reason.WEIGHTS, "not_run": Reason.BUDGET, "unavailable": Reason.INTERNAL,
                 "machine": Reason.MACHINE}
    if seen.status in undecided:
        return ScreenTrial(seed=seed, outcome=Outcome.INCONCLUSIVE, reason=undecided[seen.status])
    if seen.status == "timed_out" and device == "cpu":
        # emulation is slow: too little time says nothing about the kernel
        return ScreenTrial(seed=seed, outcome=Outcome.INCONCLUSIVE, reason=Reason.TIMED_OUT)
    return ScreenTrial(seed=seed, outcome=Outcome.FAIL, reason=FAULT_REASONS[seen.status])


def _error_text(seen: Observation) -> str | None:
    if seen.error:
        place = f" at {seen.error['place']}" if seen.error.get("place") else ""
        return f"{seen.error['type']}{place}: {' '.join(seen.error['message'].split())}"[:400]
    return " ".join(seen.text.split())[-400:] or None


def _compare(seed: int, truth: Truth, call: CallResult, rule: Rule, device: str) -> ScreenTrial:
    """One answer against the reference's: structure, shape, dtype, device, then `torch.allclose`."""
    expected = [leaf.native for leaf in truth.leaves]

    def failed(reason: Reason, path: str | None, want: object, got: object, **more: Any) -> ScreenTrial:
        return ScreenTrial(seed=seed, outcome=Outcome.FAIL, reason=reason, output=path, expected=str(want),
                           actual=str(got), **more)

    if call.structure != truth.structure or len(call.outputs) != len(expected):
        return failed(Reason.STRUCTURE, None, truth.structure, call.structure)
    for path, value in truth.scalars.items():
        if not _close_scalar(value, call.scalars.get(path), rule):
            return failed(Reason.VALUE, path, value, call.scalars.get(path))
    worst: float | None = None
    for want, seen in zip(expected, call.outputs, strict=True):
        got = seen.tensor
        if want.shape != got.shape:
            return failed(Reason.SHAPE, seen.path, list(want.shape), list(got.shape))
        # torch.allclose refuses two dtypes, and two devices
        if want.dtype != got.dtype:
            return failed(Reason.DTYPE, seen.path, codec.dtype_name(want.dtype), seen.dtype)
        if seen.device == "cpu" and truth.inputs:
            return failed(Reason.DEVICE, seen.path, "cuda", seen.device)
        close = _close(want, got, rule)
        error = _wide(got).sub(_wide(want)).abs()
        finite = error[error.isfinite()]
        largest = float(finite.max()) if finite.numel() else None
        worst = largest if worst is None else max(worst, largest or 0.0)
        if not bool(close.all()):
            excess = torch.where(close, torch.full_like(error, -1.0), error.nan_to_num(nan=torch.inf))
            flat = int(excess.reshape(-1).argmax())
            index = unravel(flat, tuple(want.shape))
            return failed(Reason.VALUE, seen.path, want[index].item(), got[index].item(), index=index,
                          max_error=worst)
    return ScreenTrial(seed=seed, outcome=Outcome.PASS, max_error=worst)


def _close(want: torch.Tensor, got: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Where two tensors of one shape and dtype agree, as a bool tensor of that shape."""
    if not (want.is_floating_point() or want.is_complex()):
        # allclose has no difference of booleans, and none of unsigned integers that is right
        want, got = _wide(want), _wide(got)
    if rule.hardened:
        return torch.isclose(got, want, rtol=rule.tolerance, atol=rule.tolerance, equal_nan=True)
    # the KernelBench rule is relative to what the candidate returned
    return torch.isclose(want, got, rtol=rule.tolerance, atol=rule.tolerance)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _close_scalar(want: Any, got: Any, rule: Rule) -> bool:
    numbers = (bool, int, float, complex)
    if isinstance(want, numbers) and isinstance(got, numbers):
        a, b = torch.tensor(want, dtype=torch.complex128), torch.tensor(got, dtype=torch.complex128)
        return bool(_close(a, b, rule))
    return bool(want == got)
