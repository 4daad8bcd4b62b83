"""Right candidates of every kind are accepted, and the remade published cases are rejected."""

from __future__ import annotations

import pytest

from assay import corpus
from assay.report.model import Report
from assay.run.process import Zygote
from assay.scoreboard.cases import Case
from assay.scoreboard.controls import controls, split
from assay.scoreboard.published import clean, seeded, tricks
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label

RIGHT = {c.id: c for c in [*controls((0,)), *clean()]}
WRONG = {c.id: c for c in [*seeded(), *tricks()]}
FEW = ("control/bias_silu/inductor", "control/relu/other algorithm: where", "control/row_min@bfloat16/kernel/0")
FEW_WRONG = ("seeded/row_min", "trick/03", "trick/08")
SAMPLE = sorted(set(RIGHT) - set(FEW))[::12]


def verdict(case: Case, zygote: Zygote, tier: EffortTier) -> Report:
    return verify_task(case.task, case.parsed, contract=case.promised, zygote=zygote,
                       options=Options(device="cpu", tier=tier, seed=77))


def told(report: Report) -> str:
    open_gates = [(g.slug, g.outcome.value, g.reason) for g in report.gates
                  if g.outcome.value in ("inconclusive", "error")]
    return "\n".join([*(f"{f.slug} {f.reason.value} {f.probe}: expected {f.expected}, got {f.actual}"
                        for f in report.findings), str(open_gates)])


@pytest.mark.parametrize("name", FEW)
def test_a_right_candidate_is_accepted(name: str, zygote: Zygote) -> None:
    report = verdict(RIGHT[name], zygote, EffortTier.QUICK)
    assert report.label is Label.CONTRACT, told(report)
    assert report.coverage.closest is not None
    assert report.coverage.closest <= 1.0


@pytest.mark.parametrize("name", FEW_WRONG)
def test_a_remade_case_is_rejected(name: str, zygote: Zygote) -> None:
    assert verdict(WRONG[name], zygote, EffortTier.QUICK).label is Label.REJECTED


def test_a_reference_that_loses_a_nan_in_its_own_row_blames_no_other_row(zygote: Zygote) -> None:
    case = RIGHT["control/hardswish/other algorithm: clamp"]
    report = verify_task(case.task, case.parsed, zygote=zygote,
                         options=Options(device="cpu", seed=20_260, only=("gradients",)))
    assert report.label is Label.CONTRACT, told(report)


@pytest.mark.parametrize(("name", "gate"), [
    # whose gradient a NaN takes is open, and so is which of two equal numbers gets it
    ("control/row_min/other algorithm: min", "gradients"),
    ("control/row_min@bfloat16/other algorithm: min", "gradients"),
    ("control/top_k@bfloat16/other algorithm: sort", "gradients"),
    # a running mean is rounded where the sum of the same numbers is exact
    ("control/layer_norm_affine@bfloat16/split batch", "order_sensitive"),
    ("control/layer_norm_affine@float16/split batch", "order_sensitive"),
])
def test_what_is_right_in_another_way_is_accepted(name: str, gate: str, zygote: Zygote) -> None:
    case = RIGHT[name]
    report = verify_task(case.task, case.parsed, zygote=zygote,
                         options=Options(device="cpu", seed=20_260, only=("values", gate)))
    assert report.label is Label.CONTRACT, told(report)


@pytest.mark.parametrize(("wide", "label"), [(True, Label.CONTRACT), (False, Label.REJECTED)])
def test_the_gradient_of_a_weight_is_added_up_before_it_is_rounded(wide: bool, label: Label, zygote: Zygote) -> None:
    entry = corpus.entry("conv1d", "bfloat16")
    report = verify_task(parse_task(entry.reference), parse_candidate(split(entry, wide=wide)), zygote=zygote,
                         options=Options(device="cpu", seed=3, only=("values", "gradients")))
    assert report.label is label, told(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_right_candidates_are_accepted_at_the_standard_tier(name: str, zygote: Zygote) -> None:
    report = verdict(RIGHT[name], zygote, EffortTier.STANDARD)
    assert report.label is Label.CONTRACT, told(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WRONG))
def test_remade_cases_are_rejected_at_the_standard_tier(name: str, zygote: Zygote) -> None:
    assert verdict(WRONG[name], zygote, EffortTier.STANDARD).label is Label.REJECTED
