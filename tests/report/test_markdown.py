"""The summary in GitHub's Markdown."""

from __future__ import annotations

import re

from assay.report.markdown import LIMIT, escaped, fenced, render
from assay.report.model import Report


def test_the_verdict_comes_first_and_failing_gates_are_not_folded(real_report: Report) -> None:
    text = render(real_report)
    lines = text.splitlines()
    assert lines[0] == "## ❌ Assay: rejected"
    assert lines[2].startswith("rejected on cpu-emulation: ")
    failing = [g.slug for g in real_report.gates if g.outcome.value == "fail"]
    open_part, folded = text.split("<details>", 1)
    assert all(re.search(rf"^\| {slug} \| \*\*FAIL\*\* \|", open_part, re.MULTILINE) for slug in failing)
    assert "| values | pass |" in folded
    assert text.count("\n### ") == len(real_report.findings)
    assert "assay verify examples/row_sum/reference.py" in text


def test_a_right_kernel_has_no_findings(right_report: Report) -> None:
    text = render(right_report)
    assert text.startswith("## ✅ Assay: contract")
    assert "###" not in text
    assert "<details>" not in text


def test_every_table_row_has_its_columns(hostile_report: Report) -> None:
    columns = 0
    for line in render(hostile_report).splitlines():
        if line.startswith("|"):
            count = len(re.findall(r"(?<!\\)\|", line))
            columns = columns or count
            assert count == columns
        else:
            columns = 0


def test_hostile_text_is_neither_html_nor_markdown(hostile_report: Report) -> None:
    text = re.sub(r"^(`{3,}).*?^\1$", "", render(hostile_report), flags=re.MULTILINE | re.DOTALL)
    ours = {"<details>", "<summary>", "</summary>", "</details>", "<sub>", "</sub>"}
    assert set(re.findall(r"</?\w+>?", text)) <= ours
    assert "https://" not in text
    assert "www." not in text
    assert "](" not in text
    assert "\x1b" not in render(hostile_report)


def test_code_is_fenced_by_more_than_it_holds() -> None:
    assert fenced("a\n```\nb", "py") == "````py\na\n```\nb\n````"


def test_ordinary_text_is_left_as_it_is() -> None:
    plain = "out[0] is off by 3.5 (sm_90, K=8192): 24/25 probes + 1"
    assert escaped(plain) == plain.replace("[", "&#91;").replace("]", "&#93;")
    assert escaped("__init__") == "&#95;&#95;init&#95;&#95;"


def test_a_summary_never_grows_past_what_is_shown(made_report: Report) -> None:
    long = made_report.findings[0].model_copy(update={"expected": "x" * 30_000})
    text = render(made_report.model_copy(update={"findings": (long,) * 60}))
    assert len(text.encode()) <= LIMIT
    left = re.search(r"^(\d+) more findings, in the JSON report\.$", text, re.MULTILINE)
    assert left is not None
    assert int(left.group(1)) + text.count("\n### ") == 60
