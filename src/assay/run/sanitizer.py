"""A probe of a candidate under compute-sanitizer, in a process of its own within the worker's confinement.

The worker that is started for this never imports the candidate. It writes down what the judge sent, starts
`compute-sanitizer` on a plain process that replays it (`assay.run.sanitized`), and answers with what the tool
printed. Inputs lie in allocations of exactly their size there, and torch's caching allocator is off, so that each
tensor is an allocation that the tool knows the ends of.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.run import codec, wire
from assay.run.sanitizer_report import Report, defined_kernels, is_own, parse

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
SECONDS = 240.0
"""Seconds that one run under the tool may take."""
PRINTED = 500
"""Faults that the tool prints at most."""
KEPT = 20
"""Reports that are handed on."""
FOLDER = "sanitized"
_ASYNCHRONOUS = re.compile(
    r"cp\.async|\bmbarrier\b|\bbar(?:rier)?(?:\.cta)?\.(?:sync|arrive|red)|cuda::(?:barrier|pipeline|memcpy_async)|"
    r"<cuda/(?:barrier|pipeline)>|<(?:cutlass|cute)/|\bwgmma\b|\bmemcpy_async\b|__pipeline_memcpy_async|"
    r"\bcluster_(?:arrive|wait)|barrier\.cluster"
)
"""What racecheck and synccheck do not follow, so that they report right kernels."""


def find_tool() -> str | None:
    """Path of compute-sanitizer; None where there is none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    places = (f"{home}/bin", f"{home}/compute-sanitizer")
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(places))


def command(program: str, tool: str, log: str, child: Sequence[str]) -> list[str]:
    """The command that runs a process under one of the tools; options as its manual has them."""
    # only the process itself: compilers that it starts use no GPU
    options = [
        "--tool",
        tool,
        "--target-processes",
        "application-only",
        "--print-limit",
        str(PRINTED),
        "--show-backtrace",
        "device",
        "--launch-timeout",
        "120",
        "--log-file",
        log,
    ]
    if tool == "memcheck":
        # an allocator's and a library's own tries of the API are no faults of a kernel
        options += ["--report-api-errors", "no", "--leak-check", "no"]
    if tool == "racecheck":
        options += ["--racecheck-report", "analysis"]
    return [program, *options, *child]


def unfit(tool: str, source: str) -> str:
    """Why a tool cannot judge a source; empty where it can."""
    if tool not in ("racecheck", "synccheck"):
        return ""
    found = _ASYNCHRONOUS.search(source)
    return "" if found is None else f"{tool} does not follow `{found.group(0)}`"


