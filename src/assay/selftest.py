"""Does every gate work on this machine? A right kernel that it has to pass, and a wrong one that it has to reject.

The wrong kernel is the right one with one change. A gate that passes both, or rejects both, cannot be trusted on
this stack of Python, torch and triton, whatever it says of other kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from assay import corpus
from assay.contract import Contract
from assay.gates import BATTERY, GATES
from assay.pool import Done, Job, Pool
from assay.report.model import Report
from assay.verify import Options
from assay.vocabulary import EffortTier, Outcome, Reason

SEED = 5


@dataclass(frozen=True)
class Control:
    """A right kernel and the change that makes it wrong for one gate.

    Attributes:
        gate: the gate.
        subject: entry of the corpus.
        old: text of the right kernel, which occurs in it.
        new: what is there in the wrong one.
        dtype: dtype of the entry.
        also: gates whose probes this one judges.
        contract: obligations, where the default has not got the gate.
    """

    gate: str
    subject: str
    old: str
    new: str
    dtype: str = "float32"
    also: tuple[str, ...] = ()
    contract: dict[str, Any] = field(default_factory=dict)

    @property
    def right(self) -> str:
        """Source of the right kernel."""
        return corpus.entry(self.subject, self.dtype).kernel

    @property
    def wrong(self) -> str:
        """Source of the wrong kernel. Raises ValueError when the text to change is not there."""
        if self.old not in self.right:
            raise ValueError(f"{self.subject} has no `{self.old}`")
        return self.right.replace(self.old, self.new)


_FORWARD = "        n_elements = out.numel()\n"
_PLAIN = "        return out\n"

CONTROLS: tuple[Control, ...] = (
    Control("values", "gelu", "0.7071067811865476", "0.7"),
    Control("gradients", "silu_trained", "gate * (1.0 + x * (1.0 - gate))", "gate"),
    Control("shapes", "layer_norm_affine", "triton.next_power_of_2(cols)", "128"),
    Control("reduction_order", "row_mean", "total += x", "total = tl.minimum(total + x, 40.0)"),
    Control("repeatability", "gelu", "BLOCK_SIZE=256)\n" + _PLAIN,
            "BLOCK_SIZE=256)\n        return out * (1.0 + 1e-6 * torch.rand_like(out))\n"),
    Control("order_sensitive", "mean_var", "tl.sum(centred * centred, axis=0) / n_cols",
            "tl.sum(x * x, axis=0) / n_cols - mean * mean"),
    Control("dtypes", "gelu", "torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float32)", dtype="bfloat16"),
    Control("accumulation", "matmul_tiled", 'input_precision="ieee")',
            'input_precision="ieee")\n        acc = acc.to(tl.float16).to(tl.float32)'),
    Control("nonfinite", "relu", "tl.where(x < 0.0, 0.0, x)", "tl.maximum(x, 0.0)"),
    Control("subnormals", "softsign", "x / (1.0 + tl.abs(x))", "x / (1.0 + tl.abs(x)) + 0.0 * (1.0 / x)"),
    Control("residency", "gelu", "BLOCK_SIZE=256)\n" + _PLAIN, "BLOCK_SIZE=256)\n        return out.double()\n",
            also=("values",)),
    Control("resources", "gelu", "n_elements, BLOCK_SIZE=256", "n_elements, BLOCK_SIZE=2097152"),
    Control("output_aliasing", "gelu", "out = torch.empty_like(x)",
            'out = self.__dict__.setdefault(f"kept{tuple(x.shape)}", torch.empty_like(x))'),
    Control("input_mutation", "gelu", "BLOCK_SIZE=256)\n" + _PLAIN,
            "BLOCK_SIZE=256)\n        x.zero_()\n        return out\n", also=("values",)),
    Control("statelessness", "gelu", _FORWARD,
            _FORWARD + "        if getattr(self, \"kept\", out).shape == out.shape and hasattr(self, \"kept\"):\n"
            "            return self.kept.clone()\n        self.kept = out\n"),
    Control("layouts", "gelu", "x = x.contiguous()", "x = x"),
    Control("bounds", "gelu", "tl.load(x_ptr + offsets, mask=mask, other=0.0)", "tl.load(x_ptr + offsets)"),
    Control("initialization", "atomic_row_sum", "torch.zeros(rows", "torch.empty(rows"),
    Control("schedules", "tuned_row_sum", 'reset_to_zero=["out_ptr"],', ""),
    Control("integrity", "gelu", "class ModelNew", "torch.allclose = lambda *a, **k: True\n\n\nclass ModelNew",
            also=("values",)),
    Control("provenance", "gelu", "BLOCK_SIZE=256)\n" + _PLAIN,
            "BLOCK_SIZE=256)\n        return nn.functional.gelu(x)\n", also=("values",)),
    Control("faults", "gelu", _FORWARD,
            _FORWARD + "        if x.shape[0] == 1:\n            import os\n\n            os._exit(0)\n",
            also=("shapes",)),
    Control("batch_invariance", "row_mean", "BLOCK_SIZE=128", "BLOCK_SIZE=128 if rows > 4 else 16",
            contract={"batch_invariance": True}),
)
"""One control for each gate that does not need a GPU."""


class Trust(StrEnum):
    """What a gate can be taken for on this machine."""

    WORKS = "works"
    """It passes what is right and rejects what is wrong."""
    REJECTS_RIGHT = "rejects right"
    """It rejects the right kernel."""
    PASSES_WRONG = "passes wrong"
    """It has no finding on the wrong kernel."""
    UNDECIDED = "undecided"
    """It could not decide on one of them."""
    ELSEWHERE = "needs a GPU"
    """It judges nothing in this scope."""


@dataclass(frozen=True)
class Checked:
    """One gate on this machine.

    Attributes:
        gate: slug of the gate.
        trust: what came out.
        note: why, where it does not work.
        seconds: of both verdicts.
    """

    gate: str
    trust: Trust
    note: str = ""
    seconds: float = 0.0


def selftest(*, quick: bool = False, gates: Iterable[str] | None = None, device: str = "cpu",
             workers: int | None = None, progress: Callable[[int, int], None] | None = None) -> Iterator[Checked]:
    """Try every gate, or some; yields them as they are decided.

    Args:
        quick: at the quick tier.
        gates: slugs; None for all.
        device: `cpu` (emulation), `cuda` or `auto`.
        workers: verdicts at a time; None for as many as the machine takes.
        progress: called with (verdicts made, verdicts in all).
    """
    wanted = set(gates) if gates is not None else set(GATES)
    controls = [c for c in CONTROLS if c.gate in wanted]
    covered = {c.gate for c in CONTROLS}
    yield from (Checked(g.slug, Trust.ELSEWHERE) for g in BATTERY if g.slug in wanted - covered)
    half: dict[str, dict[str, Done]] = {}
    with Pool(workers=workers, device=device) as pool:
        jobs = (job for c in controls for job in _jobs(c, quick, device))
        for done, result in enumerate(pool.run(jobs), 1):
            if progress is not None:
                progress(done, 2 * len(controls))
            gate, side = result.job.id.split("/")
            sides = half.setdefault(gate, {})
            sides[side] = result
            if len(sides) == 2:
                yield judged(gate, sides["right"], sides["wrong"])


def _jobs(control: Control, quick: bool, device: str) -> Iterator[Job]:
    entry = corpus.entry(control.subject, control.dtype)
    options = Options(device=device, tier=EffortTier.QUICK if quick else EffortTier.STANDARD, seed=SEED,
                      only=(control.gate, *control.also))
    for side, source in (("right", control.right), ("wrong", control.wrong)):
        yield Job(f"{control.gate}/{side}", entry.task, entry.candidate_from(source, f"{control.gate}-{side}"),
                  Contract.from_data(control.contract), options)


def judged(gate: str, right: Done, wrong: Done) -> Checked:
    """What the verdicts on both kernels say of a gate."""
    seconds = round(right.seconds + wrong.seconds, 2)
    for side, done in (("right", right), ("wrong", wrong)):
        if not isinstance(done.report, Report):
            return Checked(gate, Trust.UNDECIDED, f"{side} kernel: {done.problem}", seconds)
    first, second = (next(g for g in done.verdict.gates if g.slug == gate) for done in (right, wrong))
    if any(f.slug == gate for f in right.verdict.findings):
        return Checked(gate, Trust.REJECTS_RIGHT, f"right kernel: {_why(first.reason)}", seconds)
    if first.outcome is not Outcome.PASS:
        trust = Trust.ELSEWHERE if first.reason is Reason.NEEDS_GPU else Trust.UNDECIDED
        return Checked(gate, trust, f"right kernel: {first.outcome.value}, {_why(first.reason)}", seconds)
    if not any(f.slug == gate for f in wrong.verdict.findings):
        note = f"wrong kernel: {second.outcome.value}, {_why(second.reason)}"
        return Checked(gate, Trust.PASSES_WRONG, note, seconds)
    return Checked(gate, Trust.WORKS, _why(second.reason), seconds)


def _why(reason: Reason | None) -> str:
    from assay.report.words import REASONS

    return REASONS[reason] if reason is not None else ""
