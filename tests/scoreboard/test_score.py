"""Rows become rates; what was not judged, or shows nothing, is not counted."""

from __future__ import annotations

from typing import Any

from assay.gates import BATTERY
from assay.scoreboard.render import markdown, to_json
from assay.scoreboard.score import Score, score

GATES = {gate.slug: ["pass", 3, None] for gate in BATTERY if not gate.opt_in}
GATES["streams"] = ["not_applicable", 0, "needs_gpu"]


def about(id: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "group": "mutant", "kind": "semantic", "operator": "o", "subject": "s", "dtype": "float32",
            "right": False, "seconds": 1.0, "problem": None, **more}


def witness(id: str, how: str = "value", **more: Any) -> dict[str, Any]:
    return {"type": "witness", **about(id), "how": how, "ratio": 9.0, "problem": "", **more}


def verdict(id: str, *findings: tuple[str, str, float | None], **more: Any) -> dict[str, Any]:
    found = [{"gate": g, "reason": r, "tier": "wrong", "free": ratio is None, "ratio": ratio, "probe": "p"}
             for g, r, ratio in findings]
    row = {"type": "verdict", **about(id), "tier": "standard", "label": "rejected" if findings else "contract",
           "gates": {**GATES, **{g: ["fail", 3, r] for g, r, _ in findings}}, "findings": found,
           "scope": "cpu-emulation"}
    return {**row, **more}


def screen(id: str, outcome: str, variant: str = "kernelbench-v0", **more: Any) -> dict[str, Any]:
    return {"type": "screen", **about(id), "variant": variant, "outcome": outcome, **more}


def control(id: str, *findings: tuple[str, str, float | None], **more: Any) -> dict[str, Any]:
    return verdict(id, *findings, group="control", kind="kernel", right=True, **more)


def example() -> Score:
    return score([
        witness("a"), verdict("a", ("values", "value", 40.0), ("shapes", "value", 3.0)), screen("a", "pass"),
        witness("b"), verdict("b", ("bounds", "out_of_bounds_read", None)), screen("b", "fail"),
        witness("c"), verdict("c"), screen("c", "inconclusive"),
        witness("equivalent", ""), verdict("equivalent"),
        witness("dead", "stillborn"),
        witness("p", kind="precision"), verdict("p", ("values", "value", 2.0), kind="precision"),
        control("right"), control("wronged", ("values", "value", 1.1)), control("open", label="screened"),
    ])


def test_only_mutants_with_a_witness_and_a_verdict_count() -> None:
    found = example().metrics
    assert (found["mutants"], found["killed"]) == (4, 3)
    assert (found["precision_mutants"], found["precision_killed"]) == (1, 1)
    assert (found["equivalent"], found["stillborn"]) == (1, 1)
    assert example().survivors == ("c",)


def test_a_screen_that_could_not_run_missed_nothing() -> None:
    found = example().metrics
    assert (found["screen_missed"], found["screen_judged"]) == (1, 2)


def test_false_alarms_and_open_verdicts_are_apart() -> None:
    found = example()
    assert (found.metrics["controls"], found.metrics["false_alarms"]) == (3, 1)
    assert found.undecided == 1
    assert found.alarmed == ("wronged",)


def test_a_gate_that_finds_what_no_other_finds_is_its_sole_killer() -> None:
    gates = {g.slug: g for g in example().gates}
    assert (gates["bounds"].fired, gates["bounds"].sole, gates["bounds"].redundancy) == (1, 1, 0.0)
    assert (gates["values"].fired, gates["values"].sole, gates["values"].alarms) == (2, 1, 1)
    assert (gates["shapes"].sole, gates["shapes"].redundancy) == (0, 1.0)


def test_a_gate_that_found_nothing_is_vacuous_and_one_that_needs_a_gpu_is_not() -> None:
    vacuous = example().vacuous
    assert "repeatability" in vacuous
    assert "values" not in vacuous
    assert "streams" not in vacuous


def test_a_tolerance_twice_as_wide_would_lose_what_is_less_than_twice_beyond() -> None:
    curve = dict(example().curves["precision"])
    assert curve[1.5] == 1.0
    assert curve[2.0] == 0.0
    assert dict(example().curves["all"])[1e6] == 0.25


def test_policies_count_their_own_findings() -> None:
    policies = example().policies
    assert policies["default"][0].count == 3
    assert policies["free of tolerance only"][0].count == 1
    assert policies["default"][1].count == 1
    assert policies["free of tolerance only"][1].count == 0


def test_no_rows_are_no_rates() -> None:
    found = score([])
    assert found.metrics["mutants"] == 0
    assert "0 of 0 mutants" in markdown(found)
    assert to_json(found).startswith("{")


def test_survivors_are_listed_by_name() -> None:
    assert "- `c`" in markdown(example())
