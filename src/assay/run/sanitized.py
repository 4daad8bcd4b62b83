"""The process that compute-sanitizer watches: replays what a worker was sent, from files.

Run as `python -m assay.run.sanitized FOLDER`, inside a worker's confinement. Ends with status 0 whatever the
candidate does, and writes down in `result.json` whether the candidate ran.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.run import placed, wire
from assay.run.candidate_calls import run
from assay.run.candidate_state import State
from assay.run.candidate_worker import instance, load


def main(folder: Path) -> dict[str, Any]:
    """Replay the frames of a folder in order; `{"ok": True}`, or `{"error": text}` of the first that failed."""
    import torch

    os.chdir(folder)
    torch.set_num_threads(1)
    # each input is an allocation of its own, of exactly its size
    placed.RED_ZONE = 0
    with open(folder / "arena", "r+b") as arena:
        state = State({"device": "cuda"}, arena.fileno())
        handlers = {"load": load, "instance": instance, "run": run}
        for path in sorted(folder.glob("[0-9]*.json")):
            header = json.loads(path.read_text(encoding="utf-8"))
            frame = wire.Frame(header, bytearray(path.with_suffix(".bin").read_bytes()))
            answer, _ = handlers[str(header["op"])](state, frame)
            _tell_lines()
            error = answer.get("error")
            if isinstance(error, dict):
                return {"error": f"{error.get('type')}: {error.get('message')}"[:500]}
    return {"ok": True}


def _tell_lines() -> None:
    """Have Triton's kernels tell lines of their source, which other workers do without."""
    with suppress(ImportError):
        import triton

        triton.knobs.compilation.disable_line_info = False


if __name__ == "__main__":
    where = Path(sys.argv[1])
    try:
        found = main(where)
    except BaseException as failure:
        found = {"error": f"{type(failure).__name__}: {failure}"[:500]}
    (where / "result.json").write_text(json.dumps(found), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)
