"""Tasks in the formats of other benchmarks, each rewritten as one self-contained reference file.

A format is one module with `recognises(path)` and `load(path, ...)`, and one line in `FORMATS`. What it reads
becomes a Task (text in the usual form, its sizes as module-level integers), Candidates (destination-passing
ones wrapped by an adapter) and the clauses of a Contract that the format states. What was not understood is
said in `notes`; a fault of the files is an InputError of one line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from assay.errors import InputError
from assay.task.formats import aten, flashinfer_bench, popcorn, robust_kbench
from assay.task.formats.loaded import Loaded

__all__ = ["FORMATS", "Format", "Loaded", "detect", "find", "load"]


class Format(NamedTuple):
    """How one format is told and read."""

    recognises: Callable[[Path], bool]
    """Whether a file or folder is of this format; reads names only."""
    load: Callable[[Path], tuple[Loaded, ...]]
    """Everything in it, in the order of names. Raises InputError."""


FORMATS: dict[str, Format] = {
    "flashinfer-bench": Format(flashinfer_bench.recognises, flashinfer_bench.load),
    "robust-kbench": Format(robust_kbench.recognises, robust_kbench.load),
    "popcorn": Format(popcorn.recognises, popcorn.load),
    "aten": Format(aten.recognises, aten.load),
}
"""Formats by name, in the order in which they are tried."""


def detect(path: str | Path) -> str | None:
    """Name of the format of a file or folder; None where it is none of these."""
    place = Path(path)
    return next((name for name, form in FORMATS.items() if form.recognises(place)), None)


def find(reference: str | Path) -> Loaded | None:
    """The one task that `PATH` or `PATH::NAME` names, PATH a folder or a telling file of a known format.

    None where PATH is of no such format. Raises InputError: no such task, or several and none is named.
    """
    text, separator, name = str(reference).partition("::")
    path = Path(text)
    root = _root(path)
    if root is None:
        if separator and path.exists():
            raise InputError("`::NAME` chooses a task of another format, and this is none", text,
                             f"known: {', '.join(FORMATS)}")
        return None
    found = load(root)
    ids = [one.task.id for one in found]
    if not separator and path.is_file() and path.resolve() != root.resolve():
        found = tuple(one for one in found if Path(one.task.path).resolve() == path.resolve()) or found
    if separator:
        found = tuple(one for one in found if one.task.id == name)
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{text}::{one}" for one in ids[:6]) + (", …" if len(ids) > 6 else "")
    what = f"no task `{name}`" if separator else f"{len(found)} tasks"
    raise InputError(f"{what} in this folder", text, f"name one: {listed}")


def _root(path: Path) -> Path | None:
    """The folder of a known format that a path is, or is a telling file of."""
    if path.is_dir():
        return path if detect(path) is not None else None
    if path.suffix == ".json":
        return next((p.parent for p in path.parents if p.name == "definitions"), None)
    # of the formats that one file tells: the others would look into every folder beside it
    told = {"task.yml": popcorn, "reference.py": popcorn, "func_forward.py": robust_kbench,
            "func_backward.py": robust_kbench}.get(path.name)
    return path.parent if told is not None and path.is_file() and told.recognises(path.parent) else None


def load(path: str | Path, format: str | None = None) -> tuple[Loaded, ...]:
    """Read what is at a path.

    Args:
        path: a folder, or the file that the format is told by.
        format: its name; None to detect it.

    Raises:
        InputError: no such path, no such format, or files that cannot be read as that format.
    """
    place = Path(path)
    if not place.exists():
        raise InputError("no such file or folder", str(path), "check the path")
    name = format or detect(place)
    if name is None:
        raise InputError(
            "no known task format", str(path), f"known: {', '.join(FORMATS)}, or a reference file"
        )
    if name not in FORMATS:
        raise InputError(f"no format `{name}`", "format", f"known: {', '.join(FORMATS)}")
    return FORMATS[name].load(place)
