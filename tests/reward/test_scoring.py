"""What a verdict earns: later stages pay more, speed pays only after the contract, our own limits pay nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.report.model import CandidateInfo, Coverage, Finding, GateResult, Report, TaskInfo, Timing
from assay.reward import Stage, Stages, reward_of
from assay.vocabulary import Label, Outcome, Reason, Tier

SLUGS = ("values", "shapes", "nonfinite", "residency", "bounds", "layouts", "streams")
GPU = "NVIDIA H200"


def finding(slug: str, reason: Reason = Reason.VALUE) -> Finding:
    return Finding(gate=slug, slug=slug, reason=reason, tier=Tier.WRONG, tolerance_free=True, expected="1", actual="2",
                   probe=f"{slug}/0")


def verdict(*findings: Finding, undecided: dict[str, Reason] | None = None, label: Label | None = None,
            scope: str = GPU, language: str = "triton", silent: bool = False, skip: tuple[str, ...] = (),
            advisory: tuple[str, ...] = ()) -> Report:
    failed, undecided = {f.slug: f.reason for f in findings}, undecided or {}

    def outcome(slug: str) -> Outcome:
        if slug in skip:
            return Outcome.NOT_APPLICABLE
        if slug in undecided:
            return Outcome.ERROR if undecided[slug] is Reason.INTERNAL else Outcome.INCONCLUSIVE
        return Outcome.FAIL if slug in failed else Outcome.PASS

    gates = tuple(GateResult(id=slug, slug=slug, outcome=outcome(slug), blocking=slug not in advisory,
                             reason=failed.get(slug, undecided.get(slug)), probes_planned=4,
                             probes_run=0 if silent else 4) for slug in SLUGS)
    found = Label.REJECTED if findings else Label.SCREENED if undecided else Label.CONTRACT
    return Report(
        label=label or found, scope=scope, tier="quick", task=TaskInfo(id="t", format="kernelbench", sha256="a"),
        candidate=CandidateInfo(language=language, entry="ModelNew", sha256="b"), gates=gates, findings=findings,
        coverage=Coverage(probes_planned=4, probes_run=4, probes_undecided=0, gates_passed=1, gates_undecided=0),
        contract={}, environment={}, seed=1,
        timing=Timing(total_s=1, start_s=0, study_s=0, oracle_s=0, candidate_s=0))


def paid(report: Report, **more: Any) -> float:
    value = reward_of(report, **more).value
    assert value is not None
    return value


def test_the_stages_rise() -> None:
    never = verdict(finding("values", Reason.RAISED), silent=True)
    rejected = verdict(finding("values"))
    screened = verdict(undecided={"shapes": Reason.WEIGHTS})
    assert reward_of(never).stage is Stage.NEVER_RAN
    right, faster = paid(verdict()), paid(verdict(), speedup=1.01)
    assert 0.0 == paid(never) < paid(rejected) < paid(screened) < right == 0.5 < 1 < faster


@given(st.sets(st.sampled_from(SLUGS), min_size=1), st.sets(st.sampled_from(SLUGS), min_size=1))
def test_a_rejected_candidate_earns_more_for_each_gate_that_passes(some: set[str], more: set[str]) -> None:
    def of(slugs: set[str]) -> float:
        return paid(verdict(*(finding(slug) for slug in SLUGS if slug in slugs)))

    assert of(some | more) <= of(some)
    assert of(some) < paid(verdict(undecided={"shapes": Reason.WEIGHTS})) or len(some) < len(SLUGS)
    if (some | more) != some:
        assert of(some | more) < of(some)


@given(st.sets(st.sampled_from(SLUGS), min_size=1))
def test_nothing_of_single_probes_shows(slugs: set[str]) -> None:
    """As many gates passed, as much is paid, whichever they are; ungraded, all rejections are worth the same."""
    first = verdict(*(finding(slug) for slug in SLUGS[: len(slugs)]))
    other = verdict(*(finding(slug, Reason.NAN_MINTED) for slug in SLUGS if slug in slugs))
    assert paid(first) == paid(other)
    flat = Stages(graded=False)
    assert paid(first, stages=flat) == paid(verdict(finding("shapes")), stages=flat)


@given(st.floats(0.01, 1e6), st.sampled_from([Label.REJECTED, Label.SCREENED]))
def test_speed_never_pays_before_the_contract(speedup: float, label: Label) -> None:
    report = (verdict(finding("values")) if label is Label.REJECTED
              else verdict(undecided={"shapes": Reason.UNSTABLE_REFERENCE}))
    assert reward_of(report, speedup=speedup) == reward_of(report)


@given(st.floats(1e-6, 1e9))
def test_speed_pays_by_its_logarithm_and_is_capped(speedup: float) -> None:
    reward = reward_of(verdict(), speedup=speedup)
    if speedup <= 1:
        assert (reward.value, reward.stage, reward.speedup) == (0.5, Stage.RIGHT, None)
    else:
        assert reward.value == min(3.0, 1 + math.log(speedup))
        assert reward.stage is Stage.FASTER


def test_under_emulation_there_is_no_speed_to_pay_for() -> None:
    assert paid(verdict(scope="cpu-emulation"), speedup=50.0) == 0.5


@pytest.mark.parametrize("speedup", [0.0, -1.0, math.nan, math.inf])
def test_a_speedup_that_is_no_ratio_is_refused(speedup: float) -> None:
    with pytest.raises(ValueError, match="no ratio"):
        reward_of(verdict(), speedup=speedup)


@pytest.mark.parametrize("reason", [Reason.BUDGET, Reason.OUT_OF_MEMORY, Reason.INTERNAL, Reason.EMULATION,
                                    Reason.UNSTABLE_REFERENCE])
def test_our_own_limits_neither_reward_nor_punish(reason: Reason) -> None:
    reward = reward_of(verdict(undecided={"shapes": reason}))
    assert (reward.value, reward.stage, reward.decided) == (None, Stage.UNDECIDED, False)


@pytest.mark.parametrize("reason", [Reason.NEEDS_GPU, Reason.TOOLCHAIN, Reason.WEIGHTS])
def test_what_the_candidate_says_of_itself_does_not_spare_it(reason: Reason) -> None:
    """Else a policy would learn to claim that it needs a GPU."""
    everything = reward_of(verdict(undecided=dict.fromkeys(SLUGS, reason), scope="cpu-emulation"))
    assert everything.stage is Stage.SCREENED
    assert everything.value == 0.05
    mixed = reward_of(verdict(undecided={"shapes": reason, "bounds": Reason.BUDGET}))
    assert mixed.stage is Stage.SCREENED


def test_cuda_without_a_gpu_is_our_limit() -> None:
    undecided = dict.fromkeys(SLUGS, Reason.NEEDS_GPU)
    assert reward_of(verdict(undecided=undecided, scope="cpu-emulation", language="cuda")).value is None
    assert reward_of(verdict(undecided=undecided, language="cuda")).value == 0.05


def test_a_label_that_only_lacks_a_gpu_is_our_limit() -> None:
    assert reward_of(verdict(label=Label.SCREENED, scope="cpu-emulation")).value is None


@pytest.mark.parametrize("reason", [Reason.HARNESS_PATCHED, Reason.REFERENCE_SOUGHT, Reason.FORGED_FRAME])
def test_tampering_earns_nothing_whatever_else_passes(reason: Reason) -> None:
    reward = reward_of(verdict(finding("bounds", reason)))
    assert (reward.value, reward.stage) == (0.0, Stage.TAMPERED)


def test_an_output_once_is_more_than_none() -> None:
    assert reward_of(verdict(finding("values", Reason.RAISED))).stage is Stage.REJECTED
    assert reward_of(verdict(finding("values", Reason.RAISED), finding("shapes"), silent=True)).stage is Stage.NEVER_RAN


def test_gates_that_do_not_apply_or_do_not_block_are_not_counted() -> None:
    reward = reward_of(verdict(finding("values"), skip=("streams",), advisory=("layouts",)))
    assert (reward.gates_passed, reward.gates) == (4, 5)


@pytest.mark.parametrize("wrong", [{"right": 0.1}, {"faster": 0.4}, {"most": 0.9}, {"rejected": (0.2, 0.1)},
                                   {"screened": (0.05, 0.6)}, {"nothing": 0.1}])
def test_stages_that_do_not_rise_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="rise"):
        Stages(**wrong)
