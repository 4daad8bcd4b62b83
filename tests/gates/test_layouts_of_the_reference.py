"""Where the reference itself is less accurate on a strided input, the layout decides nothing there."""

from __future__ import annotations

from assay.run.process import Zygote
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import Label

TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features).half()
        nn.init.uniform_(self.norm.running_mean, -1.0, 1.0)
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)
        self.eval()

    def forward(self, x):
        return self.norm(x)

FEATURES = 70

def get_inputs():
    return [torch.randn(12, FEATURES).half()]

def get_init_inputs():
    return [FEATURES]
"""
SAME = TASK.replace("class Model(", "class ModelNew(").split("FEATURES = 70")[0]
# takes the memory of its input for rows that lie one after another
DENSE = SAME.replace("return self.norm(x)",
                     "return self.norm(torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset()))")
OPTIONS = Options(device="cpu", seed=5, only=("layouts",))


def test_the_reference_passes_as_its_own_candidate_whatever_the_layout(zygote: Zygote) -> None:
    report = verify_task(parse_task(TASK), parse_candidate(SAME), options=OPTIONS, zygote=zygote)
    assert report.label is Label.CONTRACT, report.findings


def test_strides_ignored_are_found_all_the_same(zygote: Zygote) -> None:
    report = verify_task(parse_task(TASK), parse_candidate(DENSE), options=OPTIONS, zygote=zygote)
    assert report.label is Label.REJECTED
