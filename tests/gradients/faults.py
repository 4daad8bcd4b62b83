"""Right kernels with custom backward passes, and what makes each wrong: one change of its text per fault."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from assay.task import Candidate, Task
from assay.task.model import parse_candidate, parse_task
from assay.vocabulary import Reason

HERE = Path(__file__).parent
DTYPES = ("float32", "bfloat16")

NOISE = "(1 + 3e-7 * torch.rand_like({0}.float()).round()).to({0}.dtype)"
PACKED = "torch.as_strided(g, g.shape, torch.empty(g.shape).stride())"
"""What a kernel reads that takes grad_output for contiguous: as if it lay densely."""


@dataclass(frozen=True)
class Fault:
    """One change of a right candidate that makes its gradients wrong.

    Attributes:
        operator: folder of the kernel.
        name: what is wrong.
        reason: the reason that has to be among the findings.
        old: text of the right candidate, found exactly once.
        new: what is there instead.
    """

    operator: str
    name: str
    reason: Reason
    old: str
    new: str

    @property
    def id(self) -> str:
        """Name in a list of tests."""
        return f"{self.operator}-{self.name}"


def _faults() -> list[Fault]:
    r = Reason
    table: dict[str, list[tuple[str, Reason, str, str]]] = {
        "linear": [
            ("no-bias-gradient", r.GRADIENT_MISSING, "return dx, dw, db", "return dx, dw, None"),
            ("mean-for-sum", r.GRADIENT_VALUE, "g.float().sum(0)", "g.float().mean(0)"),
            ("transposed-weight", r.GRADIENT_SHAPE, "return dx, dw, db", "return dx, dw.t(), db"),
            ("assumes-contiguous", r.GRADIENT_LAYOUT, "weight, g.stride())", "weight, (g.shape[1], 1))"),
            ("overwrites-grad", r.GRADIENT_NOT_ACCUMULATED, "return dx, dw, db",
             "weight.grad = dw\n        return dx, None, db"),
        ],
        "conv2d": [
            ("flipped-kernel", r.GRADIENT_VALUE, "x.shape, weight.float()", "x.shape, weight.float().flip(-1, -2)"),
            ("batch-mean", r.GRADIENT_BATCH_COUPLED, "return dx, dw, db",
             "return dx + 0.1 * dx.mean(0, keepdim=True), dw, db"),
            ("half-weights", r.GRADIENT_DTYPE, ".reshape(weight.shape).to(x.dtype)",
             ".reshape(weight.shape).half().to(x.dtype)"),
            ("scales-saved", r.SAVED_TENSOR_CHANGED, "return dx, dw, db",
             "x.data.mul_(0.5)\n        return dx, dw, db"),
        ],
        "softmax": [
            ("no-inner-product", r.GRADIENT_VALUE, "(up - inner)", "up"),
            ("writes-into-saved", r.SAVED_TENSOR_CHANGED, "dx = torch.empty_like(y)", "dx = y"),
            ("assumes-contiguous", r.GRADIENT_LAYOUT, "g = g.contiguous()\n        dx", "dx"),
            ("detached", r.SEVERED, "Softmax.apply(x)", "Softmax.apply(x.detach())"),
        ],
        "layer_norm": [
            ("no-mean-term", r.GRADIENT_VALUE, "up - level - hat", "up - hat"),
            ("batch-mean", r.GRADIENT_BATCH_COUPLED, "return dx, dw, db",
             "return dx - 0.1 * dx.mean(0, keepdim=True), dw, db"),
            ("no-bias-gradient", r.GRADIENT_MISSING, "return dx, dw, db", "return dx, dw, None"),
            ("jitter", r.GRADIENT_NOT_REPEATABLE, "return dx, dw, db",
             f"return dx * {NOISE.format('dx')}, dw, db"),
            ("half-weights", r.GRADIENT_DTYPE, "return dx, dw, db", "return dx, dw.half().to(x.dtype), db"),
        ],
        "rms_norm": [
            ("no-projection", r.GRADIENT_VALUE, "(up - hat * along)", "up"),
            ("row-of-weights", r.GRADIENT_SHAPE, "dw = part.sum(0)", "dw = part.sum(1)"),
            ("input-overwritten", r.SAVED_TENSOR_CHANGED, "        return y\n",
             "        x.data.copy_(y)\n        return y\n"),
            ("no-weight-gradient", r.GRADIENT_MISSING, "return dx, dw", "return dx, None"),
        ],
        "cross_entropy": [
            ("sum-for-mean", r.GRADIENT_VALUE, "(powers / total - hit) / rows", "powers / total - hit"),
            ("ignores-grad-output", r.GRADIENT_VALUE, "(slope * g.float())", "slope"),
            ("scales-in-place", r.SAVED_TENSOR_CHANGED, "(slope * g.float())", "slope.mul_(g.float())"),
            ("detached", r.SEVERED, "CrossEntropy.apply(logits,", "CrossEntropy.apply(logits.detach(),"),
        ],
        "attention": [
            ("no-key-gradient", r.GRADIENT_MISSING, "dk.to(k.dtype),", "None,"),
            ("no-scale", r.GRADIENT_VALUE, "keepdim=True)) * ctx.scale", "keepdim=True))"),
            ("batch-mean", r.GRADIENT_BATCH_COUPLED, "dk = ds.mT @ q.float()",
             "dk = ds.mT @ q.float()\n        dk = dk + 0.1 * dk.mean(0, keepdim=True)"),
            ("jitter", r.GRADIENT_NOT_REPEATABLE, "return dq.to(q.dtype)",
             f"return (dq * {NOISE.format('dq')}).to(q.dtype)"),
        ],
        "rope": [
            ("same-sign", r.GRADIENT_VALUE, "sin, -1.0)", "sin, 1.0)"),
            ("assumes-contiguous", r.GRADIENT_LAYOUT, "g = g.contiguous()", f"g = {PACKED}"),
            ("detached", r.SEVERED, "Rope.apply(x, ", "Rope.apply(x.detach(), "),
            ("writes-into-grad-output", r.SAVED_TENSOR_CHANGED, "        return dx, None, None",
             "        g.copy_(dx)\n        return dx, None, None"),
        ],
        "gelu": [
            ("no-density", r.GRADIENT_VALUE, "(half + value * density)", "half"),
            ("half", r.GRADIENT_DTYPE, "return dx\n", "return dx.half().to(x.dtype)\n"),
            ("assumes-contiguous", r.GRADIENT_LAYOUT, "g = g.contiguous()\n        dx", "dx"),
            ("drops-nan", r.NAN_SWALLOWED, "g = g.contiguous()\n        dx", "g = torch.nan_to_num(g)\n        dx"),
        ],
        "embedding": [
            ("last-of-repeated", r.GRADIENT_VALUE, "total.index_add_(0, ", "total.index_copy_(0, "),
            ("overwrites-grad", r.GRADIENT_NOT_ACCUMULATED, "return None, dw",
             "weight.grad = dw\n        return None, None"),
            ("detached", r.SEVERED, "self.table.weight)", "self.table.weight.detach())"),
            ("assumes-contiguous", r.GRADIENT_LAYOUT, "flat = g.reshape", f"flat = {PACKED}.reshape"),
        ],
        "cumsum": [
            ("not-reversed", r.GRADIENT_VALUE, "scan(g, True)", "scan(g, False)"),
            ("exclusive", r.GRADIENT_VALUE, "scan(g, True)", "scan(g, True) - g"),
            ("assumes-contiguous", r.GRADIENT_LAYOUT, "g = g.contiguous()", f"g = {PACKED}"),
            ("batch-scan", r.GRADIENT_BATCH_COUPLED, "return dx\n", "return dx + 0.1 * dx.flip(0)\n"),
        ],
        "gated_recurrence": [
            ("no-decay", r.GRADIENT_VALUE, "carry = carry * keep[:, t]", "carry = carry.clone()"),
            ("no-gate-gradient", r.GRADIENT_MISSING, "dgate.to(ctx.dtype)", "None"),
            ("states-overwritten", r.SAVED_TENSOR_CHANGED, "return dx.to(ctx.dtype),",
             "states.mul_(keep)\n        return dx.to(ctx.dtype),"),
            ("carry-mean", r.GRADIENT_BATCH_COUPLED, "dx[:, t] = carry",
             "dx[:, t] = carry + 0.1 * carry.mean(0, keepdim=True)"),
        ],
    }
    return [Fault(operator, *row) for operator, rows in table.items() for row in rows]


FAULTS = tuple(_faults())
OPERATORS = tuple(dict.fromkeys(fault.operator for fault in FAULTS))


def task_of(operator: str, dtype: str = "float32") -> Task:
    """The task of an operator at a dtype."""
    return parse_task(_at(HERE / operator / "reference.py", dtype))


def right(operator: str, dtype: str = "float32") -> Candidate:
    """The right candidate, whose backward is its own."""
    return parse_candidate(_at(HERE / operator / "right.py", dtype))


def identity(operator: str, dtype: str = "float32") -> Candidate:
    """The reference itself as a candidate."""
    source = _at(HERE / operator / "reference.py", dtype)
    return parse_candidate(source.replace("class Model(", "class ModelNew("))


def wrong(fault: Fault) -> Candidate:
    """The right candidate with one change."""
    source = (HERE / fault.operator / "right.py").read_text(encoding="utf-8")
    if source.count(fault.old) != 1:
        raise ValueError(f"{fault.id}: {source.count(fault.old)} places to change")
    return parse_candidate(source.replace(fault.old, fault.new))


def _at(path: Path, dtype: str) -> str:
    return path.read_text(encoding="utf-8").replace("DTYPE = torch.float32", f"DTYPE = torch.{dtype}")
