"""What may merge, by the policy."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from assay.report.model import Report
from assay.repository.policy import Decision, Policy, decide
from assay.vocabulary import Label, Tier

from .made import finding, report

DAY = date(2026, 6, 1)


def says(policy: dict[str, Any], verdict: Report, *, release: bool = False, name: str = "k/kernel") -> Decision:
    return decide(Policy.model_validate(policy), name, verdict, release=release, today=DAY)[0]


def test_a_contract_may_merge_and_a_finding_may_not() -> None:
    assert says({}, report()) is Decision.MERGE
    assert says({}, report(finding("values"))) is Decision.BLOCK


def test_the_contract_may_call_a_gate_advisory_unless_the_policy_requires_it() -> None:
    verdict = report(finding("nonfinite", tolerance_free=True), advisory=("nonfinite",))
    assert verdict.label is Label.CONTRACT
    assert says({}, verdict) is Decision.MERGE
    assert says({"required": ["nonfinite"]}, verdict) is Decision.BLOCK


@pytest.mark.parametrize("block", ["tolerance_free", ["shapes"], []])
def test_a_finding_without_a_tolerance_blocks_whatever_the_policy_lists(block: Any) -> None:
    assert says({"block": block}, report(finding("nonfinite", tolerance_free=True))) is Decision.BLOCK
    assert says({"block": block}, report(finding("values"))) is Decision.MERGE


def test_a_listed_gate_blocks_with_a_tolerance_too() -> None:
    assert says({"block": ["values"]}, report(finding("values"))) is Decision.BLOCK


def test_divergence_blocks_unless_it_is_allowed_and_needed_a_tolerance() -> None:
    toleranced = report(finding("accumulation", tier=Tier.DIVERGENCE))
    exact = report(finding("accumulation", tier=Tier.DIVERGENCE, tolerance_free=True))
    assert says({}, toleranced) is Decision.BLOCK
    assert says({"allow_divergence": True}, toleranced) is Decision.MERGE
    assert says({"allow_divergence": True}, exact) is Decision.BLOCK
    assert says({"allow_divergence": True}, report(finding("values"))) is Decision.BLOCK


def test_the_contract_may_allow_divergence_itself() -> None:
    verdict = report(finding("accumulation", tier=Tier.DIVERGENCE, tolerance_free=True), label=Label.CONTRACT,
                     contract={"policy": {"allow_tiers": ["divergence"]}})
    assert says({}, verdict) is Decision.MERGE


@pytest.mark.parametrize(("screened", "wanted"), [
    ("undecided", Decision.UNDECIDED), ("block", Decision.BLOCK), ("allow", Decision.MERGE)])
def test_the_policy_says_what_becomes_of_the_undecided(screened: str, wanted: Decision) -> None:
    assert says({"screened": screened}, report(undecided=("shapes",))) is wanted
    assert says({"screened": screened}, report(finding("values"), undecided=("shapes",))) is Decision.BLOCK


def test_what_is_undecided_beside_an_allowed_finding_stays_undecided() -> None:
    verdict = report(finding("accumulation", tier=Tier.DIVERGENCE), undecided=("shapes",))
    assert says({"allow_divergence": True}, verdict) is Decision.UNDECIDED


@pytest.mark.parametrize(("gpu", "release", "rest"), [
    ("none", Decision.MERGE, Decision.MERGE), ("release", Decision.UNDECIDED, Decision.MERGE),
    ("all", Decision.UNDECIDED, Decision.UNDECIDED)])
def test_the_policy_may_ask_for_a_gpu(gpu: str, release: Decision, rest: Decision) -> None:
    assert says({"gpu": gpu}, report(), release=True) is release
    assert says({"gpu": gpu}, report()) is rest
    assert says({"gpu": gpu}, report(scope="NVIDIA H200"), release=True) is Decision.MERGE
    assert says({"gpu": gpu}, report(finding("values")), release=True) is Decision.BLOCK


def test_a_contract_that_asks_for_a_gpu_is_undecided_without_one() -> None:
    verdict = report(label=Label.SCREENED, contract={"policy": {"scope": "gpu"}})
    assert says({}, verdict) is Decision.UNDECIDED


WAIVER = {"pair": "k/*", "gate": "nonfinite", "because": "upstream never sends NaN", "until": date(2026, 6, 1)}


def test_a_waiver_holds_for_its_pairs_its_gate_and_its_days() -> None:
    verdict = report(finding("nonfinite", tolerance_free=True))
    assert says({"waivers": [WAIVER]}, verdict) is Decision.MERGE
    assert says({"waivers": [WAIVER]}, verdict, name="other/kernel") is Decision.BLOCK
    assert says({"waivers": [{**WAIVER, "until": date(2026, 5, 31)}]}, verdict) is Decision.BLOCK
    assert says({"waivers": [{**WAIVER, "gate": "shapes"}]}, verdict) is Decision.BLOCK
    both = report(finding("nonfinite", tolerance_free=True), finding("values"))
    assert says({"waivers": [WAIVER]}, both) is Decision.BLOCK


def test_what_is_waived_is_said() -> None:
    decision, why, waived = decide(Policy.model_validate({"waivers": [WAIVER]}), "k/kernel",
                                   report(finding("nonfinite", tolerance_free=True)), release=True, today=DAY)
    assert (decision, why) == (Decision.MERGE, ())
    assert "upstream never sends NaN" in waived[0]
