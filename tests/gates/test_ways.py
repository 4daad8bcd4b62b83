"""CMP-01: right however a module is ordinarily called."""

from __future__ import annotations

import pytest

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
