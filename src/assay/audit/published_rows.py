"""Per-row records of the published audit, and the clauses by which they are counted.

The published audit gives one JSON record per kernel: its status, its gates with a reason in words, and a few
facts. Everything here reads those words; nothing runs.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.errors import InputError

GATES = ("CMP-01", "CMP-03", "ORD-01", "ORD-02", "ORD-03", "PRC-01", "PRC-02", "EXC-01", "EXC-02", "RES-01")
"""Gates of the published battery."""
HALF_PRECISION = ("PRC-01", "PRC-02")
ARTEFACTS = ("CompilationError", "UnsupportedLanguageConstruct", "OutOfResources", "PTXASError")
"""Errors before the gates that the published audit puts down to the toolchain."""
NOT_AUDITED = ("not_auditable", "ref_broken")
NAN_ONLY = "scattered_nan: NaN mask mismatch"
TF32 = 5e-3
"""Scaled error below which a wrong product looks like TF32."""
_EPSILON = 1.19e-7
_ERROR = re.compile(r"max_err=([\d.]+(?:e[+-]?\d+)?|nan|inf)")
_TOLERANCE = re.compile(r"atol=([\d.]+(?:e[+-]?\d+)?)")


@dataclass(frozen=True)
class Gate:
    """What one gate of the published battery said of one kernel."""

    status: str
    """`pass`, `fail`, `na` or `error`."""
    reason: str = ""
    """Why, in the battery's words; several, separated by semicolons."""
    skipped: int = 0
    """Probes that it skipped."""


@dataclass(frozen=True)
class Row:
    """One kernel of the published audit."""

    id: str
    """Its id in the corpus."""
    op_class: str
    """Class of the operation."""
    status: str
    """`gated`, or why no gate ran."""
    speedup: float
    """Speedup that the corpus claims; positive means that it accepted the kernel."""
    seconds: float
    """Time it took, process start included."""
    error: str = ""
    """Error of a kernel that reached no gate."""
    aliasing: bool = False
    """An output shares memory."""
    shape: tuple[int, ...] = ()
    """Shape of the first input."""
    gates: Mapping[str, Gate] = field(default_factory=dict)
    """By id; empty where none ran."""

    @property
    def gated(self) -> bool:
        """True when the battery ran."""
        return self.status == "gated"

    @cached_property
    def artefact(self) -> bool:
        """True when the kernel did not compile on the auditors' toolchain."""
        return self.status == "cand_native_fail" and self.error.startswith(ARTEFACTS)

    @cached_property
    def crashed(self) -> bool:
        """True when a gate saw a CUDA error."""
        return any("CUDA error" in gate.reason for gate in self.gates.values())

    def fails(self, gate: str) -> bool:
        """True when the gate failed."""
        return gate in self.gates and self.gates[gate].status == "fail"

    def says(self, gate: str) -> str:
        """The reason that a gate gives, empty where it gives none."""
        return self.gates[gate].reason if gate in self.gates else ""

    @cached_property
    def nan_only(self) -> bool:
        """True when EXC-01 fails and its only complaint is where NaN arrives for NaN put in."""
        return self.fails("EXC-01") and set(_parts(self.says("EXC-01"))) == {NAN_ONLY}

    @cached_property
    def nan_is_not_nan(self) -> bool:
        """True when ORD-02 can only have failed because NaN is not equal to itself.

        The output of its own run on a long reduction contains NaN (the error of ORD-01 is NaN), while on
        ordinary random inputs the kernel is right.
        """
        return (self.fails("ORD-02") and _error(self.says("ORD-01")) is not None
                and math.isnan(_error(self.says("ORD-01")) or 0.0) and not self.says("CMP-01").startswith("random["))

    @cached_property
    def random_error(self) -> float | None:
        """Scaled error of a kernel whose first failure is the first random input, where it is a number.

        The battery allows 4 · 1.19e-7 · sqrt(elements) · scale, and scale, at least 1, is the largest value of
        the reference; so the printed tolerance and the printed shape give the scale back.
        """
        first = _parts(self.says("CMP-01"))[0] if self.fails("CMP-01") else ""
        error, allowed = _error(first), _TOLERANCE.search(first)
        if not first.startswith("random[0]") or error is None or math.isnan(error) or allowed is None:
            return None
        unit = 4 * _EPSILON * math.sqrt(math.prod(self.shape) or 1)
        return error / max(1.0, float(allowed[1]) / unit)

    @property
    def spotless(self) -> bool:
        """True when every gate ran, passed and skipped nothing."""
        return self.gated and all(
            g in self.gates and self.gates[g].status == "pass" and not self.gates[g].skipped for g in GATES)


def _parts(reason: str) -> list[str]:
    return [part.strip() for part in reason.split(";")]


