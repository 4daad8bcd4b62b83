"""What the gradient gate owes to whom: contracts, modes, ways of asking, and what goes beyond one backward."""

from __future__ import annotations

import pytest

from assay.contract import Contract
from assay.probe.backward import Step, condition, steps_of
from assay.report.model import Report
from assay.run.process import Zygote
from assay.task.model import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Outcome, Reason

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 12
COLS = 30
"""

MODEL = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
{init}
    def forward(self, {args}):
{body}
"""

TAIL = """
def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

RANDOM = "torch.randn(ROWS, COLS)"


def source(name: str, args: str, body: str, init: str = "pass", top: str = "") -> str:
    def indented(text: str) -> str:
        return "\n".join(" " * 8 + line for line in text.splitlines()) + "\n"

    return HEAD + top + MODEL.format(name=name, args=args, init=indented(init), body=indented(body))


def judged(zygote: Zygote, reference: str, candidate: str, args: str = "x", inputs: str | None = None, *,
           gradients: str = "auto", tier: EffortTier = EffortTier.STANDARD, init: str = "pass",
           own_init: str | None = None, top: str = "", determinism: str = "bitwise",
           autocast: str = "none") -> Report:
    """Verdict of the gradient gate on two forward bodies."""
    tensors = inputs or ", ".join(RANDOM for _ in args.split(","))
    task = parse_task(source("Model", args, reference, init) + TAIL.format(inputs=tensors))
    other = parse_candidate(source("ModelNew", args, candidate, init if own_init is None else own_init, top))
    contract = Contract.from_data({"gradients": gradients, "determinism": determinism,
                                   "numerics": {"autocast": autocast}})
    return verify_task(task, other, contract=contract, zygote=zygote,
                       options=Options(device="cpu", seed=9, only=("gradients",), tier=tier))


def reasons(report: Report) -> set[Reason]:
    return {finding.reason for finding in report.findings}


def outcome(report: Report) -> tuple[Outcome, Reason | None]:
    return report.gates[0].outcome, report.gates[0].reason


def test_steps_survive_their_text() -> None:
    steps = (Step(("plain", "again", "strided")), Step(ask=("input:0", "parameter:a.b")), Step((), inference=True))
    assert steps_of(("cotangent:normal", condition(steps))) == steps
    assert steps_of(()) == (Step(),)


def test_a_pass_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="sideways"):
        steps_of(("backward:plain+sideways",))


def test_a_forward_only_candidate_owes_nothing_under_auto_and_everything_under_training(zygote: Zygote) -> None:
    body = "return torch.sigmoid(x)"
    alone = "with torch.no_grad():\n    return torch.sigmoid(x)"
    assert outcome(judged(zygote, body, alone)) == (Outcome.NOT_APPLICABLE, Reason.FORWARD_ONLY)
    assert reasons(judged(zygote, body, alone, gradients="training")) == {Reason.SEVERED}


@pytest.mark.parametrize(("mode", "wanted"), [("enable_grad()", {Reason.GRADIENT_UNASKED}),
                                              ("set_grad_enabled(torch.is_grad_enabled())", set())])
def test_an_output_holds_on_to_no_graph_while_gradients_are_off(zygote: Zygote, mode: str, wanted: set[Reason]) -> None:
    body = "return torch.tanh(self.fc(x)), self.fc.bias"
    init = "self.fc = nn.Linear(COLS, 4)"
    task = parse_task(source("Model", "x", body, init) + TAIL.format(inputs=RANDOM))
    own = parse_candidate(source("ModelNew", "x", f"with torch.{mode}:\n    {body}", init))
    report = verify_task(task, own, zygote=zygote, contract=Contract(gradients="training"),
                         options=Options(device="cpu", seed=9, only=("values", "gradients"), tier=EffortTier.QUICK))
    assert reasons(report) == wanted


def test_one_of_two_outputs_without_a_gradient_is_severed(zygote: Zygote) -> None:
    report = judged(zygote, "return x.exp(), x * 2", "return x.exp(), (x * 2).detach()", tier=EffortTier.QUICK)
    assert reasons(report) == {Reason.SEVERED}
    assert report.findings[0].output == "1"


@pytest.mark.slow
def test_an_output_that_the_reference_detaches_owes_none(zygote: Zygote) -> None:
    body = "return x.exp(), (x * 2).detach(), x.argmax(-1)"
    assert outcome(judged(zygote, body, body, tier=EffortTier.QUICK)) == (Outcome.PASS, None)


LOOKED_UP = """
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b.exp()

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        found = {{}}
        found[{key}] = g * b.exp()
        found[{other}] = g * a * b.exp()
        return found[{key}], found[{other}]
