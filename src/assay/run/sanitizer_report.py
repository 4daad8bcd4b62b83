"""Reading what compute-sanitizer prints: one report for each fault, with kernel, line and thread.

Formats: NVIDIA Compute Sanitizer user manual, sections on memcheck, racecheck, initcheck and synccheck and its
tool examples; the place of an access is written in another order by the releases before CUDA 12.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PREFIX = "========="
_ACCESS = re.compile(r"Invalid __(?P<space>\w+)__ (?P<how>read|write|atomic)\w* of size (?P<size>[\d,]+)")
_UNWRITTEN = re.compile(r"Uninitialized __(?P<space>\w+)__ memory read of size (?P<size>[\d,]+)")
_BARRIER = re.compile(r"Barrier error detected\.?\s*(?P<what>[^.]*)")
_RACE = re.compile(r"(?P<level>Error|Warning|Info)\s*:\s*Race reported between (?P<how>\w+) access at (?P<place>.+)")
_RACE_WITH = re.compile(r"and (?P<how>\w+) access at (?P<place>.+?)(?: \[(?P<count>[\d,]+) hazards?\])?$")
_PLACE = re.compile(r"^(?P<name>.*?)\s*\+0x[0-9a-f]+(?: in (?P<file>.+?)(?::(?P<line>\d+))?)?$")
_OLD_PLACE = re.compile(r"^0x[0-9a-f]+(?: in (?:(?P<file>[^:]+):(?P<line>\d+):)?(?P<name>.+?))?$")
_THREAD = re.compile(r"by thread \((\d+),\s*(\d+),\s*(\d+)\) in block \((\d+),\s*(\d+),\s*(\d+)\)")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK|LEAK) SUMMARY: (?P<count>\d+)")
_TROUBLE = re.compile(
    r"Internal Sanitizer Error|Device not supported|Target application returned an error before|"
    r"Failed to (?:initialize|attach|connect|launch)|No attachable process|Unable to find injection|"
    r"Error: (?!Race|Potential)[^\n]*",
    re.IGNORECASE,
)
_ANONYMOUS = ("(anonymous namespace)::", "<unnamed>::", "_GLOBAL__N__")
_CLONE = re.compile(r"^\[clone (?P<name>.+)\]\s")


@dataclass(frozen=True)
class Report:
    """One fault that the tool printed."""

    kind: str
    """`read`, `write`, `misaligned`, `unwritten`, `race` or `barrier`; `other` for an access of another kind."""
    text: str
    """The line that says what is wrong, without prefix."""
    kernel: str = ""
    """Name of the kernel, without namespaces, template arguments and parameters."""
    names: tuple[str, ...] = ()
    """Every function named, from the access outwards, as printed."""
    file: str = ""
    """File of the access; empty without line information."""
    line: int = 0
    """Line in it, from 1; 0 without line information."""
    size: int = 0
    """Bytes of the access."""
    thread: tuple[int, ...] = ()
    """Index of the thread (x, y, z)."""
    block: tuple[int, ...] = ()
    """Index of the block (x, y, z)."""
    detail: str = ""
    """What else is said of the address, or the other side of a race."""

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class Parsed:
    """A whole log.

    Attributes:
        reports: in the order printed.
        finished: whether the tool came to its summary, without which nothing can be concluded from silence.
        trouble: what kept the tool from working; empty without.
    """

    reports: tuple[Report, ...]
    finished: bool
    trouble: str = ""


def parse(log: str) -> Parsed:
    """Read a log of any of the four tools. Races of a level below `Error`, and errors of the API, are left out."""
    lines = [line.removeprefix(PREFIX).strip() for line in log.splitlines() if line.startswith(PREFIX)]
    # what a broken installation prints may have no prefix
    trouble = _TROUBLE.search("\n".join(lines)) or (_TROUBLE.search(log) if not lines else None)
    reports = [r for block in _blocks(lines) if (r := _report(block)) is not None]
    return Parsed(tuple(reports), any(_SUMMARY.search(line) for line in lines), trouble.group(0) if trouble else "")


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each report: from its first to the next first line, an empty one or a summary."""
    block: list[str] = []
    for line in lines:
        starts = any(p.match(line) for p in (_ACCESS, _UNWRITTEN, _BARRIER, _RACE))
        if starts or not line or _SUMMARY.search(line):
            if block:
                yield block
            block = [line] if starts else []
        elif block:
            block.append(line)
    if block:
        yield block


