"""Corpora of every form become the same rows; what cannot be used says so and stops nobody."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.audit.corpus import CorpusRow, open_corpus
from assay.audit.jobs import checked
from assay.audit.records import NAMES, from_record, last_code
from assay.audit.store import Store
from assay.errors import InputError

from .conftest import candidate, reference, write_corpus

PAIR = {"reference": reference("x"), "candidate": candidate("x")}


def rows_of(path: Path, **more: Any) -> list[CorpusRow]:
    return list(open_corpus(path, **more).rows())


def test_json_lines(tmp_path: Path) -> None:
    record = {"id": 7, **PAIR, "entry_point": "Model", "op_class": "conv", "accepted": True, "speedup": 1.5,
              "generator": "g", "run": "r", "created": "2026-01-02", "level": 2, "long": "x" * 900}
    [row] = rows_of(write_corpus(tmp_path / "c.jsonl", [record]))
    assert (row.id, row.op_class, row.accepted, row.speedup, row.generator, row.run, row.created) == (
        "7", "conv", True, 1.5, "g", "r", "2026-01-02")
    assert row.extra == {"level": 2}
    assert row.problem is None


def test_compressed_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps({"id": "a", **PAIR}) + "\n").encode()))
    assert [row.id for row in rows_of(path)] == ["a"]


def test_a_damaged_archive_gives_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    lines = "".join(json.dumps({"id": n, **PAIR, "noise": hash(n) % 10**9}) + "\n" for n in range(400))
    path.write_bytes(gzip.compress(lines.encode())[:-40])
    found = rows_of(path)
    assert found[0].id == "0"
    assert "ends early" in (found[-1].problem or "")


def test_parquet_is_read_as_json_lines_are(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    records = [{"id": "a", **PAIR, "final_speedup": 0.0}, {"id": "b", "reference": None, "candidate": "x",
                                                           "final_speedup": 2.0}]
    parquet.write_table(arrow.Table.from_pylist(records), tmp_path / "c.parquet")
    assert rows_of(tmp_path / "c.parquet") == rows_of(write_corpus(tmp_path / "c.jsonl", records))


def test_broken_lines_are_rows_with_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"id": "a"}\nnot json\n[1, 2]\n\xff\xfe\n\n' + json.dumps({"id": "z", **PAIR}).encode())
    found = rows_of(path)
    assert [(row.id, row.problem is None) for row in found] == [
        ("a", False), ("line-2", False), ("line-3", False), ("line-4", False), ("z", True)]


def test_text_that_cannot_be_kept_stops_nobody(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps({"id": "a\ud800", "reference": "\ud800", "candidate": "x = '\ud800'", "note": "\udfff",
                                "\ud801": 1, "generator": "\ud800", "huge": 10**400, "speedup": 10**400})
                    + "\n" + json.dumps({"id": "b", **PAIR}) + "\n")
    with Store(tmp_path / "out", write=True) as store:
        assert store.ingest(checked(open_corpus(path).rows())) == 2
        store.choose([0, 1])
        assert [row.id for row in store.rows()] == ["a?", "b"]
        assert [row.problem is None for row in store.rows()] == [False, True]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8)
    | st.sampled_from([reference("x"), "```\nx\n```", "assistant"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["role", "content", "text", "value", "numerics"]), inner, max_size=3), max_leaves=6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record=st.dictionaries(st.sampled_from([*(n for names in NAMES.values() for n in names), "messages", "else"]),
                              VALUES, max_size=8))
def test_no_record_stops_the_reading(record: dict[str, Any], tmp_path: Path) -> None:
    with Store(tmp_path, write=True) as store:
        assert store.ingest(checked([from_record(record, "unnamed")])) == 1
        [row] = store.rows()
        assert row.problem is None or isinstance(row.problem, str)
        assert (row.reference is None) <= (row.problem is not None)


def test_a_trajectory_gives_the_last_block_of_the_last_turn() -> None:
    said = [{"role": "user", "content": "```python\nask\n```"},
            {"role": "assistant", "content": "```python\nfirst\n```"},
            {"role": "user", "content": "wrong"},
            {"role": "assistant", "content": "so:\n```python\nplan\n```\nand\n~~~~py\nfinal = '''```'''\n~~~~\ndone"},
            {"role": "user", "content": "thanks"}]
    row = from_record({"uuid": "u-1", "messages": said, "original_python_code": "ref", "entry_point": "Softmax",
                       "final_speedup": 1.4}, "row-1")
    assert (row.id, row.candidate, row.reference, row.entry, row.accepted) == (
        "u-1", "final = '''```'''\n", "ref", "Softmax", True)


@pytest.mark.parametrize("messages", [None, [], "nonsense", [{"role": "user", "content": "```\nx\n```"}],
                                      [{"role": "assistant", "content": "no code"}], [3], {"role": "assistant"},
                                      [{"role": "assistant", "content": "```python\nnever closed"}]])
def test_a_trajectory_without_code_has_no_candidate(messages: Any) -> None:
    assert last_code(messages) is None


def test_a_turn_in_parts_and_messages_as_text() -> None:
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "```\r\na\r\n```"}]}]
    assert last_code(parts) == "a\n"
    assert last_code(json.dumps(parts)) == "a\n"


@pytest.mark.parametrize(("speedup", "accepted"), [(1.2, True), (0.0, False), (-1.0, False), (None, None),
                                                   (float("nan"), None), ("fast", None)])
def test_a_speedup_says_whether_the_corpus_accepted(speedup: Any, accepted: bool | None) -> None:
    assert from_record({**PAIR, "final_speedup": speedup}, "a").accepted is accepted


def test_folders_of_pairs(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "deep" / "two"
    (two / "candidates").mkdir(parents=True)
    one.mkdir()
    for folder in (one, two):
        (folder / "reference.py").write_text(reference("x"))
    (one / "right.py").write_text(candidate("x"))
    (one / "wrong.py").write_text(candidate("x + 1"))
    (one / "about.json").write_text(json.dumps({"op_class": "elementwise", "candidates": {
        "wrong.py": {"accepted": False, "generator": "g"}}}))
    (two / "candidates" / "a.py").write_bytes(b"\xff")
    found = {row.id: row for row in rows_of(tmp_path)}
    assert list(found) == ["deep/two/a", "one/right", "one/wrong"]
    assert found["one/right"].op_class == "elementwise"
    assert (found["one/wrong"].accepted, found["one/wrong"].generator) == (False, "g")
    assert found["one/wrong"].task == "one"
    assert "cannot be read" in (found["deep/two/a"].problem or "")


def kernelbench(root: Path) -> Path:
    (root / "KernelBench" / "level1").mkdir(parents=True)
    (root / "KernelBench" / "level1" / "3_Scale.py").write_text(reference("x * 2"))
    run = root / "runs" / "july"
    run.mkdir(parents=True)
    (run / "level_1_problem_3_sample_0_kernel.py").write_text(candidate("x + x"))
    (run / "level_1_problem_3_sample_1_kernel.py").write_text(candidate("x * 3"))
    (run / "level_1_problem_9_sample_0_kernel.py").write_text(candidate("x"))
    (run / "eval_results.json").write_text(json.dumps({"3": [
        {"sample_id": 0, "compiled": True, "correctness": True, "runtime": 0.5, "metadata": {}, "runtime_stats": {}},
        {"sample_id": 1, "compiled": True, "correctness": False, "runtime": -1.0}]}))
    return root / "runs"


@pytest.mark.parametrize("below", ["", "runs", "runs/july"])
def test_kernelbench_runs(below: str, tmp_path: Path) -> None:
    kernelbench(tmp_path)
    found = {row.id.rsplit("/", 1)[-1]: row for row in rows_of(tmp_path / below)}
    first = found["level_1_problem_3_sample_0"]
    assert first.reference == reference("x * 2")
    assert (first.task, first.accepted, first.extra["runtime"]) == ("level1/3_Scale", True, 0.5)
    assert first.run is not None
    assert first.run.endswith("july")
    assert found["level_1_problem_3_sample_1"].accepted is False
    assert found["level_1_problem_9_sample_0"].problem == "no problem 9 in level1"


def test_runs_without_their_problems_ask_for_them(tmp_path: Path) -> None:
    runs = kernelbench(tmp_path)
    moved = tmp_path / "elsewhere" / "deeper" / "here"
    moved.mkdir(parents=True)
    runs.rename(moved / "runs")
    with pytest.raises(InputError, match="--problems"):
        open_corpus(moved / "runs")
    assert len(rows_of(moved / "runs", problems=tmp_path / "KernelBench")) == 3


def test_the_digest_of_a_corpus_follows_its_content(tmp_path: Path) -> None:
    kernelbench(tmp_path)
    before = open_corpus(tmp_path / "runs").digest
    (tmp_path / "KernelBench" / "level1" / "3_Scale.py").write_text(reference("x * 4"))
    assert open_corpus(tmp_path / "runs").digest != before


@pytest.mark.parametrize(("change", "words"), [
    ({"reference": "class Model(:"}, "reference: SyntaxError"),
    ({"reference": "x = 1"}, "no class Model"),
    ({"entry": "Other"}, "no class Other"),
    ({"contract": {"numerics": {"matmull": "tf32"}}}, "its contract"),
    ({"contract": "not json"}, "its contract is not JSON"),
    ({}, None),
])
def test_what_cannot_be_run_is_known_before_anything_runs(change: dict[str, Any], words: str | None) -> None:
    [row] = checked([from_record({"id": "a", **PAIR, **change}, "a")])
    assert row.problem is None if words is None else words in (row.problem or "")
