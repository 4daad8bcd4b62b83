"""What an audit says of itself: every count follows from its rows, and every rate has its denominator."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.audit.compare import compare
from assay.audit.corpus import CorpusRow
from assay.audit.floors import COMPOSITIONS, POLICIES, Marks, marks
from assay.audit.outcome import Records, records, verdict_of
from assay.audit.sheet import FIELDS, precision, read
from assay.audit.store import Store
from assay.audit.summary import Summary, all_records, summarise
from assay.errors import InputError

from .conftest import settings

Outcomes = dict[str, tuple[dict[str, Any], float]]


@pytest.fixture(scope="module")
def summary(small: Path) -> Summary:
    with Store(small) as store:
        return summarise(store)


def test_the_funnel_adds_up(summary: Summary) -> None:
    assert summary.rows == 13
    assert sum(summary.statuses.values()) == 13
    assert summary.statuses == {"decided": 7, "toolchain": 1, "reference_broken": 2, "not_auditable": 2,
                                "not_accepted": 1}


def test_rates_are_over_what_was_decided(summary: Summary) -> None:
    assert (summary.whole.decided, summary.whole.rejected) == (7, 5)
    assert sum(group.decided for group in summary.classes.values()) == 7
    assert summary.classes["elementwise"].rejected == 3
    assert sum(summary.whole.tiers.values()) == 5


def test_every_gate_accounts_for_every_decided_row(summary: Summary) -> None:
    assert set(summary.gates) == {"values", "shapes", "nonfinite", "output_aliasing"}
    assert all(sum(counts.values()) == 7 for counts in summary.gates.values())
    assert all(sum(summary.reasons[slug, "fail"].values()) == summary.gates[slug]["fail"] for slug in summary.gates)


def test_the_floor_is_told_by_policy(summary: Summary) -> None:
    # the one that swallows NaN, and the one that has no output
    assert summary.floors["strict floor", "propagate"] == 2
    assert summary.floors["strict floor", "NaN waived"] == 1
    assert summary.floors["strict floor", "ignore"] == 1
    assert summary.alone["propagate"] == {"nonfinite": 1, "no output": 1}
    assert summary.left_out["propagate", "nonfinite"] == 1


def test_a_gate_that_decides_alone_is_told(summary: Summary) -> None:
    assert summary.sole["nonfinite"] == 1
    assert summary.without["nonfinite"] == 4
    assert summary.without["output_aliasing"] == 5


def test_the_differential_has_both_directions(summary: Summary) -> None:
    table = summary.screens["kernelbench-v0"]
    # the screen's 1e-2 lets a factor of 2.001, a width and a swallowed NaN through
    assert table.cells == {(True, True): 2, (True, False): 3, (False, False): 2}
    assert table.strict == 1
    assert table.undecided == 1
    assert (table.test.first, table.test.second) == (3, 0)
    assert table.test.p == pytest.approx(0.25)


def test_speedups_count_only_behind_the_contract(summary: Summary) -> None:
    assert summary.speedups == 8
    assert summary.fast[1.0] == {"claimed": 5, "screened": 2, "contract": 1}
    assert summary.fast[0.5] == {"claimed": 8, "screened": 5, "contract": 2}


def test_rows_are_grouped_by_what_the_corpus_names(summary: Summary) -> None:
    assert {name: group.decided for name, group in summary.groups["generator"].items()} == {"first": 4, "second": 3}
    assert {name: group.rejected for name, group in summary.groups["month"].items()} == {"2026-03": 3, "2026-05": 2}
    assert not summary.groups["run"]


def test_marks_under_policies() -> None:
    both = Marks(frozenset({"nonfinite", "aliasing"}), nan_only=True)
    assert [both.floor(policy=policy) for policy in POLICIES] == [
        {"nonfinite", "aliasing"}, {"aliasing"}, {"aliasing"}]
    shapes = Marks(frozenset({"shapes", "subnormals"}), nan_only=False)
    assert [bool(shapes.floor(name)) for name in COMPOSITIONS] == [False, False, True, True, True]


def test_a_kernel_that_fails_for_infinities_too_is_not_let_off() -> None:
    finding = {"slug": "nonfinite", "reason": "nan_swallowed", "actual": "0.0", "injected": "nan"}
    for note, waived in (("3 of 4 NaN probes failed, 1 of 4 Inf probes failed", False),
                         ("3 of 4 NaN probes failed, 0 of 4 Inf probes failed", True), (None, True)):
        found = Records({"no_output": False}, [{"slug": "nonfinite", "note": note}], [finding])
        assert marks(found).nan_only is waived


def test_an_unfinished_audit_says_what_is_missing(small: Path, tmp_path: Path) -> None:
    shutil.copy(small / "audit.sqlite", tmp_path / "audit.sqlite")
    with Store(tmp_path, write=True) as store:
        assert store.forget("contract") == 2
        found = {r.row["id"]: r.row["status"] for r in all_records(store)}
        assert (found["double/right"], found["rows/right"]) == ("pending", "pending")
        kept = store.row("rows/width")
        assert kept is not None
        outcomes = store.outcomes("rows/width")
        only_screened = {"screen:kernelbench-v0": outcomes["screen:kernelbench-v0"]}
        assert records(kept, only_screened, settings().checks).row["status"] == "pending"


def test_the_three_forms_of_a_report_agree(small: Path, tmp_path: Path, assay: Any) -> None:
    pytest.importorskip("matplotlib")
    said = assay("audit", "report", small, "--json", tmp_path / "r.json", "--markdown", tmp_path / "r.md", "--html",
                 tmp_path / "r.html")
    assert said.status == 0
    data = json.loads((tmp_path / "r.json").read_text())
    page, text = (tmp_path / "r.html").read_text(), (tmp_path / "r.md").read_text()
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert len(titles) > 10
    for title in titles:
        assert title in said.out
        assert f">{title}</h2>" in page
    assert (data["whole"]["rejected"]["count"], data["whole"]["rejected"]["total"]) == (5, 7)
    assert data["screens"]["kernelbench-v0"]["cells"] == {"pass/pass": 2, "pass/fail": 3, "fail/pass": 0,
                                                          "fail/fail": 2}
    assert data["gates"]["nonfinite"]["alone"] == 1
    assert re.search(r"rejected, of decided +5/7 +71\.4 %", said.out)
    assert "| rejected, of decided | 5/7 | 71.4 %" in text
    assert page.count("<svg") == 5
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "://" not in re.sub(r'(xmlns(:\w+)?|rdf:\w+)="[^"]*"|<!DOCTYPE[^>]*>', "", page)


def copied(source: Path, target: Path, change: Callable[[CorpusRow], CorpusRow],
           outcome: Callable[[str, Store], Outcomes]) -> None:
    """The chosen rows of an audit as an audit of its own, with other facts or other results."""
    with Store(source) as old, Store(target, write=True) as new:
        rows = list(old.rows(chosen=True))
        new.set("settings", old.get("settings") or "")
        new.ingest(change(CorpusRow(row.id, old.source(row.reference), old.source(row.candidate), task=row.task,
                                    accepted=True, problem=row.problem)) for row in rows)
        new.choose(range(len(rows)))
        for row, made in zip(rows, new.rows(), strict=True):
            for kind, (data, seconds) in outcome(row.id, old).items():
                new.finish(made.id, kind, verdict_of(data), data, seconds)


def test_a_corpus_cannot_write_into_the_page(small: Path, tmp_path: Path, assay: Any) -> None:
    pytest.importorskip("matplotlib")
    evil = "<script>alert(1)</script>\x1b[31m"
    copied(small, tmp_path / "evil",
           lambda row: replace(row, id=evil + row.id, task=evil, op_class=evil, generator=evil, created=evil,
                               speedup=1.0), lambda id, old: old.outcomes(id))
    said = assay("audit", "report", tmp_path / "evil", "--html", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "\x1b" not in page + said.out
    assay("audit", "sample", tmp_path / "evil", "-n", "2", "-o", tmp_path / "s.html")
    assert "<script" not in (tmp_path / "s.html").read_text()


def test_a_query_reads_and_only_reads(small: Path, assay: Any) -> None:
    pytest.importorskip("duckdb")
    said = assay("audit", "query", small, "SELECT op_class, rejected FROM class_rates ORDER BY op_class", "--json", "-")
    assert json.loads(said.out) == [{"op_class": "elementwise", "rejected": 3}, {"op_class": "reduction",
                                                                                "rejected": 2}]
    said = assay("audit", "query", small, "SELECT count(*) AS n FROM rows WHERE strict_floor", "--json", "-")
    assert json.loads(said.out) == [{"n": 2}]
    for sql in ("DROP TABLE rows", "SELECT * FROM read_text('/etc/hostname')", "COPY rows TO 'x.csv'", "SELEC 1",
                "SELECT 1; SELECT 2", "SET threads = 1", "ATTACH 'x.db'", "INSTALL httpfs"):
        said = assay("audit", "query", small, sql)
        assert said.status == 2, sql
        assert len(said.err.splitlines()) == 1


def test_every_view_answers(small: Path, assay: Any) -> None:
    pytest.importorskip("duckdb")
    from assay.audit.query import VIEWS

    for name in VIEWS:
        assert assay("audit", "query", small, f"SELECT * FROM {name}").status == 0, name


def test_the_tables_agree_with_the_summary(small: Path, summary: Summary, assay: Any) -> None:
    pytest.importorskip("duckdb")
    said = assay("audit", "query", small, "SELECT slug, fail, pass FROM gate_rates", "--json", "-")
    assert {r["slug"]: (r["fail"], r["pass"]) for r in json.loads(said.out)} == {
        slug: (counts["fail"], counts["pass"]) for slug, counts in summary.gates.items()}
    said = assay("audit", "query", small, "SELECT slug, rows FROM sole_gates", "--json", "-")
    assert {r["slug"]: r["rows"] for r in json.loads(said.out)} == dict(summary.sole)


def test_an_audit_agrees_with_itself(small: Path) -> None:
    with Store(small) as store:
        found = compare(all_records(store), all_records(store), ("a", "b"))
    assert found.cells == {("contract", "contract"): 2, ("rejected", "rejected"): 5, ("undecided", "undecided"): 1}
    assert found.differing == []


def test_two_audits_differ_where_a_verdict_does(small: Path, tmp_path: Path, assay: Any) -> None:
    copied(small, tmp_path / "other", lambda row: row,
           lambda id, old: old.outcomes("double/right" if id == "double/swallows" else id))
    said = assay("audit", "compare", small, tmp_path / "other", "--json", "-")
    data = json.loads(said.out)
    assert said.status == 0
    assert data["labels"] == {"contract/contract": 2, "rejected/contract": 1, "rejected/rejected": 4,
                              "undecided/undecided": 1}
    assert data["differing"] == [{"id": "double/swallows", "first": "rejected", "second": "contract",
                                  "gates": {"nonfinite": ["fail", "pass"]}}]


def test_a_sheet_is_drawn_replayed_filled_and_counted(small: Path, tmp_path: Path, assay: Any) -> None:
    sheet = tmp_path / "sheet.html"
    said = assay("audit", "sample", small, "-n", "4", "--stratify", "gate", "-o", sheet)
    assert said.status == 0
    rows = read(tmp_path / "sheet.csv")
    assert [tuple(row) for row in rows] == [FIELDS] * 4
    assert {row["stratum"] for row in rows} == {"values", "nonfinite", "shapes"} & {row["gate"] for row in rows}
    page = sheet.read_text()
    assert all(row["id"] in page for row in rows)
    swallows = next(row for row in rows if row["id"] == "double/swallows")
    command = swallows["replay"].split()
    replayed = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True)
    assert replayed.returncode == 1
    assert "a NaN of the reference is lost" in replayed.stdout
    for row, word in zip(rows, ("yes", "Yes", "no", "?"), strict=True):
        row["human"] = word
    with (tmp_path / "sheet.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    said = assay("audit", "precision", tmp_path / "sheet.csv", "--json", "-")
    data = json.loads(said.out)
    assert (data["precision"]["count"], data["precision"]["total"], data["unclear"]) == (2, 3, 1)
    assert data["false_alarms"] == [rows[2]["id"]]
    # a sheet that somebody has filled is not overwritten
    assert assay("audit", "sample", small, "-n", "4", "-o", sheet).status == 2


def test_a_sheet_in_markdown_can_be_filled_too(small: Path, tmp_path: Path, assay: Any) -> None:
    sheet = tmp_path / "sheet.md"
    assay("audit", "sample", small, "-n", "2", "--label", "contract", "-o", sheet)
    lines = sheet.read_text().splitlines()
    filled = [re.sub(r" \|  \|  \|$", " | yes | seen |", line) for line in lines]
    assert filled != lines
    sheet.write_text("\n".join(filled))
    found = precision(read(sheet), "sheet")
    assert (found.rate.count, found.rate.total) == (2, 2)


@pytest.mark.parametrize("word", ["maybe", "2", "ja"])
def test_a_word_that_is_no_answer_is_refused(word: str) -> None:
    row = dict.fromkeys(FIELDS, "") | {"population": "3", "human": word}
    with pytest.raises(InputError, match="column human"):
        precision([row], "sheet.csv")


def test_other_files_are_no_sheet(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    for name in ("a.csv", "missing.csv"):
        with pytest.raises(InputError):
            read(tmp_path / name)


def test_a_folder_without_an_audit_is_refused_in_one_line(tmp_path: Path, assay: Any) -> None:
    for command in ("report", "sample"):
        said = assay("audit", command, tmp_path)
        assert said.status == 2
        assert "no audit in this folder" in said.err
