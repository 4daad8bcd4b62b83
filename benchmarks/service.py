"""The service under load on loopback: many clients, judges killed at random, every answer compared.

    python benchmarks/service.py [--requests 5000] [--clients 64] [--sources 40] [--kills 12]

A real `assay serve` process is started. Each client asks for verdicts on randomly chosen sources: right and wrong
kernels of the examples, each in several texts, so that there are `--sources` different requests. While they ask,
judges are killed with SIGKILL. Metrics:

- requests, lost: requests made, and those that ended without a verdict;
- contradicting: sources for which two answers differ in label, gates or feedback;
- unexpected: answers that accept a wrong kernel or reject a right one;
- p50_ms, p95_ms: time to an answer, over all requests; fresh_p50_s, fresh_p95_s: over the first for each source;
- memory_first_mb, memory_last_mb: of the service process (without judges) after a tenth of the requests and at the
  end; bad_tokens_refused, oversized_refused, malformed_refused: shares of ten requests each.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx

from assay.serve import Client, ServiceError
from common import ROOT, write_result

TOKEN = "benchmark-of-the-service"
TASKS = {"softmax": ("right.py", "wrong_padding_lanes.py"), "row_argmax": ("right.py", None),
         "cumsum": ("right.py", "wrong_shared_output.py")}


def _sources(count: int) -> list[tuple[str, str, bool]]:
    """(reference, candidate, whether it is right), all different."""
    pairs = []
    for task, (right, wrong) in TASKS.items():
        reference = (ROOT / "examples" / task / "reference.py").read_text()
        for name, good in ((right, True), (wrong, False)):
            if name is not None:
                pairs.append((reference, (ROOT / "examples" / task / name).read_text(), good))
    return [(pairs[n % len(pairs)][0], pairs[n % len(pairs)][1] + f"\n# text {n}\n", pairs[n % len(pairs)][2])
            for n in range(count)]


def _start(workers: int) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="assay-service-"))
    (folder / "tokens.toml").write_text(f'[tenants.load]\ntoken = "{TOKEN}"\n')
    process = subprocess.Popen([sys.executable, "-m", "assay", "serve", "--port", str(port), "--device", "cpu",
                                "--workers", str(workers), "--tokens", str(folder / "tokens.toml")],
                               stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return process, url
        except httpx.TransportError:
            time.sleep(0.1)


def _memory(pid: int) -> float:
    """Resident memory, MB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def _judges(pid: int) -> list[int]:
    """Process ids of the judges of a service."""
    done = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in done.stdout.splitlines() if "assay.pool.judge" in line]


def _refusals(url: str) -> dict[str, float]:
    good = {"Authorization": f"Bearer {TOKEN}"}
    body = {"reference": "x = 1\n", "candidate": "y"}
    with httpx.Client(base_url=url) as http:
        bad = [http.post("/v1/verdicts", json=body, headers={"Authorization": f"Bearer wrong-{n}"}) for n in range(10)]
        large = [http.post("/v1/verdicts", json={**body, "candidate": "z" * (1 << 20)}, headers=good)
                 for _ in range(10)]
        broken = [http.post("/v1/verdicts", json={**body, "reference": "def f(" * (n + 1)}, headers=good)
                  for n in range(10)]
    return {"bad_tokens_refused": sum(a.status_code == 401 for a in bad) / 10,
            "oversized_refused": sum(a.status_code == 413 for a in large) / 10,
            "malformed_refused": sum(a.status_code == 422 for a in broken) / 10}


def main() -> None:
    """Run the load and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--sources", type=int, default=40)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    sources = _sources(given.sources)
    process, url = _start(given.workers)
    answers: dict[int, set[str]] = defaultdict(set)
    times: list[float] = []
    fresh: dict[int, float] = {}
    memory: list[float] = []
    counts = {"lost": 0, "unexpected": 0, "killed": 0}
    lock, ended = threading.Lock(), threading.Event()
    turns = iter(range(given.requests))

    def ask(number: int) -> None:
        source = random.Random(f"{given.seed}/{number}")
        with Client(url, TOKEN, patience=1200.0) as client:
            while True:
                with lock:
                    turn = next(turns, None)
                    if turn is not None and turn % 500 == 0:
                        memory.append(_memory(process.pid))
                        print(f"{turn} requests, {len(fresh)} sources decided, {counts}, {memory[-1]:.0f} MB",
                              flush=True)
                if turn is None:
                    return
                which = source.randrange(len(sources))
                reference, candidate, right = sources[which]
                began = time.perf_counter()
                try:
                    told = client.verify(reference, candidate, tier="quick")
                except (ServiceError, TimeoutError, httpx.HTTPError) as error:
                    print(f"lost: {error}", flush=True)
                    with lock:
                        counts["lost"] += 1
                    continue
                took = time.perf_counter() - began
                with lock:
                    times.append(took)
                    fresh.setdefault(which, took)
                    if told.label is None:
                        counts["lost"] += 1
                        print(f"lost: {told}", flush=True)
                    else:
                        answers[which].add(f"{told.label} {sorted((told.gates or {}).items())} {told.feedback}")
                        counts["unexpected"] += right is not (told.label == "contract")

    def kill() -> None:
        source = random.Random(given.seed)
        for _ in range(given.kills):
            if ended.wait(source.uniform(2.0, 8.0)):
                return
            judges = _judges(process.pid)
            if judges:
                os.kill(source.choice(judges), signal.SIGKILL)
                with lock:
                    counts["killed"] += 1

    began = time.perf_counter()
    threads = [threading.Thread(target=ask, args=(n,)) for n in range(given.clients)]
    killer = threading.Thread(target=kill)
    for thread in [*threads, killer]:
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    killer.join()
    wall = time.perf_counter() - began
    memory.append(_memory(process.pid))
    refused = _refusals(url)
    process.terminate()
    status = process.wait(120)
    ordered, firsts = sorted(times), sorted(fresh.values())
    metrics: dict[str, Any] = {
        "requests": given.requests, "clients": given.clients, "sources": len(answers),
        "judges_killed": counts["killed"], "lost": counts["lost"],
        "contradicting": sum(len(found) > 1 for found in answers.values()),
        "unexpected": counts["unexpected"], "p50_ms": round(1000 * statistics.median(ordered), 1),
        "p95_ms": round(1000 * ordered[int(0.95 * (len(ordered) - 1))], 1),
        "fresh_p50_s": round(statistics.median(firsts), 2),
        "fresh_p95_s": round(firsts[int(0.95 * (len(firsts) - 1))], 2),
        "requests_per_second": round(given.requests / wall, 1),
        "memory_first_mb": round(memory[min(1, len(memory) - 1)]),
        "memory_last_mb": round(memory[-1]), "exit_status": status, **refused,
    }
    for name, value in metrics.items():
        print(f"{name:22}{value}")
    write_result("service", "cpu", metrics, [], out=given.out)


if __name__ == "__main__":
    main()