"""


def test_gradients_kept_by_address_are_lost_when_an_input_is_used_twice(zygote: Zygote) -> None:
    def verdict(key: str, other: str) -> Report:
        top = LOOKED_UP.format(key=key, other=other).replace("{{}}", "{}")
        return judged(zygote, "return a * b.exp()", "return Product.apply(a, b)", "a, b", top=top)

    assert reasons(verdict("a.data_ptr()", "b.data_ptr()")) == {Reason.GRADIENT_NOT_ACCUMULATED}
    assert outcome(verdict("'a'", "'b'")) == (Outcome.PASS, None)


PARTIAL = """
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        da = g * b if ctx.needs_input_grad[0] else None
        db = g * a if ctx.needs_input_grad[INDEX] else None
        return da, db
"""


@pytest.mark.slow
def test_each_gradient_arrives_when_it_alone_is_asked_for(zygote: Zygote) -> None:
    def verdict(index: str) -> Report:
        return judged(zygote, "return a * b", "return Product.apply(a, b)", "a, b", top=PARTIAL.replace("INDEX", index))

    assert reasons(verdict("0")) == {Reason.GRADIENT_MISSING}
    assert outcome(verdict("1")) == (Outcome.PASS, None)


def test_a_forward_that_needs_autograd_fails_in_inference_mode(zygote: Zygote) -> None:
    body = ("with torch.enable_grad():\n    y = x.detach().requires_grad_()\n"
            "    torch.autograd.grad(y.sin().sum(), y)\nreturn x.sin()")
    top = "class Marker(torch.autograd.Function):\n    pass\n"
    assert reasons(judged(zygote, "return x.sin()", body, top=top)) == {Reason.GRADIENT_RAISED}


JITTERED = """
class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() * (1 + 1e-7 * torch.rand_like(x).round())
"""


@pytest.mark.slow
def test_a_restless_backward_within_tolerance_is_allowed_where_the_contract_says_bounded(zygote: Zygote) -> None:
    body = "return Sine.apply(x)"
    assert reasons(judged(zygote, "return x.sin()", body, top=JITTERED)) == {Reason.GRADIENT_NOT_REPEATABLE}
    bounded = judged(zygote, "return x.sin()", body, top=JITTERED, determinism="bounded")
    assert outcome(bounded) == (Outcome.PASS, None)


BATCH_NORM = "self.norm = nn.BatchNorm1d(COLS)\nself.head = nn.Linear(COLS, 3)"


@pytest.mark.slow
def test_batch_statistics_train_step_by_step_as_the_reference_does(zygote: Zygote) -> None:
    body = "return torch.tanh(self.head(self.norm(x)))"
    report = judged(zygote, body, body, init=BATCH_NORM, tier=EffortTier.DEEP)
    assert outcome(report) == (Outcome.PASS, None)
    slow = BATCH_NORM.replace("COLS)", "COLS, momentum=0.01)", 1)
    report = judged(zygote, body, body, init=BATCH_NORM, own_init=slow, tier=EffortTier.DEEP)
    assert {f.output for f in report.findings} >= {"buffer norm.running_mean after training"}


def test_a_wrong_evaluation_mode_shows_in_the_gradient(zygote: Zygote) -> None:
    body = "return torch.tanh(self.head(self.norm(x)))"
    always = ("n = self.norm\nreturn torch.tanh(self.head(F.batch_norm(x, n.running_mean, n.running_var, n.weight,"
              " n.bias, True, n.momentum, n.eps)))")
    report = judged(zygote, body, always, init=BATCH_NORM)
    assert {f.probe for f in report.findings} == {"gradients/eval"}


CUBE = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    MARK
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x.SAVED
"""


@pytest.mark.parametrize(("mark", "saved", "wanted"), [
    pytest.param("", "clone()", None, marks=pytest.mark.slow),
    ("@torch.autograd.function.once_differentiable", "clone()", None),
    ("", "detach()", Reason.GRADIENT_VALUE),
])
def test_a_second_derivative_is_right_or_refused(zygote: Zygote, mark: str, saved: str, wanted: Reason | None) -> None:
    top = CUBE.replace("    MARK\n", f"    {mark}\n" if mark else "").replace("SAVED", saved)
    report = judged(zygote, "return x ** 3", "return Square.apply(x)", top=top, gradients="training",
                    tier=EffortTier.DEEP)
    assert reasons(report) == ({wanted} if wanted else set())


ON_THE_CLASS = """
class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        Sine.saved = x
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        x = FOUND
        return g * x.cos()
"""


@pytest.mark.parametrize(("found", "wanted"), [
    ("Sine.saved", {Reason.SAVED_TENSOR_CHANGED}),
    ("ctx.saved_tensors[0]", set()),
])
def test_what_is_saved_belongs_to_one_graph(zygote: Zygote, found: str, wanted: set[Reason]) -> None:
    report = judged(zygote, "return x.sin()", "return Sine.apply(x)", top=ON_THE_CLASS.replace("FOUND", found))
    assert reasons(report) == wanted


ROWS_SOFTMAX = """
class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, dim=-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        g, y = SEEN
        return y * (g - (g * y).sum(dim=-1, keepdim=True))
"""


