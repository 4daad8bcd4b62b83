"""A reference is accepted as its own candidate, whatever its backward is made of."""

from __future__ import annotations

import pytest

from assay.contract import Contract
from assay.run.process import Zygote
from assay.task.model import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Outcome

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

B = 6
C = 4
S = 9


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {args}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

REFERENCES = {
    "max_pool": ("return F.max_pool2d(x, 2)", "x", "torch.randn(B, C, S, S)", "pass"),
    "relu_inplace": ("return F.relu_(x * 2)", "x", "torch.randn(B, C, S, S)", "pass"),
    "topk": ("return torch.topk(x, 3, dim=-1)", "x", "torch.randn(B, C, S, S)", "pass"),
    "view": ("return x.transpose(1, 2)", "x", "torch.randn(B, C, S, S)", "pass"),
    "group_norm": ("return self.m(x)", "x", "torch.randn(B, C, S, S)", "self.m = nn.GroupNorm(2, C)"),
    "batch_norm": ("return self.m(x)", "x", "torch.randn(B, C, S, S)", "self.m = nn.BatchNorm2d(C)"),
    "lstm": ("return self.m(x)[0]", "x", "torch.randn(B, S, C)", "self.m = nn.LSTM(C, 5, batch_first=True)"),
    "one_tensor_three_times": ("return self.m(x, x, x)[0]", "x",
        "torch.randn(B, S, C)", "self.m = nn.MultiheadAttention(C, 2, batch_first=True)"),
    "transposed_convolution": ("return self.m(x)", "x",
        "torch.randn(B, C, S, S)", "self.m = nn.ConvTranspose2d(C, 3, 3, stride=2)"),
    "root_at_zero": ("return torch.sqrt(F.relu(x))", "x", "torch.randn(B, C, S, S)", "pass"),
    "kl_divergence": ("return F.kl_div(x.log(), y, reduction='batchmean')", "x, y",
        "torch.rand(B, C).softmax(-1), torch.rand(B, C).softmax(-1)", "pass"),
    "tril": ("return torch.tril(a @ b)", "a, b",
        "torch.tril(torch.randn(S, S)), torch.tril(torch.randn(S, S))", "pass"),
    "spectral_norm": ("return self.m(x)", "x",
        "torch.randn(B, C)", "self.m = nn.utils.parametrizations.spectral_norm(nn.Linear(C, 5))"),
    "sign": ("return F.leaky_relu(x) * torch.sign(x)", "x", "torch.randn(B, C, S, S)", "pass"),
    "median": ("return x.median(-1).values", "x", "torch.randn(B, C, S, S)", "pass"),
    "gather": ("return torch.gather(x, 1, i)", "x, i", "torch.randn(B, S), torch.randint(0, S, (B, S))", "pass"),
}
"""Body of forward, its arguments, inputs, and what the constructor makes."""

BY_DEFAULT = ("lstm", "root_at_zero", "one_tensor_three_times", "batch_norm")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in BY_DEFAULT else pytest.mark.slow) for name in REFERENCES])
def test_a_reference_is_right_about_its_own_gradients(zygote: Zygote, name: str) -> None:
    body, args, inputs, init = REFERENCES[name]
    sources = [SOURCE.format(name=entry, body=body, args=args, inputs=inputs, init=init)
               for entry in ("Model", "ModelNew")]
    report = verify_task(parse_task(sources[0]), parse_candidate(sources[1]), zygote=zygote,
                         contract=Contract(gradients="training"),
                         options=Options(device="cpu", seed=5, only=("gradients",), tier=EffortTier.DEEP))
    assert report.findings == ()
    assert report.gates[0].outcome is Outcome.PASS