def _error(text: str) -> float | None:
    found = _ERROR.search(text)
    return float(found[1]) if found else None


@dataclass(frozen=True)
class Clauses:
    """By what rules the rows are counted. The defaults are the published ones.

    Attributes:
        accepted_only: count only kernels that the corpus accepted.
        artefacts_excluded: leave kernels out that did not compile on the auditors' toolchain.
        exc01: `all` failures of EXC-01 count, those `beyond_nan` only, or `none`.
        nan_equals_nan: a kernel is repeatable when only its NaN differ.
        half_precision: failures of PRC-01 and PRC-02 count as findings.
        aliasing_is_a_finding: output aliasing counts as a finding, as it does in the floor.
    """

    accepted_only: bool = True
    artefacts_excluded: bool = True
    exc01: str = "all"
    nan_equals_nan: bool = False
    half_precision: bool = True
    aliasing_is_a_finding: bool = False

    def counts(self, row: Row, gate: str) -> bool:
        """Whether a gate's failure on a row counts under these clauses."""
        if not row.fails(gate):
            return False
        if gate == "EXC-01":
            return self.exc01 == "all" or (self.exc01 == "beyond_nan" and not row.nan_only)
        if gate == "ORD-02" and self.nan_equals_nan and row.nan_is_not_nan:
            return False
        return self.half_precision or gate not in HALF_PRECISION

    def finding(self, row: Row) -> bool:
        """Whether a row of the denominator has any finding."""
        return (not row.gated or any(self.counts(row, gate) for gate in GATES) or row.crashed
                or (self.aliasing_is_a_finding and row.aliasing))

    def floor(self, row: Row, *more: str) -> bool:
        """Whether a row is in the strict floor.

        Args:
            row: the row.
            more: what is added to it: `shape rejection` (CMP-03 failures that are exceptions), or gates.
        """
        if not row.gated or row.crashed or row.aliasing:
            return True
        if self.counts(row, "EXC-01") or self.counts(row, "ORD-02"):
            return True
        rejected = "shape rejection" in more and row.fails("CMP-03") and "exception" in row.says("CMP-03")
        return rejected or any(gate in more and self.counts(row, gate) for gate in GATES)


@dataclass(frozen=True)
class Population:
    """The rows in the stages of the published funnel, under some clauses."""

    rows: tuple[Row, ...]
    """All of them."""
    clauses: Clauses = Clauses()
    """How they are counted."""

    @cached_property
    def accepted(self) -> list[Row]:
        """Those that the corpus accepted (all where the clauses do not ask)."""
        return [r for r in self.rows if not self.clauses.accepted_only or r.speedup > 0]

    @cached_property
    def executable(self) -> list[Row]:
        """Those of them whose reference could be run and judged."""
        return [r for r in self.accepted if r.status not in NOT_AUDITED]

    @cached_property
    def audited(self) -> list[Row]:
        """The denominator of every rate."""
        return [r for r in self.executable if not self.clauses.artefacts_excluded or not r.artefact]

    @cached_property
    def gated(self) -> list[Row]:
        """Those of them that reached the gates."""
        return [r for r in self.audited if r.gated]


def read_rows(path: Path) -> tuple[Row, ...]:
    """Rows from a JSONL file, compressed or not.

    Raises:
        InputError: the file cannot be read, or a line is no such record.
    """
    rows = []
    for number, data in _records(path):
        try:
            rows.append(_row(data))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"no record of the published audit: {type(error).__name__} {error}",
                             f"{path}:{number}", "give the file with one record per kernel") from None
    if not rows:
        raise InputError("no records", str(path), "give the file with one record per kernel")
    return tuple(rows)


def _records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    except OSError as error:
        raise InputError(f"cannot read the rows: {error.strerror or error}", str(path), "check the path") from None
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise InputError(f"not JSON lines: {error}", str(path), "give .jsonl or .jsonl.gz") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                data = json.loads(line)
            except ValueError as error:
                raise InputError(f"not JSON: {error}", f"{path}:{number}", "give one JSON object a line") from None
            yield number, data


def _row(data: Mapping[str, Any]) -> Row:
    gates = {name: Gate(str(g["status"]), str(g.get("reason", "")), int(g.get("skipped", 0)))
             for name, g in data.get("gates", {}).items()}
    shape: Sequence[Any] = data.get("native_shape") or ()
    return Row(id=str(data["id"]), op_class=str(data["op_class"]), status=str(data["status"]),
               speedup=float(data.get("final_speedup") or 0.0), seconds=float(data["elapsed_s"]),
               error=str(data.get("error") or ""), aliasing=bool(data.get("output_aliasing", False)),
               shape=tuple(int(n) for n in shape), gates=gates)
