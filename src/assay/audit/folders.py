"""Rows of a corpus from folders: pairs, runs of KernelBench, and the task formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from assay.audit.corpus import CorpusRow
from assay.errors import InputError

REFERENCE = "reference.py"
ABOUT = "about.json"
"""Beside a pair, fields of its row: op_class, accepted, speedup, generator, run, created, contract, entry."""
RESULTS = "eval_results.json"
_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")


def pair_files(root: Path) -> list[Path]:
    """References with a candidate beside or below them, and those candidates, in the order of names."""
    found = []
    for reference in sorted(root.rglob(REFERENCE)):
        candidates = _candidates(reference)
        found += [reference, *candidates] if candidates else []
    return found


def _candidates(reference: Path) -> list[Path]:
    beside = [p for p in reference.parent.glob("*.py") if p.name != REFERENCE and not p.name.startswith("_")]
    return sorted([*beside, *(reference.parent / "candidates").glob("*.py")])


def from_pairs(root: Path) -> Iterator[CorpusRow]:
    """A row for each candidate beside a `reference.py`, or in a folder `candidates` beside it."""
    for reference in sorted(root.rglob(REFERENCE)):
        task = reference.parent.relative_to(root).as_posix() if reference.parent != root else root.name
        about, problem = _about(reference.parent / ABOUT)
        source, fault = _read(reference)
        for candidate in _candidates(reference):
            text, unreadable = _read(candidate)
            own = {**about, **about.get("candidates", {}).get(candidate.name, {})}
            yield _with(CorpusRow(f"{task}/{candidate.stem}", source, text, task=task,
                                  problem=problem or fault or unreadable), own)


def _about(path: Path) -> tuple[dict[str, Any], str | None]:
    if not path.exists():
        return {}, None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {}, f"{path.name}: {error}"
    return (data, None) if isinstance(data, dict) else ({}, f"{path.name}: no JSON object")


def _with(row: CorpusRow, about: dict[str, Any]) -> CorpusRow:
    """A row with the fields that a record about it names, read as those of any record."""
    from assay.audit.records import from_record

    if not about:
        return row
    named = {k: v for k, v in about.items() if k != "candidates"}
    read = from_record({**named, "id": row.id, "reference": row.reference, "candidate": row.candidate}, row.id)
    return replace(read, task=read.task or row.task, problem=row.problem or read.problem)


def _read(path: Path) -> tuple[str | None, str | None]:
    """The text of a file, or why there is none."""
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n"), None
    except (OSError, UnicodeDecodeError) as error:
        return None, f"{path.name} cannot be read: {error}"[:300]


def run_files(root: Path) -> list[Path]:
    """Kernels of KernelBench runs at or below a folder, in the order of names."""
    return sorted(p for p in root.rglob("level_*_problem_*_sample_*_kernel.py") if _KERNEL.fullmatch(p.name))


def problem_folder(root: Path, given: Path | None) -> Path:
    """The folder that holds `level1/`, `level2/`: the given one, or one at, in or above the corpus.

    Raises:
        InputError: there is none.
    """
    if given is not None:
        tried = [given, given / "KernelBench"]
    else:
        near = [root, *list(root.resolve().parents)[:2]]
        tried = [place / name for place in near for name in ("", "KernelBench", "problems")]
    for place in tried:
        if any(p.is_dir() for p in place.glob("level[0-9]*")):
            return place
    raise InputError("the problems of these runs were not found", str(given or root),
                     "give the folder that holds level1/, level2/, ... with --problems")


def from_runs(root: Path, problems: Path) -> Iterator[CorpusRow]:
    """A row for each kernel of each run, with the verdict of the benchmark's own evaluation where it is there."""
    @cache
    def results(folder: Path) -> dict[str, Any]:
        data, _ = _about(folder / RESULTS)
        return data

    @cache
    def problem(level: str, number: str) -> tuple[str, str | None, str | None]:
        files = sorted((problems / f"level{level}").glob(f"{number}_*.py"))
        if not files:
            return f"level{level}/{number}", None, f"no problem {number} in level{level}"
        text, fault = _read(files[0])
        return f"level{level}/{files[0].stem}", text, fault

    for kernel in run_files(root):
        named = _KERNEL.fullmatch(kernel.name)
        assert named is not None
        level, number, sample = named.groups()
        run = kernel.parent.relative_to(root).as_posix() if kernel.parent != root else root.name
        task, source, fault = problem(level, number)
        text, unreadable = _read(kernel)
        record = _evaluated(results(kernel.parent), number, int(sample))
        correct = record.get("correctness")
        yield CorpusRow(
            f"{run}/level_{level}_problem_{number}_sample_{sample}", source, text, task=task, run=run,
            accepted=correct if isinstance(correct, bool) else None,
            extra={"level": int(level), "problem": int(number), "sample": int(sample),
                   **{k: record[k] for k in ("compiled", "runtime") if isinstance(record.get(k), bool | int | float)}},
            problem=fault or unreadable)


def _evaluated(results: dict[str, Any], number: str, sample: int) -> dict[str, Any]:
    """What the benchmark's results say of one sample; they name problems by number."""
    found = results.get(number)
    for record in found if isinstance(found, list) else [found]:
        if isinstance(record, dict) and record.get("sample_id", 0) == sample:
            return record
    return {}


def from_formats(root: Path) -> Iterator[CorpusRow]:
    """A row for each candidate that a task format holds. Raises InputError for what the format refuses."""
    from assay.task.formats import load

    for loaded in load(root):
        contract = loaded.contract.model_dump(mode="json", exclude_defaults=True) if loaded.contract else None
        for candidate in loaded.candidates:
            yield CorpusRow(f"{loaded.task.id}/{candidate.id}", loaded.task.source, candidate.source,
                            entry=loaded.task.entry, task=loaded.task.id, contract=contract or None)
