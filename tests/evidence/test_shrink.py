"""Findings come down to the smallest input that shows them, and never leave the task's domain."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tests.evidence.faults import FAULTS, Fault
from tests.evidence.shrunk import shrink_fault, sizes_of

from assay.evidence import Evidence, FindingRecord, Store
from assay.evidence.admitted import admits, free
from assay.evidence.replay import Outcome, replay
from assay.evidence.shrink import DoesNotShow, Shrunk, shrink
from assay.probe.structure import infer
from assay.run.process import Zygote

DEFAULT = ("columns beyond eight are dropped",)


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> tuple[Path, FindingRecord, Shrunk]:
    """The first fault, shrunk: its store (not to be written to), its finding, and what came out."""
    folder = tmp_path_factory.mktemp("columns")
    return folder, *shrink_fault(FAULTS[0], folder / "s", zygote)


@pytest.mark.parametrize(
    "fault", [pytest.param(f, id=f.name.replace(" ", "-"), marks=[] if f.name in DEFAULT else [pytest.mark.slow])
              for f in FAULTS])
def test_a_fault_comes_down_to_its_minimum(fault: Fault, tmp_path: Path, zygote: Zygote,
                                           columns: tuple[Path, FindingRecord, Shrunk]) -> None:
    if fault is FAULTS[0]:
        folder, found, shrunk = columns
    else:
        folder = tmp_path
        found, shrunk = shrink_fault(fault, folder / "s", zygote)
    sizes = sizes_of(shrunk, fault)
    assert all(sizes[name] <= least for name, least in fault.minimum.items()), (sizes, fault.why)
    assert shrunk.minimal.elements is not None
    assert shrunk.minimal.elements <= fault.elements
    assert (shrunk.finding.slug, shrunk.finding.reason) == (found.finding.slug, found.finding.reason)
    assert shrunk.minimal.complete
    # both are kept, and the smaller one replays
    assert found.minimal == shrunk.bundle
    assert found.bundle is not None
    assert found.bundle.probe.sizes != found.minimal.probe.sizes
    assert found.finding.minimal == shrunk.minimal
    with Store.open(folder / "s") as store:
        again = replay(store, found.id, zygote, minimal=True)
        assert store.verify() == []
    assert again.outcome is Outcome.REPRODUCED
    assert again.same_inputs


def test_values_come_down_to_zeros_and_small_numbers(columns: tuple[Path, FindingRecord, Shrunk]) -> None:
    shrunk = columns[2]
    (literal,) = shrunk.bundle.probe.draws[0].literals
    written = torch.full((9,), literal.fill)
    for place, value in zip(literal.places, literal.values, strict=True):
        written[place] = value
    assert written[8] == 1
    assert set(written.tolist()) <= {0.0, 1.0}


def test_what_does_not_show_has_no_smallest_input(tmp_path: Path, zygote: Zygote,
                                                  columns: tuple[Path, FindingRecord, Shrunk]) -> None:
    folder, found, _ = columns
    shutil.copytree(folder / "s", tmp_path / "s")
    with Store.open(tmp_path / "s") as store:
        verdict = store.verdict(found.verdict)
        right = verdict.candidate.model_copy(update={
            "source": FAULTS[0].candidate.replace("8:", "99:")})
        claimed = verdict.report.model_copy(update={"seed": 12})
        assert found.bundle is not None
        identity = store.put_report(claimed, verdict.task, right, verdict.contract,
                                    Evidence(verdict.context, {found.id: found.bundle}))
        assert store.finding(found.id).verdict == identity
        with pytest.raises(DoesNotShow):
            shrink(store, found.id, zygote, seconds=5)
        assert replay(store, found.id, zygote).outcome is Outcome.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("sample", "inside", "outside"),
    [
        (lambda: torch.rand(8, 40) + 0.5, torch.ones(2, 2), torch.zeros(2, 2)),
        (lambda: torch.randint(0, 7, (8, 40)), torch.zeros(2, 2, dtype=torch.int64), torch.full((2, 2), 9)),
        (lambda: torch.randn(12, 12).tril(), torch.eye(3), torch.ones(3, 3)),
        (lambda: (torch.rand(8, 40) > 0.5).float(), torch.ones(2, 2), torch.full((2, 2), 0.5)),
        (lambda: torch.randn(8, 40), torch.full((2, 2), 1e6), torch.full((2, 2), float("nan"))),
    ],
    ids=["positive", "indices", "triangle", "mask", "normal"],
)
def test_written_values_stay_in_the_domain(sample: object, inside: torch.Tensor, outside: torch.Tensor) -> None:
    torch.manual_seed(0)
    structure = infer([sample() for _ in range(6)])  # type: ignore[operator]
    assert free(structure)
    assert admits(structure, inside, {})
    assert not admits(structure, outside, {})


def test_rows_that_sum_to_one_are_left_alone() -> None:
    torch.manual_seed(0)
    assert not free(infer([torch.softmax(torch.randn(16, 10), -1) for _ in range(6)]))
