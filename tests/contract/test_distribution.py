"""Random references: a right candidate is not accused, a wrong distribution is."""

from __future__ import annotations

import pytest
import torch

from assay.gates.distribution import Pair, two_sample


def pairs(candidate, draws: int = 64, shape: tuple[int, ...] = (6, 40), slack: float = 0.0):
    generator = torch.Generator().manual_seed(5)

    def noise() -> torch.Tensor:
        return torch.rand(shape, generator=generator)

    made = []
    for i in range(draws):
        x = torch.randn(shape, generator=generator)
        made.append(Pair(torch.where(noise() < 0.7, x / 0.7, 0.0), candidate(x, noise, i), slack))
    return made


def dropout(x, noise, i, keep=0.7, scale=0.7):
    return torch.where(noise() < keep, x / scale, 0.0)


FIXED = torch.rand(6, 40, generator=torch.Generator().manual_seed(1))
WRONG = {
    "without scaling": lambda x, noise, i: dropout(x, noise, i, scale=1.0),
    "another rate": lambda x, noise, i: dropout(x, noise, i, keep=0.5, scale=0.5),
    "the identity": lambda x, noise, i: x,
    "one mask for every draw": lambda x, noise, i: torch.where(FIXED < 0.7, x / 0.7, 0.0),
    "one mask for every row": lambda x, noise, i: torch.where(noise()[:1] < 0.7, x / 0.7, 0.0),
    "one mask for every column": lambda x, noise, i: torch.where(noise()[:, :1] < 0.7, x / 0.7, 0.0),
    "zeros": lambda x, noise, i: torch.zeros_like(x),
}


def test_another_right_generator_is_not_accused():
    assert two_sample(pairs(dropout)) is None


def test_the_same_random_numbers_are_not_accused():
    same = [Pair(p.reference, p.reference.clone(), 0.0) for p in pairs(dropout)]
    assert two_sample(same) is None


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_distribution_is_told(name):
    shift = two_sample(pairs(WRONG[name]))
    assert shift is not None
    assert shift.probability < 1e-6


def test_rounding_of_what_is_not_random_is_no_shift():
    made = [Pair(p.reference, p.reference * (1 + 2e-7), 1e-6) for p in pairs(dropout)]
    assert two_sample(made) is None


def test_the_error_probability_holds():
    accused = 0
    generator = torch.Generator().manual_seed(11)
    for _ in range(300):
        made = [Pair(torch.randn(4, 8, generator=generator), torch.randn(4, 8, generator=generator), 0.0)
                for _ in range(32)]
        accused += two_sample(made, error_probability=0.05) is not None
    assert accused <= 25


DROPOUT = """
import torch
import torch.nn as nn

B = 6


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.4)

    def forward(self, x):
        return self.drop(x)


def get_inputs():
    return [torch.randn(B, 50)]


def get_init_inputs():
    return []
"""
OWN = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if not self.training:
            return x
        keep = torch.rand(x.shape, device=x.device) >= RATE
        return torch.where(keep, x / SCALE, torch.zeros_like(x))
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _dropout(x, y, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, tl.where(tl.rand(seed, at) >= RATE, v / SCALE, 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        if not self.training:
            return x
        x = x.contiguous()
        y = torch.empty_like(x)
        seed = int(torch.randint(0, 2**31 - 1, (1,)))
        _dropout[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), seed, BLOCK=128)
        return y
"""


@pytest.mark.parametrize(("own", "rate", "scale", "outcome"), [
    (OWN, "0.4", "0.6", "pass"), (OWN, "0.4", "1.0", "fail"), (OWN, "0.5", "0.5", "fail"),
    (KERNEL, "0.4", "0.6", "pass"), (KERNEL, "0.5", "0.6", "fail"),
])
def test_a_dropout_of_its_own_is_judged_by_its_distribution(judged, own, rate, scale, outcome):
    only = ("values", "shapes", "nonfinite", "residency")
    report = judged(DROPOUT, own.replace("RATE", rate).replace("SCALE", scale), only, tier="quick")
    seen = {g.slug: g for g in report.gates}
    assert seen["values"].outcome == outcome, report.findings
    assert "error probability 1e-06" in seen["values"].note
    assert seen["nonfinite"].outcome == "not_applicable"
    assert seen["residency"].outcome == "pass"
    assert seen["shapes"].outcome == "not_applicable"
