"""The store keeps what it was given, and says so when it cannot."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.evidence.made import evidence_of, report_of, task_and_candidate

from assay.contract import Contract
from assay.evidence import Store, StoreDamaged, StoreError, StoreUnwritable
from assay.task import Candidate, Task


@pytest.fixture
def pair() -> tuple[Task, Candidate]:
    return task_and_candidate("x + 1")


def test_a_verdict_reads_back_whole(tmp_path: Path, pair: tuple[Task, Candidate]) -> None:
    report = report_of(*pair, findings=2)
    with Store.open(tmp_path / "s", create=True) as store:
        identity = store.put_report(report, *pair, Contract(), evidence_of(report))
        kept = store.verdict(identity[:8])
        assert (kept.id, kept.task, kept.candidate, kept.contract) == (identity, *pair, Contract())
        assert kept.report.findings[0].id
        assert kept.report.model_copy(update={"findings": report.findings}) == report
        found = store.findings(identity)
        assert [f.finding.reason for f in found] == [f.reason for f in report.findings]
        assert found[0].bundle is not None
        tensors = store.tensors(found[0])
        assert tensors["input.0.0"].tolist() == [1.0, 2.0]
        assert tensors["actual.0.0"].is_complex()
        assert store.verify() == []


def test_keeping_a_verdict_twice_changes_nothing(tmp_path: Path, pair: tuple[Task, Candidate]) -> None:
    report = report_of(*pair, findings=1)
    with Store.open(tmp_path / "s", create=True) as store:
        first = store.put_report(report, *pair, Contract(), evidence_of(report))
        before = store.stats()
        slower = report.model_copy(update={"timing": report.timing.model_copy(update={"total_s": 9.0})})
        assert store.put_report(slower, *pair, Contract(), evidence_of(report)) == first
        after = store.stats()
    assert {**before, "database_bytes": 0} == {**after, "database_bytes": 0}


def test_a_finding_is_found_by_the_start_of_its_name(tmp_path: Path, pair: tuple[Task, Candidate]) -> None:
    report = report_of(*pair, findings=3)
    with Store.open(tmp_path / "s", create=True) as store:
        store.put_report(report, *pair, Contract())
        name = store.verdict(store.verdicts()[0].id).report.findings[1].id
        assert store.finding(name[:9]).finding.reason == report.findings[1].reason
        with pytest.raises(StoreError, match="no finding `ffffffffffff`"):
            store.finding("f" * 12)
        with pytest.raises(StoreError, match="no finding `%`"):
            store.finding("%")
        with pytest.raises(StoreError, match="more than one finding"):
            store.finding(_shared_start(store))


def _shared_start(store: Store) -> str:
    """A start that at least two of the store's findings have; made so by adding findings until there is one."""
    seen: set[str] = set()
    for number in range(200):
        pair = task_and_candidate(f"x + {number}")
        store.put_report(report_of(*pair, findings=1), *pair, Contract())
        for found in store.findings(store.verdicts(limit=1)[0].id):
            if found.id[:1] in seen:
                return found.id[:1]
            seen.add(found.id[:1])
    raise AssertionError("two hundred names without a common first digit")


def test_an_export_is_a_store_of_its_own(tmp_path: Path, pair: tuple[Task, Candidate]) -> None:
    other_pair = task_and_candidate("x + 2")
    report, other = report_of(*pair, findings=2), report_of(*other_pair, findings=1)
    with Store.open(tmp_path / "s", create=True) as store:
        identity = store.put_report(report, *pair, Contract(), evidence_of(report))
        store.put_report(other, *other_pair, Contract(), evidence_of(other))
        finding = store.findings(identity)[0].id
        assert store.export(tmp_path / "one", [finding])["verdicts"] == 1
        assert store.export(tmp_path / "all")["verdicts"] == 2
        # into a store that has them already
        assert store.export(tmp_path / "all")["verdicts"] == 2
    with Store.open(tmp_path / "one") as copy:
        assert copy.verify() == []
        assert copy.stats()["verdicts"] == 1
        assert copy.tensors(copy.finding(finding))["input.0.0"].tolist() == [1.0, 2.0]
    with Store.open(tmp_path / "all") as copy:
        assert copy.stats()["verdicts"] == 2


