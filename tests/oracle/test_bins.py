"""Histograms, segments, scattered writes, sequence losses and volume sampling: right in float32, wrong when wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from assay import oracle

Function = Callable[..., torch.Tensor]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


INDEX = torch.tensor([[3, 3, 5, 7, 3, 0, 5, 11]] * 4)
LENGTHS = torch.tensor([5, 1, 17, 9])
TARGETS = torch.tensor([[1, 2, 3, 2], [4, 4, 1, 3]])


def put(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.put(INDEX, y, accumulate=True)


def segments(x: torch.Tensor, how: str = "mean") -> torch.Tensor:
    return torch.segment_reduce(x, how, lengths=LENGTHS, axis=0, unsafe=True)


def ctc(x: torch.Tensor, blank: int = 0) -> torch.Tensor:
    return F.ctc_loss(x.log_softmax(-1), TARGETS, [30, 24], [4, 3], blank=blank, reduction="none")


def volume(x: torch.Tensor, grid: torch.Tensor, corners: bool = False) -> torch.Tensor:
    return F.grid_sample(x, grid.tanh(), mode="bilinear", align_corners=corners)


def counts(x: torch.Tensor, bins: int = 12) -> torch.Tensor:
    return torch.histc(x, bins, -2.0, 2.0)


def weighted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.histogram(x, 8, range=(-2.0, 2.0), weight=w)[0]


CASES: list[tuple[str, Function, list[torch.Tensor], Function]] = [
    ("put", put, [draw(12), draw(4, 8, seed=1)], lambda x, y: put(x, y * 1.00001)),
    ("segment mean", segments, [draw(32, 3)], lambda x: segments(x) * 1.00001),
    ("segment sum", lambda x: segments(x, "sum"), [draw(32, 3)], lambda x: segments(x[:32], "sum") + 1e-5),
    ("segment product", lambda x: segments(x, "prod"), [draw(32, 3)], lambda x: segments(x, "prod") * 1.00001),
    ("ctc", ctc, [draw(30, 2, 5)], lambda x: ctc(x, blank=0) * 1.0001),
    ("volume", volume, [draw(2, 3, 5, 6, 7), draw(2, 4, 4, 4, 3, seed=1)], lambda x, g: volume(x, g, True)),
    ("counts", counts, [draw(400)], lambda x: counts(x + 0.01)),
    ("weighted counts", weighted, [draw(200), draw(200, seed=1).abs()], lambda x, w: weighted(x, w * 1.00001)),
]


@pytest.mark.parametrize(("reference", "inputs", "wrong"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_float32_is_within_tolerance_and_a_fault_is_not(
    reference: Function, inputs: list[Any], wrong: Function
) -> None:
    evaluation = oracle.evaluate(reference, inputs)
    truth = evaluation.leaves[0]
    assert evaluation.unmodelled == ()
    assert float(truth.decided.double().mean()) > 0.8
    assert oracle.compare(truth, reference(*inputs)).ratio < 0.5
    assert not oracle.compare(truth, wrong(*inputs)).ok


def test_a_value_beside_an_edge_may_fall_to_either_bin() -> None:
    # 4096 + 1/3 is an edge; the nearest float32 numbers lie on either side of it
    x = torch.tensor([4096.3335, 4096.1, 4096.9], dtype=torch.float32)
    evaluation = oracle.evaluate(lambda x: torch.histc(x, 3, 4096.0, 4097.0), [x])
    assert evaluation.leaves[0].decided.tolist() == [False, False, True]