class Recorded:
    """What the judge sent, as files that the child replays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []
        self.source = ""

    def put(self, header: dict[str, Any], payload: Any) -> None:
        """Write one frame down."""
        name = f"{len(self.names):03d}"
        (self.folder / f"{name}.json").write_text(json.dumps(header), encoding="utf-8")
        (self.folder / f"{name}.bin").write_bytes(bytes(payload))
        self.names.append(name)

    def drop(self) -> None:
        """Forget the last frame."""
        name = self.names.pop()
        for end in (".json", ".bin"):
            (self.folder / f"{name}{end}").unlink()


def main(sock: socket.socket, arena_fd: int, spec: dict[str, Any]) -> None:
    """Answer requests until the judge closes the channel; the candidate runs in children alone."""
    folder = Path.cwd() / FOLDER
    folder.mkdir()
    recorded = Recorded(folder)
    while True:
        try:
            frame = wire.receive(sock)
        except wire.WireFault:
            return
        header = dict(frame.header)
        reply: dict[str, Any] = {"ok": True}
        chunks: list[memoryview] = []
        if header.get("op") == "run":
            reply, chunks = _run(recorded, header, frame.payload, arena_fd)
        else:
            if header.get("op") == "load":
                recorded.source = str(header["source"])
                reply["entry"] = str(header["entries"][0])
            recorded.put(header, frame.payload)
        reply["token"] = header.get("token")
        wire.send(sock, reply, chunks)


def _run(
    recorded: Recorded, header: dict[str, Any], payload: Any, arena_fd: int
) -> tuple[dict[str, Any], list[memoryview]]:
    """One probe under the tool that its conditions name; the reply holds no outputs."""
    tool = str((header.get("conditions") or {}).get("sanitize"))
    program = find_tool()
    if program is None:
        facts = _undone(tool, "absent", "compute-sanitizer is not installed")
    elif tool not in TOOLS:
        facts = _undone(tool, "failed", f"no tool `{tool}`")
    elif why := unfit(tool, recorded.source):
        facts = _undone(tool, "unfit", why)
    else:
        region = header["region"]
        with open(recorded.folder / "arena", "wb") as file:
            if region["size"]:
                with mmap.mmap(arena_fd, region["size"], offset=region["offset"]) as view:
                    file.write(view)
        recorded.put({**header, "region": {**region, "offset": 0}, "conditions": {}}, payload)
        try:
            facts = _under(program, tool, recorded)
        finally:
            recorded.drop()
    part, chunks = codec.pack(None)
    calls = [{"outputs": part, "seconds": 0.0} for _ in header["calls"]]
    return {"calls": calls, "weights": "none", "facts": {"sanitizer": facts}, "seconds": 0.0}, chunks


def _undone(tool: str, state: str, why: str) -> dict[str, Any]:
    return {"tool": tool, "state": state, "why": why[:300], "reports": [], "others": 0}


def _under(program: str, tool: str, recorded: Recorded) -> dict[str, Any]:
    """Run the child under the tool and read what it printed."""
    folder, log, result = recorded.folder, recorded.folder / "log", recorded.folder / "result.json"
    for stale in (log, result):
        stale.unlink(missing_ok=True)
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    run = command(program, tool, str(log), [sys.executable, "-m", "assay.run.sanitized", str(folder)])
    with open(folder / "printed", "wb") as printed:
        process = subprocess.Popen(
            run,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        late = False
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = log.read_text(encoding="utf-8", errors="replace")[: 8 << 20] if log.exists() else ""
    answer = _result(result)
    return read(
        tool,
        text,
        recorded.source,
        answer,
        late,
        (folder / "printed").read_text(encoding="utf-8", errors="replace")[-2000:],
    )


def _result(path: Path) -> dict[str, Any]:
    """What the child wrote down at its end; empty where it did not come to one."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def read(tool: str, log: str, source: str, answer: dict[str, Any], late: bool, printed: str = "") -> dict[str, Any]:
    """What is to be said of one run: its state, and the reports of the candidate's own kernels.

    Args:
        tool: one of `TOOLS`.
        log: what the tool wrote.
        source: of the candidate.
        answer: what the child wrote down; empty where it did not come to its end.
        late: whether it had to be stopped.
        printed: the end of what tool and child printed elsewhere.

    Returns:
        `state` is `ran`, `timed_out`, or `failed` with `why`; `reports` holds the candidate's own, each kernel, line
        and kind once, with `count`; `others` counts those of other kernels.
    """
    parsed = parse(log)
    defined = defined_kernels(source)
    own = [r for r in parsed.reports if is_own(r, defined)]
    kept: dict[tuple[str, str, str, int], tuple[Report, int]] = {}
    for report in own:
        key = (report.kind, report.kernel, report.file, report.line)
        first, count = kept.get(key, (report, 0))
        kept[key] = (first, count + 1)
    facts: dict[str, Any] = {
        "tool": tool,
        "state": "ran",
        "why": "",
        "others": len(parsed.reports) - len(own),
        "reports": [{**r.to_json(), "names": list(r.names)[:4], "count": n} for r, n in list(kept.values())[:KEPT]],
    }
    if late:
        facts |= {"state": "timed_out", "why": f"not done within {SECONDS:.0f} s"}
    elif own:
        pass
    elif not parsed.finished or not answer:
        last = [line.strip() for line in (log + printed).splitlines() if line.strip(" =")][-3:]
        said = parsed.trouble or str(answer.get("error") or "") or " | ".join(last) or "it printed nothing"
        facts |= {"state": "failed", "why": said[:300]}
    elif answer.get("error"):
        facts |= {"state": "failed", "why": f"the candidate does not run there: {answer['error']}"[:300]}
    return facts