def test_gc_removes_what_nothing_refers_to_and_nothing_else(tmp_path: Path, pair: tuple[Task, Candidate]) -> None:
    other_pair = task_and_candidate("x + 2")
    with Store.open(tmp_path / "s", create=True) as store:
        for each in (pair, other_pair):
            report = report_of(*each, findings=1)
            store.put_report(report, *each, Contract(), evidence_of(report))
        stray = tmp_path / "s/tensors/ab/.left-by-a-killed-writer"
        stray.parent.mkdir(exist_ok=True, parents=True)
        stray.write_bytes(b"half")
        assert store.gc() == {"verdicts": 0, "texts": 0, "files": 1, "bytes": 4}
        latest = store.verdicts(limit=1)[0].id
        removed = store.gc(keep=1)
        assert removed["verdicts"] == 1
        assert [v.id for v in store.verdicts()] == [latest]
        # both findings had the same tensors
        assert removed["files"] == 0
        assert store.verify() == []
        store.gc(keep=0)
        assert store.stats()["tensor_files"] == 0
        assert not list((tmp_path / "s/tensors").glob("*/*"))


def test_there_is_no_store_until_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        Store.open(tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("harm", ["truncated", "empty", "scribbled", "not a database"])
def test_a_damaged_store_is_told_and_left_alone(tmp_path: Path, pair: tuple[Task, Candidate], harm: str) -> None:
    report = report_of(*pair, findings=1)
    with Store.open(tmp_path / "s", create=True) as store:
        store.put_report(report, *pair, Contract(), evidence_of(report))
    path = tmp_path / "s/store.sqlite"
    whole = path.read_bytes()
    harmed = {"truncated": whole[: len(whole) // 2], "empty": b"", "not a database": b"hello\n" * 3000,
              "scribbled": whole[:100] + b"\xff" * 3000 + whole[3100:]}[harm]
    path.write_bytes(harmed)
    with pytest.raises(StoreDamaged, match="the store is damaged") as told, Store.open(tmp_path / "s") as store:
        store.put_report(report_of(*task_and_candidate("x + 3"), findings=1), *pair, Contract())
    assert "\n" not in str(told.value)
    assert path.read_bytes() == harmed


def test_a_damaged_or_missing_file_of_tensors_is_found(tmp_path: Path, pair: tuple[Task, Candidate]) -> None:
    report = report_of(*pair, findings=1)
    with Store.open(tmp_path / "s", create=True) as store:
        identity = store.put_report(report, *pair, Contract(), evidence_of(report))
        (file,) = (tmp_path / "s/tensors").glob("*/*.safetensors")
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert len(store.verify()) == 1
        with pytest.raises(StoreDamaged):
            store.tensors(store.findings(identity)[0])
        file.unlink()
        assert len(store.verify()) == 1


def test_a_text_that_is_not_its_hash_is_found(tmp_path: Path, pair: tuple[Task, Candidate]) -> None:
    report = report_of(*pair, findings=1)
    with Store.open(tmp_path / "s", create=True) as store:
        store.put_report(report, *pair, Contract())
    raw = sqlite3.connect(tmp_path / "s/store.sqlite")
    other = raw.execute("SELECT data FROM blobs WHERE kind = 'environment'").fetchone()[0]
    raw.execute("UPDATE blobs SET data = ? WHERE kind = 'contract'", (other,))
    raw.commit()
    raw.close()
    with Store.open(tmp_path / "s") as store:
        assert any("contract" in problem for problem in store.verify())


def test_another_programs_database_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    raw = sqlite3.connect(tmp_path / "s/store.sqlite")
    raw.execute("CREATE TABLE theirs (x)")
    raw.commit()
    raw.close()
    before = (tmp_path / "s/store.sqlite").read_bytes()
    with pytest.raises(StoreError, match="no store"):
        Store.open(tmp_path / "s", create=True)
    assert (tmp_path / "s/store.sqlite").read_bytes() == before


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    Store.open(tmp_path / "s", create=True).close()
    raw = sqlite3.connect(tmp_path / "s/store.sqlite")
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(StoreError, match="newer Assay"):
        Store.open(tmp_path / "s")


def test_a_full_database_keeps_what_it_has(tmp_path: Path, pair: tuple[Task, Candidate]) -> None:
    report = report_of(*pair, findings=1)
    with Store.open(tmp_path / "s", create=True) as store:
        first = store.put_report(report, *pair, Contract(), evidence_of(report))
        pages = store._rows("PRAGMA page_count")[0][0]
        store._rows(f"PRAGMA max_page_count = {pages}")
        # text that does not deflate, more of it than a page holds
        noise = "".join(chr(33 + (i * i * 7919 + i * 104729) % 90) for i in range(60000))
        other = task_and_candidate(f"x  # {noise}")
        with pytest.raises(StoreUnwritable, match="full"):
            store.put_report(report_of(*other, findings=1), *other, Contract())
        assert [v.id for v in store.verdicts()] == [first]
        assert store.verify() == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnwritable, match="cannot be created"):
        Store.open(tmp_path / "file/s", create=True)
