"""References that change their buffers: values on fresh instances, and the buffers that a candidate has too."""

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
TASK = (HEAD + MODEL.format(name="Model", result="self.norm(x)")
        + "def get_inputs():\n    return [torch.randn(BATCH, 7) + 1]\n\n\ndef get_init_inputs():\n    return []\n")
OWN_PARAMETERS = '''class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(7)), nn.Parameter(torch.zeros(7))

    def forward(self, x):
        return F.batch_norm(x, None, None, self.weight, self.bias, True)
'''
IN_PLACE = "F.batch_norm(x, self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias, True, {})"
CANDIDATES = {
    "the reference": (MODEL.format(name="ModelNew", result="self.norm(x)"), set()),
    "statistics kept without the counter": (MODEL.format(name="ModelNew", result=IN_PLACE.format(0.1)), set()),
    "statistics with another momentum": (MODEL.format(name="ModelNew", result=IN_PLACE.format(0.3)),
                                         {"buffer norm.running_mean", "buffer norm.running_var"}),
    "statistics never kept": (MODEL.format(
        name="ModelNew", result="F.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)"),
        {"buffer norm.running_mean", "buffer norm.running_var"}),
    "no buffers at all": (OWN_PARAMETERS, set()),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_buffers_are_compared_where_the_candidate_has_them(judged, name):
    source, wrong = CANDIDATES[name]
    report = judged(TASK, HEAD + source, ("values", "residency", "input_mutation"), tier="quick")
    assert {found.output for found in report.findings} == wrong
    assert all(found.tier == "violation" for found in report.findings)
    assert report.label == ("rejected" if wrong else "contract")
