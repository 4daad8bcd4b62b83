"""CMP-01: right however a module is ordinarily called."""

from __future__ import annotations

import pytest

from assay.run.process import Zygote
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task

REFERENCE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(24, 10)
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        return torch.tanh(self.drop(self.fc(x)))

def get_inputs():
    return [torch.randn(8, 24)]

def get_init_inputs():
    return []
"""


def candidate(*lines: str) -> str:
    return REFERENCE.replace("Model", "ModelNew").replace(
        "return torch.tanh(self.drop(self.fc(x)))", "\n        ".join(lines))


RIGHT = "y = torch.tanh(self.fc(x))"


@pytest.mark.parametrize(
    ("lines", "contract", "probes"),
    [
        ((RIGHT, "return y"), {}, set()),
        ((RIGHT, "return y if torch.is_inference_mode_enabled() or not x.requires_grad else y * 2"), {}, {"grad"}),
        # the mode of the reference matters, as it has dropout: evaluation is a probe of its own
        ((RIGHT, "return y if self.training else y * 2"), {}, {"eval"}),
        ((RIGHT, "return y"), {"numerics": {"autocast": "bf16"}}, set()),
        ((RIGHT, "return y if not torch.is_autocast_enabled('cuda') else y * 2"),
         {"numerics": {"autocast": "bf16"}}, {"autocast"}),
        (("with torch.autocast('cuda', enabled=False):", "    " + RIGHT,
          "return y.to(torch.get_autocast_dtype('cuda')) if torch.is_autocast_enabled('cuda') else y"),
         {"numerics": {"autocast": "bf16"}}, set()),
    ],
)
def test_every_ordinary_way_of_calling_gives_the_same(judge, lines, contract, probes):
    seen = judge("values", REFERENCE, candidate(*lines), contract=contract)
    assert {f.probe.removeprefix("values/") for f in seen.findings} == probes


def test_a_reference_that_differs_by_itself_owes_nothing_there(judge):
    source = REFERENCE.replace("self.drop(self.fc(x))", "self.fc(x) * (2 if torch.is_inference_mode_enabled() else 1)")
    seen = judge("values", source, candidate(RIGHT, "return y"))
    assert (seen.outcome, seen.findings) == ("pass", [])


NORM = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6, affine=False)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(16, 6)]

def get_init_inputs():
    return []
"""
BATCH = "    m = x.mean(0)\n    return (x - m) / torch.sqrt(((x - m) ** 2).mean(0) + 1e-5)\n"


def test_a_function_has_no_mode_to_heed(zygote: Zygote) -> None:
    head = "import torch\nimport torch.nn as nn\n"
    task = parse_task(head + NORM)
    function = parse_candidate(head + "def ModelNew(x):\n" + BATCH)
    module = parse_candidate(head + "class ModelNew(nn.Module):\n    def forward(self, x):\n"
                             + BATCH.replace("    ", "        "))
    reports = [verify_task(task, found, options=Options(device="cpu", seed=4, only=("values",)), zygote=zygote)
               for found in (function, module)]
    assert {f.probe for f in reports[0].findings} == set()
    assert {f.probe for f in reports[1].findings} == {"values/eval"}
