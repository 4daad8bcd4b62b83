"""References that change their buffers: fresh instances for values, and the buffers that both have."""

from __future__ import annotations

import pytest

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\nBATCH = 8\n\n\n"
MODEL = '''class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(7)

    def forward(self, x):
        return {result}


'''
MAKERS = """def get_inputs():
    return [torch.randn(BATCH, 7) + 1]


def get_init_inputs():
    return []
"""
TASK = HEAD + MODEL.format(name="Model", result="self.norm(x)") + MAKERS
OWN_PARAMETERS = '''class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(7)), nn.Parameter(torch.zeros(7))

    def forward(self, x):
        fresh = (None, None) if self.training else (torch.zeros_like(self.bias), torch.ones_like(self.bias))
        return F.batch_norm(x, *fresh, self.weight, self.bias, self.training)
'''
STATISTICS = "self.norm.running_mean, self.norm.running_var"
IN_PLACE = f"F.batch_norm(x, {STATISTICS}, self.norm.weight, self.norm.bias, self.training, MOMENTUM)"
NEVER = f"F.batch_norm(x, *((None, None) if self.training else ({STATISTICS})), self.norm.weight, self.norm.bias, " \
        "self.training)"
BOTH = {"buffer norm.running_mean", "buffer norm.running_var"}
CANDIDATES = {
    "the reference": ("self.norm(x)", set()),
    "statistics kept without the counter": (IN_PLACE.replace("MOMENTUM", "0.1"), set()),
    "statistics with another momentum": (IN_PLACE.replace("MOMENTUM", "0.3"), BOTH),
    "statistics never kept": (NEVER, BOTH),
    "no buffers at all": (None, set()),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_buffers_are_compared_where_the_candidate_has_them(judged, name):
    result, wrong = CANDIDATES[name]
    source = OWN_PARAMETERS if result is None else MODEL.format(name="ModelNew", result=result)
    report = judged(TASK, HEAD + source, ("values", "residency", "input_mutation"), tier="quick")
    assert {found.output for found in report.findings} == wrong
    assert all(found.tier == "violation" for found in report.findings)
    assert report.label == ("rejected" if wrong else "contract")


COUNTER = '''class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return {result} * self.calls


'''
MEMORY = ("initialization", "bounds", "values")


@pytest.mark.parametrize(("result", "reasons"), [("x", set()), ("(x + torch.empty_like(x) * 0)", {"uninitialised"})])
def test_a_result_that_counts_its_calls_says_nothing_of_memory(judged, result, reasons):
    task = HEAD + COUNTER.format(name="Model", result="x") + MAKERS
    report = judged(task, HEAD + COUNTER.format(name="ModelNew", result=result), MEMORY, tier="quick")
    outcomes = {gate.slug: gate.outcome.value for gate in report.gates}
    assert outcomes["initialization"] == ("fail" if reasons else "pass")
    assert {found.reason.value for found in report.findings if found.slug == "initialization"} == reasons
