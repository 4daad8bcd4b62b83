"""Many processes write one store, and some of them die."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from tests.evidence.made import evidence_of, report_of, task_and_candidate

from assay.contract import Contract
from assay.evidence import Store

WRITERS = Path(__file__).with_name("writers.py")


def test_no_verdict_is_lost_when_writers_are_killed_at_random(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(WRITERS), str(tmp_path / "s"), "8", "3", "20260"], text=True,
                          capture_output=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["killed"] == 24
    assert told["acknowledged"] >= 24
    assert told["kept"] >= told["acknowledged"]
    assert told["lost"] == 0
    assert told["problems"] == []


def test_threads_may_share_a_store(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s", create=True) as store:
        def work(number: int) -> None:
            for turn in range(5):
                pair = task_and_candidate(f"x + {number} * {turn}")
                report = report_of(*pair, findings=1)
                store.put_report(report, *pair, Contract(), evidence_of(report))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.stats()["verdicts"] == 20
        assert store.verify() == []


def test_a_disk_that_is_full_costs_one_verdict_and_no_other(tmp_path: Path) -> None:
    """The limit on the size of files stands for the disk: the next file cannot be written."""
    code = """
import resource, sys
from assay.contract import Contract
from assay.evidence import Store, StoreUnwritable
from tests.evidence.made import evidence_of, report_of, task_and_candidate

with Store.open(sys.argv[1], create=True) as store:
    pair = task_and_candidate("x + 1")
    report = report_of(*pair, findings=1)
    store.put_report(report, *pair, Contract(), evidence_of(report))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    noise = "".join(chr(33 + (i * i * 7919 + i * 104729) % 90) for i in range(60000))
    other = task_and_candidate(f"x  # {noise}")
    try:
        store.put_report(report_of(*other, findings=1), *other, Contract())
        print("kept")
    except StoreUnwritable as error:
        print("refused:", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    print(len(store.verdicts()), store.verify())
    store.put_report(report_of(*other, findings=1), *other, Contract())
    print(len(store.verdicts()), store.verify())
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], text=True, capture_output=True, check=True,
                          cwd=Path(__file__).resolve().parents[2])
    first, second, third = done.stdout.splitlines()
    assert first.startswith("refused: ")
    assert second == "1 []"
    assert third == "2 []"
