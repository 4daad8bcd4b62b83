"""What an audit reads: one row per candidate, whatever form the corpus has.

A row that cannot be used says so in `problem`; it is counted, and never stops the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import InputError


@dataclass(frozen=True)
class CorpusRow:
    """One candidate of a corpus."""

    id: str
    """Its id, unique in the corpus."""
    reference: str | None
    """Source of the reference; None where the row has none."""
    candidate: str | None
    """Source of the candidate; None where the row has none."""
    entry: str = "Model"
    """Name of the reference's class or function."""
    task: str = ""
    """Readable name of the task; empty where the corpus gives none."""
    op_class: str | None = None
    """Class of the operation; None to infer it from the reference."""
    accepted: bool | None = None
    """Whether the corpus took the candidate for correct; None where it does not say."""
    speedup: float | None = None
    """Speedup that the corpus claims."""
    generator: str | None = None
    """What wrote the candidate."""
    run: str | None = None
    """The run that it comes from."""
    created: str | None = None
    """When it was written, as text that sorts by time."""
    contract: dict[str, Any] | None = None
    """Clauses that the corpus states, as contract data."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further columns, to stratify by."""
    problem: str | None = None
    """Why nothing can be run."""


@dataclass(frozen=True)
class Corpus:
    """A corpus that can be read."""

    path: Path
    """Where it is."""
    format: str
    """What form it has."""
    rows: Callable[[], Iterator[CorpusRow]]
    """Reads it from the start, one row at a time."""
    digest: str
    """SHA-256 that changes when its content does."""


def open_corpus(path: str | Path, *, problems: Path | None = None) -> Corpus:
    """Recognise a corpus by its name and its files.

    Args:
        path: a `.jsonl` (or `.jsonl.gz`) or `.parquet` file, a folder of pairs, a folder of KernelBench runs,
            or a folder in one of the task formats.
        problems: folder with `levelN/` for KernelBench runs; None to look beside the runs.

    Raises:
        InputError: there is nothing there, or nothing that can be read.
    """
    from assay.audit import folders, records

    place = Path(path)
    if not place.exists():
        raise InputError("no such corpus", str(path), "check the path")
    if place.is_file():
        if place.name.endswith((".jsonl", ".jsonl.gz", ".ndjson")):
            return Corpus(place, "jsonl", lambda: records.from_jsonl(place), _digest([place]))
        if place.suffix == ".parquet":
            return Corpus(place, "parquet", lambda: records.from_parquet(place), _digest([place]))
        raise InputError("no known form of a corpus", str(path), "give .jsonl, .jsonl.gz, .parquet or a folder")
    kernels = folders.run_files(place)
    if kernels:
        where = folders.problem_folder(place, problems)
        return Corpus(place, "kernelbench-runs", lambda: folders.from_runs(place, where),
                      _digest([*kernels, *sorted(where.rglob("*.py"))]))
    from assay.task.formats import detect

    if detect(place) is not None:
        return Corpus(place, f"tasks:{detect(place)}", lambda: folders.from_formats(place),
                      _digest(sorted(p for p in place.rglob("*") if p.is_file())))
    pairs = folders.pair_files(place)
    if pairs:
        return Corpus(place, "pairs", lambda: folders.from_pairs(place), _digest(pairs))
    raise InputError("no candidates in this folder", str(path),
                     "give folders with reference.py and candidates beside it, or KernelBench runs")


def _digest(files: list[Path]) -> str:
    """SHA-256 over names and contents, read piece by piece."""
    whole = hashlib.sha256()
    for file in files:
        whole.update(file.name.encode() + b"\0" + str(file.stat().st_size).encode() + b"\0")
        with file.open("rb") as stream:
            while piece := stream.read(1 << 20):
                whole.update(piece)
    return whole.hexdigest()