def _report(block: Sequence[str]) -> Report | None:
    first, rest = block[0], list(block[1:])
    if race := _RACE.match(first):
        if race["level"] != "Error":
            return None
        names, file, line = _place(race["place"])
        others = [m for m in map(_RACE_WITH.match, rest) if m]
        frames = _frames(rest)
        with_ = [f"{m['how'].lower()} at {_where(m['place'])}" for m in others[:3]]
        return Report(
            "race",
            f"{race['how'].lower()} races with {' and '.join(with_) or 'another access'}",
            kernel_of([*names, *frames]),
            (*names, *frames),
            file,
            line,
            detail=f"{others[0]['count']} hazards" if others and others[0]["count"] else "",
        )
    names, file, line = (), "", 0
    for text in rest:
        if text.startswith("at "):
            names, file, line = _place(text[3:])
            break
    frames = _frames(rest)
    every = (*names, *frames)
    thread = next((tuple(map(int, m.groups())) for t in rest if (m := _THREAD.search(t))), ())
    said = [t for t in rest if re.match(r"(?:Address|Access|and is)\b", t)]
    common: dict[str, Any] = {
        "kernel": kernel_of(every),
        "names": every,
        "file": file,
        "line": line,
        "thread": thread[:3],
        "block": thread[3:],
        "detail": re.sub(r"0x[0-9a-f]+", "an address", " ".join(said)),
    }
    if access := _ACCESS.match(first):
        aligned = not any("misaligned" in t for t in said)
        outside = not said or any("out of bounds" in t or "nearest allocation" in t for t in said)
        kind = (
            "misaligned" if not aligned else "other" if not outside else "read" if access["how"] == "read" else "write"
        )
        return Report(kind, first, size=_number(access["size"]), **common)
    if unwritten := _UNWRITTEN.match(first):
        kind = "unwritten" if unwritten["space"] == "global" else "other"
        return Report(kind, first, size=_number(unwritten["size"]), **common)
    return Report("barrier", first, **common)


def _frames(lines: Sequence[str]) -> tuple[str, ...]:
    """Functions of the device's backtrace, innermost first."""
    return tuple(
        name
        for line in lines
        if line.startswith("Device Frame:")
        for name in _place(line.removeprefix("Device Frame:").strip())[0]
    )


def _place(text: str) -> tuple[tuple[str, ...], str, int]:
    """Functions, file and line of a place as printed, in either order."""
    found = _OLD_PLACE.match(text) or _PLACE.match(text)
    if found is None:
        return ((text,) if text else ()), "", 0
    name = found["name"] or ""
    clone = _CLONE.match(name)
    names = (clone["name"], name[clone.end() :]) if clone else (name,)
    return tuple(n for n in names if n), found["file"] or "", int(found["line"] or 0)


def _where(text: str) -> str:
    names, file, line = _place(text)
    return f"{file}:{line}" if line else base_name(names[0]) if names else "another place"


def kernel_of(names: Sequence[str]) -> str:
    """The kernel among functions from the access outwards: the outermost."""
    return base_name(names[-1]) if names else ""


def base_name(name: str) -> str:
    """`k` for `void (anonymous namespace)::ns::k<float, 4>(float const*, int)`."""
    plain = _plain(name)
    return re.split(r"[\s:]+", plain)[-1] if plain else ""


def _plain(name: str) -> str:
    """A function with its namespaces, without template arguments, tags and parameters."""
    for mark in _ANONYMOUS:
        name = name.replace(mark, "")
    depth, kept = 0, []
    for letter in name.removesuffix("()").strip():
        depth += letter == "<"
        if depth == 0:
            kept.append(letter)
        depth = max(0, depth - (letter == ">"))
    return re.split(r"[(\[]", "".join(kept))[0].strip()


def _number(text: str) -> int:
    return int(text.replace(",", ""))


_KERNEL = re.compile(
    r"__global__\s+(?:(?:static|inline|__launch_bounds__\s*\([^)]*\)|__cluster_dims__\s*\([^)]*\)|"
    r"__maxnreg__\s*\([^)]*\)|extern|template)\s+)*(?:void|auto)\s+"
    r"(?:(?:__launch_bounds__|__cluster_dims__|__maxnreg__)\s*\([^)]*\)\s*)*(?P<name>\w+)\s*[(<]"
)
_FUNCTION = re.compile(r"^\s*def\s+(?P<name>\w+)\s*\(", re.MULTILINE)
_FOREIGN = re.compile(r"\b(?:at|c10|at_cuda_detail|cub|thrust|cutlass|cudnn|cublas\w*|nccl\w*)::")


def defined_kernels(source: str) -> frozenset[str]:
    """Names that kernels of a candidate may have: its functions in Python, its `__global__` functions."""
    # a string may write its line breaks as escapes
    text = source.replace("\\n", "\n")
    return frozenset(m["name"] for pattern in (_KERNEL, _FUNCTION) for m in pattern.finditer(text))


def is_own(report: Report, defined: frozenset[str]) -> bool:
    """Whether a report is of a kernel that the candidate itself defines, and not of a library's."""
    # what a kernel calls of a library is its own doing
    foreign = bool(report.names) and _FOREIGN.search(_plain(report.names[-1])) is not None
    return not foreign and report.kernel in defined