@pytest.mark.parametrize(("seen", "wanted"), [
    ("g, y", set()),
    ("g, torch.nan_to_num(y)", {Reason.NAN_SWALLOWED}),
    pytest.param("g + 0 * y.sum(), y", {Reason.GRADIENT_BATCH_COUPLED}, marks=pytest.mark.slow),
])
def test_a_nan_in_an_input_arrives_in_the_gradients_of_its_row(zygote: Zygote, seen: str, wanted: set[Reason]) -> None:
    report = judged(zygote, "return torch.softmax(x, dim=-1)", "return Softmax.apply(x)",
                    top=ROWS_SOFTMAX.replace("SEEN", seen))
    assert reasons(report) == wanted
    assert {f.probe for f in report.findings} <= {"gradients/nan_input", "gradients/inf_input"}


MIXED = """
class Linear(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return F.linear(x, w, b)

    @staticmethod
    DECORATOR
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.mT @ x, SUM
"""
BACKWARD = '@torch.amp.custom_bwd(device_type="cuda")'


@pytest.mark.parametrize(("decorator", "total", "dtype", "wanted"), [
    (BACKWARD, "g.sum(0)", "bf16", set()),
    pytest.param(BACKWARD, "g.sum(0)", "fp16", set(), marks=pytest.mark.slow),
    # grad_output is bfloat16 and the saved weight is not
    ("", "g.sum(0)", "bf16", {Reason.GRADIENT_RAISED}),
    (BACKWARD, "g.sum(0) if g.dtype == w.dtype else g.mean(0)", "bf16", {Reason.GRADIENT_VALUE}),
    pytest.param("", "g.sum(0)", "none", set(), marks=pytest.mark.slow),
])
def test_gradients_are_right_under_autocast_where_the_contract_says_so(
        zygote: Zygote, decorator: str, total: str, dtype: str, wanted: set[Reason]) -> None:
    top = MIXED.replace("    DECORATOR\n", f"    {decorator}\n" if decorator else "").replace("SUM", total)
    report = judged(zygote, "return torch.tanh(self.fc(x))",
                    "return torch.tanh(Linear.apply(x, self.fc.weight, self.fc.bias))",
                    init="self.fc = nn.Linear(COLS, 9)", top=top, autocast=dtype)
    assert reasons(report) == wanted
    assert {f.probe for f in report.findings} <= {"gradients/autocast"}
    assert report.gates[0].undecided == {}


def test_a_task_that_is_under_autocast_itself_decides_its_gradients(zygote: Zygote) -> None:
    body = ("with torch.autocast('cuda', dtype=torch.bfloat16):\n    y = self.fc(F.gelu(self.first(x)))\n"
            "return torch.tanh(y.float())")
    init = "self.first = nn.Linear(COLS, 20)\nself.fc = nn.Linear(20, 9)"
    report = judged(zygote, body, body, init=init)
    assert outcome(report) == (Outcome.PASS, None)
    assert report.gates[0].undecided == {}
    half = body.replace("self.fc(F", "self.fc(0.5 * F").replace("y.float()", "y.float() / 0.5")
    assert reasons(judged(zygote, body, half, init=init)) == {Reason.GRADIENT_VALUE}


DROPPED = """
class Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, training):
        keep = (torch.rand_like(x) >= p) / (1 - p) if training else torch.ones_like(x)
        ctx.save_for_backward(keep)
        ctx.p = p
        return x * keep

    @staticmethod
    def backward(ctx, g):
        (keep,) = ctx.saved_tensors
        return g * KEEP, None, None
"""


def test_a_random_reference_owes_the_gradient_that_it_has_in_evaluation_mode(zygote: Zygote) -> None:
    def verdict(keep: str) -> Report:
        return judged(zygote, "return torch.tanh(F.dropout(x, 0.5, self.training))",
                      "return torch.tanh(Dropped.apply(x, 0.5, self.training))", top=DROPPED.replace("KEEP", keep))

    assert outcome(verdict("keep")) == (Outcome.PASS, None)
    always = verdict("(keep / (1 - ctx.p) if bool((keep == 1).all()) else keep)")
    assert reasons(always) == {Reason.GRADIENT_VALUE}
    assert {f.probe for f in always.findings} == {"gradients/eval"}


@pytest.mark.slow
def test_a_reference_that_is_random_in_every_mode_owes_no_gradient(zygote: Zygote) -> None:
    body = "return torch.tanh(F.dropout(x, 0.5, True))"
    assert outcome(judged(zygote, body, body)) == (Outcome.NOT_APPLICABLE, Reason.REFERENCE_RANDOM)


def test_a_layout_that_the_reference_itself_gets_wrong_decides_nothing(zygote: Zygote) -> None:
    # on a CPU torch mistakes a transposed grad_output here
    body = "y = F.instance_norm(x[:, None, None])[:, 0, 0]\nreturn y"
    assert outcome(judged(zygote, body, body, inputs="torch.randn(6, 64)")) == (Outcome.PASS, None)
