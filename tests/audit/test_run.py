"""An audit loses nothing: rows that cannot run are counted, broken ones stop nobody, and a kill costs no row."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.audit.corpus import open_corpus
from assay.audit.jobs import task_seed
from assay.audit.outcome import Checks
from assay.audit.run import open_audit
from assay.audit.store import Store
from assay.audit.summary import all_records
from assay.errors import InputError

from .conftest import candidate, kill, reference, settings, small_corpus, start_audit, write_corpus


def results(folder: Path) -> dict[tuple[str, str], str]:
    """Every result as text, times left out."""
    found = {}
    with Store(folder) as store:
        for row in store.rows(chosen=True):
            for kind, (outcome, _) in store.outcomes(row.id).items():
                if outcome["report"] is not None:
                    del outcome["report"]["timing"]
                found[row.id, kind] = json.dumps(outcome, sort_keys=True)
    return found


def test_every_row_ends_where_it_belongs(small: Path) -> None:
    with Store(small) as store:
        found = {r.row["id"]: (r.row["status"], r.row["label"]) for r in all_records(store)}
    assert found == {
        "double/right": ("decided", "contract"),
        "double/slightly": ("decided", "rejected"),
        "double/plainly": ("decided", "rejected"),
        "double/swallows": ("decided", "rejected"),
        "rows/right": ("decided", "contract"),
        "rows/width": ("decided", "rejected"),
        "rows/syntax": ("decided", "rejected"),
        "rows/module": ("toolchain", "screened"),
        "broken": ("reference_broken", None),
        "unparsable": ("reference_broken", None),
        "no-inputs": ("not_auditable", None),
        "no-candidate": ("not_auditable", None),
        "not-accepted": ("not_accepted", None),
    }


def test_classes_are_inferred_where_the_corpus_gives_none(small: Path) -> None:
    with Store(small) as store:
        found = {row.id: row.op_class for row in store.rows()}
    assert found["double/right"] == "elementwise"
    assert found["rows/right"] == "reduction"
    assert found["broken"] == "unknown"


def test_killed_three_times_it_equals_the_one_left_alone(small: Path, tmp_path: Path) -> None:
    corpus = small.parent / "corpus.jsonl"
    expected = results(small)
    out = tmp_path / "killed"
    kept = []
    for cut in (1, len(expected) // 3, 2 * len(expected) // 3):
        process = start_audit(corpus, out)
        while not (out / "audit.sqlite").exists() or count(out) < cut:
            assert process.poll() is None
            time.sleep(0.02)
        kill(process)
        kept.append(count(out))
    process = start_audit(corpus, out)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert 1 <= kept[0] <= kept[1] <= kept[2] < len(expected)
    assert results(out) == expected
    import pyarrow.parquet as parquet

    ids = parquet.read_table(out / "rows.parquet")["id"].to_pylist()
    assert ids == [row["id"] for row in small_corpus()]


def count(folder: Path) -> int:
    try:
        with Store(folder) as store:
            return store.results()
    except InputError:
        # not set up yet
        return 0


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_finished_and_says_so(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    process = start_audit(small.parent / "corpus.jsonl", out)
    while not (out / "audit.sqlite").exists() or count(out) < 1:
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "Traceback" not in err
    assert 1 <= count(out) < len(results(small))
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("assay-") and "tasks" not in p.name]


def test_an_audit_goes_on_only_as_itself(small: Path, tmp_path: Path) -> None:
    corpus = small.parent / "corpus.jsonl"
    with Store(tmp_path / "a", write=True) as store:
        open_audit(store, open_corpus(corpus), settings())
        with pytest.raises(InputError, match="tier"):
            open_audit(store, open_corpus(corpus), settings(tier="deep"))
        with pytest.raises(InputError, match="another corpus"):
            open_audit(store, open_corpus(write_corpus(tmp_path / "b.jsonl", small_corpus()[:2])), settings())
        # without a seed it takes the one it has
        assert open_audit(store, open_corpus(corpus), settings(seed=None)).seed == 3


def test_one_process_at_a_time_writes(tmp_path: Path) -> None:
    with Store(tmp_path, write=True), pytest.raises(InputError, match="another process"):
        Store(tmp_path, write=True)
    with Store(tmp_path, write=True):
        pass


def test_a_result_is_kept_once(tmp_path: Path) -> None:
    with Store(tmp_path, write=True) as store:
        assert store.finish("a", "battery", "contract", {"report": None}, 1.0)
        assert not store.finish("a", "battery", "rejected", {"report": None}, 1.0)
        assert store.verdicts("a") == {"battery": "contract"}


def test_a_corpus_with_one_id_twice_keeps_both(tmp_path: Path) -> None:
    rows = [{"id": "x", "reference": reference("x"), "candidate": candidate(text)} for text in ("x", "x + 0", "x * 1")]
    with Store(tmp_path / "a", write=True) as store:
        open_audit(store, open_corpus(write_corpus(tmp_path / "c.jsonl", rows)), settings())
        assert [row.id for row in store.rows()] == ["x", "x#2", "x#3"]


def test_rows_of_one_task_are_neighbours_and_share_a_seed(tmp_path: Path) -> None:
    rows = [{"id": f"{n}", "reference": reference(text), "candidate": candidate("x")}
            for n, text in enumerate(("x", "x * 2", "x", "x * 2", "x"))]
    with Store(tmp_path / "a", write=True) as store:
        open_audit(store, open_corpus(write_corpus(tmp_path / "c.jsonl", rows)), settings())
        ordered = list(store.rows(by_task=True))
    assert [row.id for row in ordered] == ["0", "2", "4", "1", "3"]
    assert len({task_seed(3, row.task_key) for row in ordered}) == 2
    assert task_seed(4, ordered[0].task_key) != task_seed(3, ordered[0].task_key)


def test_a_sample_is_the_same_for_the_same_seed_and_in_proportion(tmp_path: Path) -> None:
    rows = [{"id": f"{n}", "reference": reference("x"), "candidate": candidate(f"x + {n}"),
             "generator": "ab"[n % 4 == 0], "speedup": -1.0 if n == 7 else 1.0} for n in range(40)]
    corpus = write_corpus(tmp_path / "c.jsonl", rows)
    drawn = []
    for name in ("a", "b"):
        with Store(tmp_path / name, write=True) as store:
            open_audit(store, open_corpus(corpus), settings(sample=12, stratify="generator"))
            drawn.append([row.id for row in store.rows(chosen=True)])
    assert drawn[0] == drawn[1]
    assert "7" not in drawn[0]
    assert Counter(int(id) % 4 == 0 for id in drawn[0]) == {False: 9, True: 3}


def test_stratifying_by_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl")
    with Store(tmp_path / "a", write=True) as store, pytest.raises(InputError, match="no column `colour`"):
        open_audit(store, open_corpus(corpus), settings(sample=2, stratify="colour"))


@pytest.mark.parametrize(("mode", "verdicts", "due"), [
    ("screen-first", {}, ["screen:hardened"]),
    ("screen-first", {"screen:hardened": "pass"}, ["battery"]),
    ("screen-first", {"screen:hardened": "fail"}, []),
    ("screen-first", {"screen:hardened": "inconclusive"}, ["battery"]),
    ("both", {}, ["screen:hardened", "battery"]),
    ("both", {"screen:hardened": "fail"}, ["battery"]),
    ("battery", {}, ["battery"]),
    ("battery", {"battery": "rejected"}, []),
    ("screen", {}, ["screen:hardened"]),
    ("screen", {"screen:hardened": "pass"}, []),
])
def test_what_a_row_still_needs(mode: str, verdicts: dict[str, str], due: list[str]) -> None:
    assert Checks(mode, ("hardened",)).due(verdicts) == due


@pytest.mark.parametrize(("arguments", "words"), [
    (["missing.jsonl", "-o", "out"], "no such corpus"),
    (["corpus.jsonl"], "no folder for the audit"),
    (["corpus.jsonl", "-o", "out", "--both", "--screen-only"], "exclude each other"),
    (["corpus.jsonl", "-o", "out", "--stratify", "run"], "no sample to stratify"),
    (["corpus.jsonl", "-o", "out", "--backend", "cloud"], "no backend `cloud`"),
    (["corpus.jsonl", "-o", "out", "--only", "valuse"], "did you mean `values`"),
    (["-o", "out"], "no audit in this folder to go on with"),
    (["notes.txt", "-o", "out"], "no known form of a corpus"),
    (["empty", "-o", "out"], "no candidates in this folder"),
])
def test_bad_input_is_refused_in_one_line(arguments: list[str], words: str, tmp_path: Path, assay: Any,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "corpus.jsonl")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    said = assay("audit", "run", *arguments)
    assert said.status == 2
    assert words in said.err
    assert len(said.err.splitlines()) == 1
    assert not os.path.exists("out/audit.sqlite")
