"""values, shapes, layouts and residency: a right kernel, its wrong twins, and a wrong one."""

from __future__ import annotations

import pytest

from assay.report.model import Report
from assay.run.process import Zygote
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier

HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n\n"
TASK = HEAD + '''ROWS = 6
COLS = 96


class Model(nn.Module):
    def forward(self, x):
        return x.square().sum(dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
'''
RIGHT = HEAD + '''@triton.jit
def rows(x, y, n, row_stride, column_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * row_stride + at * column_stride, mask=at < n, other=0.0)
        total += tl.sum(v * v, axis=0)
    tl.store(y + row, total)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        if y.numel():
            rows[(x.shape[0],)](x, y, x.shape[1], x.stride(0), x.stride(1), BLOCK=64)
        return y
'''
REFUSES = "        assert x.shape[1] % 2 == 0\n        y = torch.empty("
TWINS = {
    "right": (RIGHT, {}),
    "one block of columns": (RIGHT.replace("range(0, n, B", "range(0, min(n, 128), B"), {"shapes": "value"}),
    "an odd width refused": (RIGHT.replace("        y = torch.empty(", REFUSES), {"shapes": "size_rejected"}),
    "rows end to end": (RIGHT.replace("x.stride(0), x.stride(1)", "x.shape[1], 1"), {"layouts": "value"}),
    "a kept dimension": (RIGHT.replace("return y", "return y[:, None]"), {"residency": "shape"}),
    "half precision": (RIGHT.replace("return y", "return y.half()"), {"residency": "dtype"}),
    "a tuple": (RIGHT.replace("return y", "return (y,)"), {"residency": "structure"}),
    "strided": (RIGHT.replace("return y", "return torch.stack([y, y], 1)[:, 0]"), {"residency": "strides"}),
}
GATES = ("values", "shapes", "nonfinite", "residency", "layouts")


@pytest.fixture
def judged(zygote: Zygote):
    def judge(candidate: str) -> Report:
        options = Options(device="cpu", tier=EffortTier.STANDARD, only=GATES, seed=4, lanes=1)
        return verify_task(parse_task(TASK), parse_candidate(candidate), options=options, zygote=zygote)

    return judge


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_is_told_by_its_own_gate(judged, name):
    source, expected = TWINS[name]
    report = judged(source)
    told = {found.slug: found.reason.value for found in reversed(report.findings)}
    # half precision is also less exact: its values are another finding
    assert {slug: told.get(slug) for slug in expected} == expected
    if name != "half precision":
        assert set(told) == set(expected)


def test_a_kernel_that_is_wrong_everywhere_accuses_no_size_layout_or_nan(judged):
    report = judged(RIGHT.replace("v * v", "v"))
    outcomes = {gate.slug: gate.outcome.value for gate in report.gates}
    assert outcomes == {"values": "fail", "shapes": "inconclusive", "nonfinite": "inconclusive",
                        "residency": "pass", "layouts": "inconclusive"}


NUMBERS = """
import torch
import torch.nn as nn

ROWS = 6


class Model(nn.Module):
    def forward(self, x):
        return x * 2, x.sum().item(), {"rows": x.shape[0], "mean": float(x.mean())}


def get_inputs():
    return [torch.randn(ROWS, 37)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("old", "new", "expected"), [
    ("x.sum().item()", "x.sum(0).sum().item()", {}),
    ("float(x.mean())", "1.001 * float(x.mean())", {"2.mean": "value"}),
    ("x.shape[0]", "x.shape[0] + 1", {"2.rows": "structure"}),
])
def test_plain_numbers_are_held_to_their_own_tolerance(zygote: Zygote, old, new, expected):
    candidate = NUMBERS.replace("class Model", "class ModelNew").replace(old, new)
    options = Options(device="cpu", tier=EffortTier.QUICK, only=("values", "residency"), seed=4, lanes=1)
    report = verify_task(parse_task(NUMBERS), parse_candidate(candidate), options=options, zygote=zygote)
    assert {f.output: f.reason.value for f in report.findings} == expected
