"""Processes that write one store and are killed at random; says what became of what they had been promised.

    python writers.py STORE [WRITERS] [ROUNDS] [SEED]

Each writer keeps verdicts one after another and says the id of each once it is kept. It is killed after a random
number of them, in the middle of whatever it does then. The last line is JSON: writers, killed, acknowledged, lost,
problems.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.evidence.made import evidence_of, report_of, task_and_candidate

from assay.contract import Contract
from assay.evidence import Store


def write_for_ever(directory: str, name: str, said: int) -> None:
    """Keep verdicts until killed; the id of each goes to a pipe when it is kept."""
    with Store.open(directory, create=True) as store:
        number = 0
        while True:
            number += 1
            pair = task_and_candidate(f"x + '{name}.{number}'")
            report = report_of(*pair, findings=number % 3)
            identity = store.put_report(report, *pair, Contract(), evidence_of(report))
            os.write(said, f"{identity}\n".encode())


def run(directory: str, writers: int, rounds: int, seed: int) -> dict[str, object]:
    """Start writers, kill each after a random number of verdicts, and look whether all of those are there."""
    source = random.Random(seed)
    promised: list[str] = []
    killed = 0
    for turn in range(rounds):
        living: dict[int, tuple[int, int, bytes]] = {}
        for number in range(writers):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                try:
                    write_for_ever(directory, f"{turn}.{number}", write)
                finally:
                    os._exit(1)
            os.close(write)
            living[read] = (child, source.randint(1, 6), b"")
        while living:
            for pipe in select.select(list(living), [], [])[0]:
                child, left, text = living[pipe]
                piece = os.read(pipe, 4096)
                text += piece
                if piece and text.count(b"\n") < left:
                    living[pipe] = (child, left, text)
                    continue
                # anywhere in what it does next
                time.sleep(source.uniform(0, 0.004))
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                killed += 1
                while piece := os.read(pipe, 4096):
                    text += piece
                os.close(pipe)
                del living[pipe]
                promised += [line.decode() for line in text.split(b"\n")[:-1]]
    with Store.open(directory) as store:
        kept = {v.id for v in store.verdicts()}
        problems = store.verify()
        # what was killed between its files and its verdict left files at most
        store.gc()
        problems += store.verify()
    return {"writers": writers, "killed": killed, "acknowledged": len(promised),
            "lost": len(set(promised) - kept), "kept": len(kept), "problems": problems}


if __name__ == "__main__":
    chosen = [int(a) for a in sys.argv[2:]] + [8, 3, 1][len(sys.argv) - 2:]
    print(json.dumps(run(sys.argv[1], *chosen[:3])))
