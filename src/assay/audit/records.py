"""Rows of a corpus from records: JSON lines and Parquet, plain or as trajectories of a conversation."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.audit.corpus import CorpusRow
from assay.errors import InputError

NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "uuid", "row_id", "kernel_id"),
    "reference": ("reference", "reference_source", "reference_code", "original_python_code", "ref_code"),
    "candidate": ("candidate", "candidate_source", "candidate_code", "kernel", "code", "solution"),
    "entry": ("entry", "entry_point"),
    "task": ("task", "task_id", "problem", "name"),
    "op_class": ("op_class", "class", "category"),
    "accepted": ("accepted", "correct", "correctness"),
    "speedup": ("speedup", "final_speedup"),
    "generator": ("generator", "model", "author"),
    "run": ("run", "run_id", "run_name"),
    "created": ("created", "created_at", "timestamp", "time", "date"),
    "contract": ("contract",),
}
"""Names that each field may have in a record, in the order tried."""
CONVERSATION = "messages"
LONGEST = 200
"""Characters of a further column that are kept."""
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)


def from_jsonl(path: Path) -> Iterator[CorpusRow]:
    """Rows of a file of JSON lines, compressed or not. A line that is no JSON object is a row with a problem."""
    number = 0
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        while True:
            try:
                line = stream.readline()
            except (EOFError, OSError, zlib.error) as error:
                # a damaged archive: what was read counts, the rest is one row that says so
                yield CorpusRow(f"line-{number + 1}", None, None, problem=f"the file ends early: {error}")
                return
            if not line:
                return
            number += 1
            if line.strip():
                yield _from_line(line, number)


def _from_line(line: bytes, number: int) -> CorpusRow:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        return CorpusRow(f"line-{number}", None, None, problem=f"not JSON: {error}"[:300])
    if not isinstance(data, dict):
        return CorpusRow(f"line-{number}", None, None, problem=f"a {type(data).__name__}, not a JSON object")
    return from_record(data, f"line-{number}")


def from_parquet(path: Path) -> Iterator[CorpusRow]:
    """Rows of a Parquet file, a batch at a time. Raises InputError where it cannot be read."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise InputError("reading Parquet needs pyarrow", str(path), "pip install 'assay[audit]'") from None
    try:
        file = parquet.ParquetFile(path)
        number = 0
        for batch in file.iter_batches(batch_size=256):
            for record in batch.to_pylist():
                number += 1
                yield from_record(record, f"row-{number}")
    except (OSError, ValueError) as error:
        raise InputError(f"not Parquet: {error}", str(path), "check the file") from None


def from_record(data: Mapping[str, Any], unnamed: str) -> CorpusRow:
    """One row from one record; `unnamed` is its id where the record gives none."""
    taken: dict[str, Any] = {}
    for field, names in NAMES.items():
        taken[field] = next((data[n] for n in names if data.get(n) is not None), None)
    used = {n for names in NAMES.values() for n in names} | {CONVERSATION}
    if taken["candidate"] is None and data.get(CONVERSATION) is not None:
        taken["candidate"] = last_code(data[CONVERSATION])
    problems = []
    for field in ("reference", "candidate"):
        if not isinstance(taken[field], str) or not taken[field].strip():
            taken[field] = None
            problems.append(f"no {field} source")
    contract, speedup = taken["contract"], _number(taken["speedup"])
    if isinstance(contract, str):
        try:
            contract = json.loads(contract)
        except ValueError:
            problems.append("its contract is not JSON")
    if contract is not None and not isinstance(contract, dict):
        contract = None
    accepted = taken["accepted"] if isinstance(taken["accepted"], bool) else None
    if accepted is None and speedup is not None:
        accepted = speedup > 0
    return CorpusRow(
        id=_text(taken["id"]) or unnamed, reference=_clean(taken["reference"]),
        candidate=_clean(taken["candidate"]), entry=_text(taken["entry"]) or "Model", task=_text(taken["task"]) or "",
        op_class=_text(taken["op_class"]), accepted=accepted, speedup=speedup, generator=_text(taken["generator"]),
        run=_text(taken["run"]), created=_text(taken["created"]), contract=contract,
        extra={str(_text(k)): _small(v) for k, v in data.items() if k not in used and _small(v) is not None},
        problem="; ".join(problems) or None)


def last_code(messages: Any) -> str | None:
    """The last fenced block of the assistant's last turn; None where there is none."""
    if isinstance(messages, str):
        try:
            messages = json.loads(messages)
        except ValueError:
            return None
    if not isinstance(messages, Sequence):
        return None
    for turn in reversed(messages):
        if isinstance(turn, Mapping) and (turn.get("role") or turn.get("from")) in ("assistant", "gpt"):
            blocks = _FENCE.findall(_spoken(turn.get("content", turn.get("value"))))
            return str(blocks[-1][1]) if blocks else None
    return None


def _spoken(content: Any) -> str:
    """The text of a turn, which may come in parts."""
    if isinstance(content, str):
        return content.replace("\r\n", "\n")
    if isinstance(content, Sequence):
        return "\n".join(_spoken(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return ""


def _clean(source: str | None) -> str | None:
    return None if source is None else source.replace("\r\n", "\n").removeprefix("\ufeff")


def _text(value: Any) -> str | None:
    # half of a surrogate pair, which JSON can hold, is no text that could be kept
    return None if value is None or isinstance(value, list | dict) else \
        str(value).encode("utf-8", "replace").decode("utf-8")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _small(value: Any) -> Any:
    """What of a further column is worth keeping: numbers and short text."""
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _text(value) if isinstance(value, str) and len(value) <= LONGEST else None
