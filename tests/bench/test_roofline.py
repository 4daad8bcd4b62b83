"""Bytes and operations are counted from the reference's own operators; the floor only what nobody can leave out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from assay.bench.model import Ceilings
from assay.bench.roofline import impossible, speed_of_light
from assay.run.cost import Cost, cost_of
from assay.run.process import Zygote
from assay.run.reference import ReferenceSession
from assay.task import load_task
from assay.task.facts import Study

from .conftest import MATMUL, ROWS

CEILINGS = Ceilings(copy_bytes_per_s=1e12, flops={"fp32": 1e13, "tf32": 1e14, "bf16": 4e14}, cache_bytes=0)
F32 = 4


def counted(model: Callable[..., object], *inputs: torch.Tensor) -> Cost:
    return cost_of(model, inputs, {}, 0)


def test_a_row_sum_reads_its_input_and_writes_its_rows() -> None:
    cost = counted(lambda x: x.sum(1), torch.randn(32, 50))
    assert cost.inputs == cost.sure_inputs == [32 * 50 * F32]
    assert (cost.written, cost.operations) == (32 * F32, 0)


def test_a_product_counts_two_operations_per_multiply_add() -> None:
    cost = counted(torch.matmul, torch.randn(8, 16), torch.randn(16, 4))
    assert cost.operations == 2 * 8 * 16 * 4
    assert cost.sure_operations == int(0.875 * cost.operations), "less one level of Strassen's algorithm"
    assert (cost.inputs, cost.written, cost.dtype) == ([8 * 16 * F32, 16 * 4 * F32], 8 * 4 * F32, "float32")


def test_products_that_are_summed_up_or_chained_may_be_done_another_way() -> None:
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    assert counted(lambda x, y: (x @ y).sum(), a, b).sure_operations == 0
    assert counted(lambda x, y: x @ y @ y, a, b).sure_operations == 0
    assert counted(lambda x, y: x @ y @ y, a, b).operations == 2 * 2 * 8**3


def test_weights_are_read_once_and_inputs_that_are_expanded_hold_one_row() -> None:
    layer = torch.nn.Linear(16, 4)
    cost = counted(layer, torch.randn(1, 16).expand(8, 16))
    assert cost.weights == (16 * 4 + 4) * F32
    assert cost.inputs[0] <= 8 * 16 * F32
    assert counted(lambda x: x.sum(1), torch.randn(1, 16).expand(8, 16)).inputs == [16 * F32]


def test_what_is_picked_masked_or_sliced_away_need_not_be_read() -> None:
    table, index = torch.randn(1000, 8), torch.tensor([1, 5, 7])
    assert counted(lambda t, i: t[i], table, index).sure_inputs[0] == 0
    assert counted(lambda t, i: t[i], table, index).inputs[0] == 3 * 8 * F32
    x = torch.randn(64, 64)
    assert counted(lambda t: t.tril(), x).sure_inputs == [0]
    assert counted(lambda t: t[:, :16].sum(), x).inputs == [64 * 16 * F32]
    assert counted(lambda t: t * 2.0, x).sure_inputs == [64 * 64 * F32]
    assert counted(lambda t, m: t * m, x, (x > 0).float()).sure_inputs == [0, 0], "a zero in one hides the other"


def test_a_view_of_an_input_writes_nothing() -> None:
    x = torch.randn(16, 16)
    assert counted(lambda t: t.t(), x).written == 0
    assert counted(lambda t: t.sum(0).expand(16, 16), x).written == 16 * F32


@pytest.mark.parametrize(("window", "share"), [(1, 0.875), (3, 0.25), (7, 0.0)])
def test_convolutions_have_cheaper_ways(window: int, share: float) -> None:
    layer = torch.nn.Conv2d(4, 8, window, padding=window // 2, bias=False)
    cost = counted(layer, torch.randn(2, 4, 16, 16))
    assert cost.operations == 2 * 2 * 8 * 16 * 16 * 4 * window**2
    assert cost.sure_operations == int(share * cost.operations)


def test_the_reference_worker_counts_at_any_size(zygote: Zygote) -> None:
    session = ReferenceSession(zygote, load_task(MATMUL))
    try:
        assert session.cost({}, 0).operations == 2 * 128 * 192 * 96
        assert session.cost({"M": 64}, 0).operations == 2 * 64 * 192 * 96
    finally:
        session.close()


def study_of(task: Path, zygote: Zygote) -> Study:
    session = ReferenceSession(zygote, load_task(task))
    try:
        return session.study()
    finally:
        session.close()


def test_the_roofline_is_the_slower_of_moving_and_multiplying(zygote: Zygote) -> None:
    study = study_of(MATMUL, zygote)
    cost = Cost(inputs=[10**9, 10**9], sure_inputs=[10**9, 10**9], written=10**9, operations=4 * 10**9,
                sure_operations=3 * 10**9, dtype="float32")
    light = speed_of_light(cost, study, CEILINGS, 0.006, tf32=False)
    assert light.limited_by == "memory"
    assert light.bound_s == pytest.approx(0.003)
    assert light.share == pytest.approx(0.5)
    heavy = Cost(inputs=[1000, 1000], sure_inputs=[1000, 1000], written=1000, operations=10**12,
                 sure_operations=875 * 10**9, dtype="float32")
    assert speed_of_light(heavy, study, CEILINGS, 0.2, tf32=False).bound_s == pytest.approx(0.1)
    assert speed_of_light(heavy, study, CEILINGS, 0.2, tf32=True).bound_s == pytest.approx(0.01)
    assert speed_of_light(heavy, study, CEILINGS, 0.2, tf32=False).limited_by == "products"


def test_only_less_than_the_floor_is_impossible(zygote: Zygote) -> None:
    study = study_of(MATMUL, zygote)
    cost = Cost(inputs=[10**9, 0], sure_inputs=[10**9, 0], written=10**9, operations=10**12,
                sure_operations=10**12, dtype="float32")
    light = speed_of_light(cost, study, CEILINGS, 0.01, tf32=False)
    assert light.floor_s == pytest.approx(10**12 / 4e14), "the fastest unit may have done it in parts"
    assert not impossible(light, light.bound_s)
    assert not impossible(light, 0.8 * light.floor_s), "ceilings are measured, and so a little low"
    assert impossible(light, 0.5 * light.floor_s)


def test_what_fits_into_the_cache_need_not_be_written_yet(zygote: Zygote) -> None:
    cost = Cost(inputs=[1000], sure_inputs=[1000], written=10**6, operations=0, sure_operations=0)
    roomy = CEILINGS.model_copy(update={"cache_bytes": 1 << 24})
    assert speed_of_light(cost, study_of(ROWS, zygote), roomy, 1.0, tf32=False).floor_s == pytest.approx(1e-9)
