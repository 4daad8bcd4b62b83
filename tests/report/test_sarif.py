"""SARIF 2.1.0: what the standard requires of every object that is written, and nothing that it does not know."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest

from assay.report.identity import fingerprints
from assay.report.model import Names, Report
from assay.report.sarif import location, render, to_sarif
from assay.vocabulary import Outcome, Tier

MESSAGE = {"text", "markdown", "id", "arguments"}
KNOWN: dict[str, tuple[set[str], set[str]]] = {
    # object: required and optional properties, after sections 3.13 to 3.58 of the standard
    "log": ({"version", "runs"}, {"$schema", "inlineExternalProperties", "properties"}),
    "run": ({"tool"}, {"automationDetails", "columnKind", "invocations", "artifacts", "results", "properties"}),
    "driver": ({"name"}, {"version", "semanticVersion", "informationUri", "shortDescription", "rules"}),
    "rule": ({"id"}, {"name", "shortDescription", "fullDescription", "help", "defaultConfiguration", "properties"}),
    "invocation": ({"executionSuccessful"}, {"exitCode", "exitCodeDescription", "commandLine", "properties",
                                             "toolExecutionNotifications"}),
    "notification": ({"message"}, {"level", "associatedRule", "descriptor"}),
    "artifact": (set(), {"location", "roles", "hashes", "properties"}),
    "artifactLocation": (set(), {"uri", "uriBaseId", "index"}),
    "result": ({"message"}, {"ruleId", "ruleIndex", "level", "kind", "locations", "partialFingerprints",
                             "provenance", "properties"}),
    "location": (set(), {"physicalLocation", "logicalLocations"}),
    "physicalLocation": ({"artifactLocation"}, {"region", "contextRegion"}),
    "region": ({"startLine"}, {"endLine", "snippet"}),
}
ROLES = {"analysisTarget", "referencedOnCommandLine"}


def known(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    required, optional = KNOWN[kind]
    assert required <= set(data) <= required | optional, kind
    return data


def check(text: str) -> dict[str, Any]:
    """The run, after a check of every object in it."""
    log = known("log", json.loads(text))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    known("run", run)
    rules = known("driver", run["tool"]["driver"])["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        known("rule", rule)
        assert rule["help"]["text"]
        assert set(rule["help"]) <= MESSAGE
        assert len(rule["properties"]["tags"]) == len(set(rule["properties"]["tags"]))
    for invocation in run["invocations"]:
        known("invocation", invocation)
        assert isinstance(invocation["executionSuccessful"], bool)
        for notification in invocation.get("toolExecutionNotifications", []):
            known("notification", notification)
            assert notification["level"] in ("none", "note", "warning", "error")
            assert rules[notification["associatedRule"]["index"]]["id"] == notification["associatedRule"]["id"]
    for artifact in run["artifacts"]:
        _artifact_location(known("artifact", artifact)["location"])
        assert set(artifact["roles"]) <= ROLES
    for result in run["results"]:
        known("result", result)
        assert result["kind"] == "fail"
        assert result["level"] in ("none", "note", "warning", "error")
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert 0 <= result["provenance"]["invocationIndex"] < len(run["invocations"])
        assert all(isinstance(v, str) for v in result["partialFingerprints"].values())
        (place,) = result["locations"]
        physical = known("physicalLocation", known("location", place)["physicalLocation"])
        _artifact_location(physical["artifactLocation"])
        for region in (physical["region"], physical.get("contextRegion", physical["region"])):
            assert known("region", region)["startLine"] >= 1
            assert region.get("endLine", region["startLine"]) >= region["startLine"]
    return run


def _artifact_location(data: dict[str, Any]) -> None:
    known("artifactLocation", data)
    assert re.fullmatch(r"(file://)?[A-Za-z0-9_.~/%\-]+", data["uri"])
    assert ("uriBaseId" in data) == (not data["uri"].startswith(("file:", "../")))


def test_results_are_findings_and_rules_are_gates(narrow_report: Report) -> None:
    run = check(render(narrow_report))
    assert [r["name"] for r in run["tool"]["driver"]["rules"]] == [g.slug for g in narrow_report.gates]
    assert [r["ruleId"] for r in run["results"]] == [f.gate for f in narrow_report.findings]
    rule = run["tool"]["driver"]["rules"][0]
    assert rule["help"]["markdown"].startswith("# values (CMP-01)")
    assert rule["shortDescription"]["text"].endswith(".")
    (invocation,) = run["invocations"]
    assert (invocation["exitCode"], invocation["properties"]["label"]) == (1, "rejected")
    assert invocation["commandLine"].startswith("assay verify examples/matmul/reference.py ")


def test_the_level_is_that_of_the_tier(made_report: Report) -> None:
    findings = tuple(made_report.findings[0].model_copy(update={"tier": tier}) for tier in Tier)
    run = check(render(made_report.model_copy(update={"findings": findings})))
    assert {f.tier: r["level"] for f, r in zip(findings, run["results"], strict=True)} == {
        Tier.WRONG: "error", Tier.VIOLATION: "error", Tier.DIVERGENCE: "warning"}


def test_a_finding_that_names_a_line_points_to_it(bounds_report: Report) -> None:
    run = check(render(bounds_report))
    found = {f.source.line: r for f, r in zip(bounds_report.findings, run["results"], strict=True) if f.source}
    assert found
    for line, result in found.items():
        physical = result["locations"][0]["physicalLocation"]
        assert physical["region"]["startLine"] == line
        assert "tl.load" in physical["region"]["snippet"]["text"]
        assert physical["artifactLocation"]["uri"] == "examples/matmul/wrong_unmasked_depth.py"
        assert result["locations"][0]["logicalLocations"][0]["name"] == "matmul_kernel"
    entry = next(r for f, r in zip(bounds_report.findings, run["results"], strict=True) if f.source is None)
    assert entry["locations"][0]["physicalLocation"]["region"]["startLine"] == bounds_report.candidate.line


def test_fingerprints_stay_when_seed_lines_and_numbers_change(bounds_report: Report) -> None:
    moved = tuple(f.model_copy(update={"actual": "other", "probe": "bounds/other", "source": None, "error_map": None})
                  for f in bounds_report.findings)
    other = bounds_report.model_copy(update={"seed": 99, "findings": moved})
    assert fingerprints(other) == fingerprints(bounds_report)
    assert len(set(fingerprints(bounds_report))) == len(bounds_report.findings)


def test_findings_that_do_not_block_are_notes(narrow_report: Report) -> None:
    gates = tuple(g.model_copy(update={"blocking": False}) for g in narrow_report.gates)
    run = check(render(narrow_report.model_copy(update={"gates": gates})))
    assert {r["level"] for r in run["results"]} == {"note"}


def test_what_was_not_decided_is_told(made_report: Report) -> None:
    (invocation,) = check(render(made_report))["invocations"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["message"]["text"] == "layouts: inconclusive: out of memory"
    assert invocation["executionSuccessful"]
    broken = made_report.gates[3].model_copy(update={"outcome": Outcome.ERROR})
    (invocation,) = check(render(made_report.model_copy(update={"gates": (broken,), "findings": ()})))["invocations"]
    assert not invocation["executionSuccessful"]


def test_a_right_kernel_has_no_results(right_report: Report) -> None:
    run = check(render(right_report))
    assert run["results"] == []
    assert run["invocations"][0]["exitCode"] == 0


def test_several_reports_make_one_run(right_report: Report, real_report: Report, narrow_report: Report) -> None:
    run = check(to_sarif([right_report, real_report, narrow_report]))
    assert len(run["invocations"]) == 3
    assert {r["provenance"]["invocationIndex"] for r in run["results"]} == {1, 2}
    assert len({tuple(r["partialFingerprints"].values()) for r in run["results"]}) == len(run["results"])
    again = real_report.model_copy(update={"names": Names("reference.py", "other.py")})
    run = check(to_sarif([real_report, again]))
    assert len({tuple(r["partialFingerprints"].values()) for r in run["results"]}) == 2 * len(real_report.findings)
    with pytest.raises(ValueError, match="at least one report"):
        to_sarif([])


def test_hostile_text_makes_no_other_location(hostile_report: Report) -> None:
    run = check(render(hostile_report))
    assert "\x1b" not in json.dumps(run, ensure_ascii=False)
    assert all("gnp.exe" in unquote(r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
               for r in run["results"])


@pytest.mark.parametrize(("path", "expected"), [
    ("kernels/a b.py", {"uri": "kernels/a%20b.py", "uriBaseId": "%SRCROOT%"}),
    ("./k.py", {"uri": "k.py", "uriBaseId": "%SRCROOT%"}),
    ("../k.py", {"uri": "../k.py"}),
    ("/tmp/ü.py", {"uri": "file:///tmp/%C3%BC.py"}),
])
def test_paths_become_uris(path: str, expected: dict[str, str]) -> None:
    assert location(path) == expected


def test_the_category_tells_candidates_apart(right_report: Report) -> None:
    def category(name: str) -> str:
        found: str = check(render(right_report.model_copy(update={"names": Names("r.py", name)})))[
            "automationDetails"]["id"]
        return found

    assert category("a/one.py") == "assay/row_sum/one.py/"
    assert category("a/two.py") != category("a/one.py")
