"""Does a mutant really differ from the right kernel on some in-domain input? Servers that answer, and their pool.

A server prepares the experiments of one subject, then forks a child for every mutant: the child may crash, hang
or exit, which is an answer too.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import queue
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.mutants.model import Mutant

SECONDS = 40.0
"""Processor time that a mutant may take at least; one that takes more hangs."""
TIMES = 8.0
"""Times the processor time of making the experiments, the right kernel's runs among it, that it may take as well."""
BUSY = 4.0
"""Wall-clock time for a second of processor time, on a machine that does other things too."""
COMPILED = frozenset({"oversized_block", "oversized_tiles"})
"""Operators whose faults show when a kernel is compiled."""


@dataclass(frozen=True)
class Answer:
    """What was found of one mutant.

    Attributes:
        mutant: the mutant.
        how: kind of difference; empty where none was found: the mutant is taken for equivalent; `stillborn` where
            it does not run at all.
        where: the experiment.
        ratio: by how many times what is legal; infinite where there is nothing to measure.
        seconds: spent on it.
        problem: our own fault, where there was one.
    """

    mutant: Mutant
    how: str = ""
    where: str = ""
    ratio: float = math.inf
    seconds: float = 0.0
    problem: str = ""

    @property
    def witnessed(self) -> bool:
        """Whether it runs and differs."""
        return bool(self.how) and self.how != "stillborn"


def find(jobs: Iterable[tuple[str, str, Mutant]], workers: int, done: Callable[[Answer], None],
         stop: Callable[[], bool] = lambda: False) -> None:
    """Look for a witness of each mutant.

    Args:
        jobs: (reference, right kernel, mutant); those of one subject should follow one another.
        workers: servers at a time.
        done: called with each answer, from several threads in turn.
        stop: asked before each mutant; nothing further is begun once it says so.
    """
    pending: queue.Queue[list[tuple[str, str, Mutant]]] = queue.Queue()
    batch: list[tuple[str, str, Mutant]] = []
    for job in jobs:
        if batch and (batch[0][0] != job[0] or len(batch) >= 24):
            pending.put(batch)
            batch = []
        batch.append(job)
    if batch:
        pending.put(batch)
    lock = threading.Lock()

    def work() -> None:
        server = _Server()
        try:
            while not stop():
                try:
                    mine = pending.get_nowait()
                except queue.Empty:
                    return
                for reference, kernel, mutant in mine:
                    if stop():
                        return
                    answer = server.ask(reference, kernel, mutant)
                    with lock:
                        done(answer)
        finally:
            server.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(max(1, workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)


class _Server:
    """A server process, started when it is first asked and again when it is lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, reference: str, kernel: str, mutant: Mutant) -> Answer:
        began = time.monotonic()
        if mutant.operator in COMPILED:
            found = _compiled(reference, mutant.source)
        else:
            found = self._ask(reference, kernel, mutant)
        ratio = found.get("ratio")
        return Answer(mutant, found.get("how", ""), found.get("where", ""), math.inf if ratio is None else ratio,
                      round(time.monotonic() - began, 2), found.get("problem", ""))

    def _ask(self, reference: str, kernel: str, mutant: Mutant) -> dict[str, Any]:
        for _ in range(2):
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen([sys.executable, "-m", "assay.mutants.witness"], text=True,
                                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment())
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            try:
                text = {"reference": reference, "kernel": kernel, "mutant": mutant.source}
                self._process.stdin.write(json.dumps(text) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except OSError:
                line = ""
            if line:
                answer: dict[str, Any] = json.loads(line)
                return answer
            self.close()
        return {"problem": "the server was lost"}

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _compiled(reference: str, source: str) -> dict[str, Any]:
    """Compile a mutant's kernels for sm_90 in a process of its own, and say whether they fit."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("reference.py", reference), ("candidate.py", source)):
            Path(folder, name).write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([sys.executable, "-m", "assay.mutants.fits", folder], text=True, env=_environment(),
                                  capture_output=True, timeout=120, check=False)
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError):
            return {"problem": "the compiler did not answer"}
    return found


# -- the server


def _load_file(folder: str) -> Callable[[str, str], Any]:
    count = 0

    def load(text: str, name: str) -> Any:
        nonlocal count
        count += 1
        path = Path(folder, f"{name}_{count}.py")
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module

    return load


def serve() -> None:
    """Answer one request a line on standard input until it ends."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(1)
    from assay.mutants.experiments import Laboratory
    from assay.run import emulation

    device = emulation.install()
    known: dict[str, Laboratory] = {}
    limit = 0
    with tempfile.TemporaryDirectory() as folder:
        load_file = _load_file(folder)
        for line in sys.stdin:
            request = json.loads(line)
            key = request["reference"] + request["kernel"]
            try:
                if key not in known:
                    known.clear()
                    began = time.process_time()
                    known[key] = Laboratory(request["reference"], request["kernel"], load_file)
                    limit = math.ceil(max(SECONDS, TIMES * (time.process_time() - began)))
                answer = _tried(known[key], request, load_file, device, limit)
            except Exception as error:
                answer = {"problem": f"{type(error).__name__}: {error}"[:300]}
            output.write(json.dumps(answer) + "\n")
            output.flush()


def _tried(lab: Any, request: dict[str, Any], load_file: Callable[[str, str], Any], device: Any,
           limit: int) -> dict[str, Any]:
    """The answer of a child; one that ends without an answer, or answers too late, has to do so twice.

    A machine that is short of memory or time ends children too, and that is no difference.
    """
    first = _forked(lab, request, load_file, device, limit)
    if first.get("how") not in ("exit", "hang"):
        return first
    again = _forked(lab, request, load_file, device, limit)
    if again.get("how") == "exit" and again.get("signal") == signal.SIGKILL:
        return {"problem": "ended by SIGKILL, which no mutant sends"}
    return again


def _forked(lab: Any, request: dict[str, Any], load_file: Callable[[str, str], Any], device: Any,
            limit: int) -> dict[str, Any]:
    """The answer of a child that tries the mutant within so much processor time; how it ended where it gave none."""
    if not lab.experiments:
        return {"problem": "no experiment on which the right kernel is right"}
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
            _child(lab, request, load_file, device, writing)
        finally:
            os._exit(7)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], BUSY * limit)
        if not ready:
            os.kill(pid, signal.SIGKILL)
            return {"problem": f"no answer in {BUSY * limit:g} s"}
        text = b""
        while part := os.read(reading, 65536):
            text += part
        if text:
            found: dict[str, Any] = json.loads(text)
            return found
        _, ended = os.waitpid(pid, 0)
        pid = 0
        by = os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else None
        if by == signal.SIGXCPU:
            return {"how": "hang", "where": f"{limit} s"}
        return {"how": "exit", "where": "ended without an answer", "signal": by}
    finally:
        os.close(reading)
        if pid:
            os.waitpid(pid, 0)


def _child(lab: Any, request: dict[str, Any], load_file: Callable[[str, str], Any], device: Any, writing: int) -> None:
    from assay.mutants.trial import search

    try:
        module = load_file(request["mutant"], "mutant")
    except BaseException as error:
        os.write(writing, json.dumps({"how": "stillborn", "where": f"import: {type(error).__name__}"}).encode())
        os._exit(0)
    found = search(lab, module, device, "autograd.Function" in request["kernel"])
    ratio = None if found is None or math.isinf(found.ratio) or math.isnan(found.ratio) else found.ratio
    answer = {} if found is None else {"how": found.how, "where": found.where, "ratio": ratio}
    os.write(writing, json.dumps(answer).encode())
    os._exit(0)


if __name__ == "__main__":
    serve()
