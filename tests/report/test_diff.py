"""What changed between two verdicts."""

from __future__ import annotations

import json

from assay.report.diff import ReportDiff, compare, lines
from assay.report.model import Report
from assay.vocabulary import Label, Outcome


def shown(found: ReportDiff, width: int = 80) -> list[str]:
    return [line.plain for line in lines(found, "before.json", "after.json", width=width)]


def test_a_report_does_not_differ_from_itself(real_report: Report) -> None:
    found = compare(real_report, real_report)
    assert found.same_decision
    assert (found.conditions, found.gates, found.appeared, found.disappeared) == ((), (), (), ())
    assert len(found.same) == len(real_report.findings)
    assert shown(found)[-1] == f"same decision: rejected with the same {len(found.same)} findings"


def test_a_repaired_kernel_loses_its_findings(real_report: Report, right_report: Report) -> None:
    found = compare(real_report, right_report)
    assert not found.same_decision
    assert (found.before.label, found.after.label) == (Label.REJECTED, Label.CONTRACT)
    assert len(found.disappeared) == len(real_report.findings)
    assert [c.name for c in found.conditions][:1] == ["candidate"]
    shapes = next(g for g in found.gates if g.slug == "shapes")
    assert (shapes.before, shapes.after) == (Outcome.FAIL, Outcome.PASS)
    text = " ".join(" ".join(shown(found)).split())
    assert "FAIL → pass" in text
    assert f"another decision: rejected → contract, {len(found.disappeared)} findings disappeared" in text
    back = compare(right_report, real_report)
    assert [f.fingerprint for f in back.appeared] == [f.fingerprint for f in found.disappeared]


def test_compiler_contract_and_seed_are_named(real_report: Report) -> None:
    other = real_report.model_copy(update={
        "seed": 6, "environment": {**real_report.environment, "triton": "9.9.9"},
        "contract": {**real_report.contract, "determinism": "none"}, "scope": "Some GPU"})
    found = compare(real_report, other)
    assert found.same_decision
    assert {c.name: c.after for c in found.conditions} == {
        "scope": "Some GPU", "seed": 6, "contract.determinism": "none", "environment.triton": "9.9.9"}
    assert any("triton" in line and "→ 9.9.9" in line for line in shown(found))


def test_the_same_fault_with_other_numbers_is_no_other_decision(made_report: Report) -> None:
    changed = made_report.findings[0].model_copy(update={"actual": "0.5", "probe": "values/draw-3"})
    found = compare(made_report, made_report.model_copy(update={"findings": (changed, *made_report.findings[1:])}))
    assert found.same_decision
    moved = found.same[0]
    assert (moved.before, moved.after) != (moved.before, moved.before)
    assert any("after: expected" in line for line in shown(found))


def test_gates_that_were_not_asked_are_told(real_report: Report) -> None:
    found = compare(real_report, real_report.model_copy(update={"gates": real_report.gates[:-1]}))
    assert (found.gates[-1].slug, found.gates[-1].after) == (real_report.gates[-1].slug, None)


def test_it_fits_80_columns(hostile_report: Report, real_report: Report) -> None:
    for found in (compare(hostile_report, real_report), compare(real_report, hostile_report)):
        assert max(map(len, shown(found))) <= 80
        assert "\x1b" not in "\n".join(shown(found))


def test_it_reads_back(real_report: Report, right_report: Report) -> None:
    found = compare(real_report, right_report)
    assert ReportDiff.model_validate(json.loads(found.to_json())) == found
