"""JUnit XML in the shape that CI systems read."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from assay.report.junit import render, to_junit
from assay.report.model import Report
from assay.vocabulary import Label, Outcome

ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "disabled", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "id",
                  "package"},
    "testcase": {"name", "assertions", "time", "classname", "status"},
    "property": {"name", "value"}, "properties": set(), "system-out": set(), "system-err": set(),
    "failure": {"type", "message"}, "error": {"type", "message"}, "skipped": {"type", "message"},
}
CHILDREN = {
    "testsuites": ["testsuite"], "testsuite": ["properties", "testcase", "system-out", "system-err"],
    "testcase": ["skipped", "error", "failure", "system-out", "system-err"], "properties": ["property"],
}
REQUIRED = {"testsuite": {"name", "tests"}, "testcase": {"name"}, "property": {"name", "value"}}


def check(text: str) -> ElementTree.Element:
    """The root, after a check of elements, their order, attributes and counts."""
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.keys()) <= ATTRIBUTES[element.tag], element.tag
        assert REQUIRED.get(element.tag, set()) <= set(element.keys())
        order = [CHILDREN.get(element.tag, []).index(child.tag) for child in element]
        assert order == sorted(order)
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.get("tests", -1)) == len(cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name, -1)) == sum(case.find(tag) is not None for case in cases)
    for name in ("tests", "failures", "errors"):
        assert int(root.get(name, -1)) == sum(int(suite.get(name, 0)) for suite in root)
    return root


def case_of(root: ElementTree.Element, slug: str) -> ElementTree.Element:
    return next(case for case in root.iter("testcase") if case.get("name", "").startswith(f"{slug} "))


def test_one_case_per_gate_with_its_outcome(made_report: Report) -> None:
    root = check(render(made_report))
    assert len(list(root.iter("testcase"))) == len(made_report.gates)
    failure = case_of(root, "nonfinite").find("failure")
    assert failure is not None
    assert failure.get("type") == "nan_swallowed"
    assert failure.get("message") == "a NaN of the reference is lost"
    for words in ("expected   nan", "got        1.0", "replay     assay verify "):
        assert words in (failure.text or "")
    skipped = {slug: case_of(root, slug).find("skipped") for slug in ("layouts", "streams")}
    assert skipped["layouts"] is not None
    assert skipped["layouts"].get("message") == "inconclusive: out of memory"
    assert skipped["streams"] is not None
    assert (skipped["streams"].get("message"), skipped["streams"].get("type")) == ("not applicable: needs a GPU",
                                                                                   "needs_gpu")
    assert [child.tag for child in case_of(root, "shapes")] == ["system-out"]


def test_the_properties_say_what_was_decided_on(real_report: Report) -> None:
    found = {p.get("name"): p.get("value") for p in check(render(real_report)).iter("property")}
    assert found["label"] == "rejected"
    assert found["scope"] == "cpu-emulation"
    assert found["seed"] == "5"
    assert found["candidate_sha256"] == real_report.candidate.sha256
    assert found["seed_commitment"] == real_report.seed_commitment
    shapes = next(g for g in real_report.gates if g.slug == "shapes")
    assert found["coverage.shapes"] == f"{shapes.probes_run}/{shapes.probes_planned}"


def test_a_failing_gate_that_does_not_block_is_no_failure(made_report: Report) -> None:
    gates = tuple(g.model_copy(update={"blocking": False}) if g.outcome is Outcome.FAIL else g
                  for g in made_report.gates)
    root = check(render(made_report.model_copy(update={"gates": gates, "label": Label.CONTRACT})))
    assert root.get("failures") == "0"
    skipped = case_of(root, "nonfinite").find("skipped")
    assert skipped is not None
    assert (skipped.get("message") or "").startswith("does not block: ")
    assert "expected   nan" in (skipped.text or "")


def test_our_own_fault_is_an_error(made_report: Report) -> None:
    gate = made_report.gates[3].model_copy(update={"outcome": Outcome.ERROR, "note": "KeyError: 'x'"})
    root = check(render(made_report.model_copy(update={"gates": (gate,), "findings": ()})))
    assert root.get("errors") == "1"


def test_hostile_text_stays_text(hostile_report: Report) -> None:
    root = check(render(hostile_report))
    assert {element.tag for element in root.iter()} <= set(ATTRIBUTES)
    texts = [t for e in root.iter() for t in (e.text, *e.attrib.values()) if t]
    assert any("<script>" in text for text in texts)
    assert not any(c in text for text in texts for c in "\x00\x07\x1b")


@pytest.mark.parametrize("fixture", ["right_report", "nan_report"])
def test_real_reports_are_well_formed(fixture: str, request: pytest.FixtureRequest) -> None:
    report: Report = request.getfixturevalue(fixture)
    root = check(render(report))
    assert (root.get("failures") == "0") == (report.label is not Label.REJECTED)


def test_several_reports_are_several_suites(right_report: Report, real_report: Report) -> None:
    root = check(to_junit([right_report, real_report]))
    assert [suite.get("id") for suite in root] == ["0", "1"]
