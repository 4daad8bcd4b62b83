"""Nouns of the task side: Task, Candidate and the one exception for bad input.

Everything here is static: sources are read and parsed, never executed.
"""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from assay.errors import InputError
from assay.task import bare_cuda
from assay.task.language import Language, detect_languages

TaskFormat = Literal["kernelbench", "callable"]

_REQUIRED = ("get_inputs", "get_init_inputs")


class TaskError(InputError):
    """A task or a candidate file is at fault: one line says what is wrong, where, and what to do.

    Args:
        what: what is wrong.
        where: file and line (``file:line``), or the name of a live object.
        todo: what the author of the file should do.
    """

    def __init__(self, what: str, where: str, todo: str) -> None:
        super().__init__(_one_line(what), where, _one_line(todo))

    def __reduce__(self) -> tuple[type[TaskError], tuple[str, str, str]]:
        return type(self), (self.what, self.where, self.todo)


class Task(BaseModel):
    """What to compute: a reference, how its inputs are made, and its constructor arguments."""

    model_config = ConfigDict(frozen=True)

    id: str
    """Readable name, unique enough to show (for example the folder or the file's stem)."""
    format: TaskFormat = "kernelbench"
    """How the task is written, and so which loader instantiates it."""
    source: str = ""
    """Full text of the reference file; empty for live Python callables."""
    path: str = ""
    """Path as the user gave it, for messages only."""
    entry: str = "Model"
    """Name of the reference class (or function) in the source."""
    handle: str | None = None
    """Key of the live callables in this process and its forks; None when the source is enough."""
    stated: dict[str, Any] = Field(default_factory=dict)
    """Clauses of the contract that the task's own format states; what a person writes wins over them."""
    notes: tuple[str, ...] = ()
    """What the loader of another format did not understand, one line each."""
    digest: str = ""
    """SHA-256 of format, entry, handle and source."""

    def model_post_init(self, context: object, /) -> None:
        """Fill in the digest."""
        if not self.digest:
            parts = (self.format, self.entry, self.handle or "", self.source)
            object.__setattr__(self, "digest", content_hash(*parts))

    @property
    def candidate_entries(self) -> tuple[str, ...]:
        """Names under which a candidate may define its entry point, in the order tried."""
        names = ("ModelNew", f"{self.entry}New")
        return tuple(dict.fromkeys(names))

    @property
    def shown(self) -> str:
        """What messages call this task's file."""
        return self.path or self.id


class Candidate(BaseModel):
    """Source under test; it is only ever imported in a candidate worker."""

    model_config = ConfigDict(frozen=True)

    id: str
    """Readable name (the file's stem, or the folder's name for ``candidate.py``)."""
    source: str
    """Full text of the candidate file."""
    path: str = ""
    """Path as the user gave it, for messages only."""
    language: Language = "torch"
    """The language its kernels are written in; ``torch`` where it defines none."""
    languages: tuple[Language, ...] = ()
    """Every kernel language found in the source, the one of ``language`` first."""
    entry: str | None = "ModelNew"
    """Name of the class (or function) to run; None when none was found."""
    defect: str | None = None
    """Why the file cannot be used as a candidate (syntax error, no entry point), or None."""
    digest: str = ""
    """SHA-256 of entry and source."""

    def model_post_init(self, context: object, /) -> None:
        """Fill in the digest."""
        if not self.digest:
            object.__setattr__(self, "digest", content_hash(self.entry or "", self.source))

    @property
    def shown(self) -> str:
        """What messages call this candidate's file."""
        return self.path or self.id


class ParsedFile(BaseModel):
    """Top-level names of a Python file, with the line that binds each."""

    model_config = ConfigDict(frozen=True)

    bound: dict[str, int] = Field(default_factory=dict)
    """Name to line number."""
    classes: tuple[str, ...] = ()
    """Names bound by class statements, in order."""


def content_hash(*parts: str) -> str:
    """SHA-256 over length-prefixed parts, as hex."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(str(len(data)).encode() + b":" + data)
    return digest.hexdigest()


def load_task(path: str | Path, *, entry: str = "Model") -> Task:
    """Read a KernelBench-style reference file.

    Raises:
        TaskError: missing or unreadable file, syntax error, no entry class, no ``get_inputs``.
    """
    source = _read(Path(path), "the reference")
    return parse_task(source, path=str(path), entry=entry)


def parse_task(
    source: str, *, path: str = "<reference>", entry: str = "Model", id: str | None = None
) -> Task:
    """Make a Task from the text of a KernelBench-style file; checks its form without running it.

    Raises:
        TaskError: syntax error, no entry class, no ``get_inputs`` or ``get_init_inputs``.
    """
    parsed = parse_file(source, path)
    if entry not in parsed.bound:
        classes = ", ".join(parsed.classes) or "none"
        raise TaskError(
            f"no class {entry} (classes found: {classes})",
            f"{path}:1",
            f"define `class {entry}(nn.Module)` with the reference computation",
        )
    for name in _REQUIRED:
        if name not in parsed.bound:
            raise TaskError(
                f"no function {name}",
                f"{path}:{parsed.bound[entry]}",
                f"define `def {name}()` at module level, returning the list of "
                + ("inputs of forward" if name == "get_inputs" else "constructor arguments (may be empty)"),
            )
    return Task(id=id or _name_of(Path(path)), source=source, path=path, entry=entry)


def load_candidate(
    path: str | Path, *, entries: tuple[str, ...] = ("ModelNew",), strict: bool = True
) -> Candidate:
    """Read a candidate file.

    Args:
        path: the file.
        entries: names its entry point may have, in the order tried (``Task.candidate_entries``).
        strict: raise for a syntax error or a missing entry point; otherwise return a Candidate
            whose ``defect`` says so.

    Raises:
        TaskError: missing or unreadable file; with ``strict`` also the defects.
    """
    source = _read(Path(path), "the candidate")
    return parse_candidate(source, path=str(path), entries=entries, strict=strict)


def parse_candidate(
    source: str,
    *,
    path: str = "<candidate>",
    entries: tuple[str, ...] = ("ModelNew",),
    strict: bool = True,
    id: str | None = None,
) -> Candidate:
    """Make a Candidate from source text; arguments and errors as :func:`load_candidate`."""
    languages = detect_languages(source, path)
    name = id or _name_of(Path(path))
    if Path(path).suffix in (".cu", ".cuh") and not re.search(r"^class ModelNew\b", source, re.MULTILINE):
        unbound = None if bare_cuda.has_binding(source) else TaskError(
            "no binding in this CUDA file", f"{path}:1",
            "add PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) that exports `forward`")
        if unbound is not None and strict:
            raise unbound
        return Candidate(
            id=name, source=bare_cuda.wrapped(source, name), path=path, language="cuda", languages=("cuda",),
            entry="ModelNew", defect=str(unbound) if unbound else None,
        )
    entry: str | None = None
    error: TaskError | None = None
    try:
        parsed = parse_file(source, path)
        entry = next((known for known in entries if known in parsed.bound), None)
        if entry is None:
            error = TaskError(
                f"no {' or '.join(entries)} (classes found: {', '.join(parsed.classes) or 'none'})",
                f"{path}:1",
                f"name the candidate's class {entries[0]}",
            )
    except TaskError as fault:
        error = fault
    if error is not None and strict:
        raise error
    return Candidate(
        id=name,
        source=source,
        path=path,
        language=languages[0],
        languages=languages,
        entry=entry,
        defect=str(error) if error else None,
    )


def parse_file(source: str, path: str) -> ParsedFile:
    """Names bound at the top level of a file, also inside ``if``, ``try`` and ``with`` there.

    Raises:
        TaskError: the text is not Python.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise TaskError(
            f"syntax error: {error.msg}", f"{path}:{error.lineno or 1}", "correct the syntax there"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"not Python: {error}", f"{path}:1", "give a Python source file") from None
    bound: dict[str, int] = {}
    classes: list[str] = []
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        statement = pending.pop(0)
        for name in _bound_names(statement):
            bound.setdefault(name, statement.lineno)
        if isinstance(statement, ast.ClassDef):
            classes.append(statement.name)
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            inner: list[ast.stmt] = [*statement.body]
            if not isinstance(statement, ast.With):
                inner += statement.orelse
            if isinstance(statement, ast.Try):
                inner += [child for handler in statement.handlers for child in handler.body]
                inner += statement.finalbody
            pending = inner + pending
    return ParsedFile(bound=bound, classes=tuple(classes))


def _bound_names(statement: ast.stmt) -> list[str]:
    """Names that one top-level statement binds."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in statement.names]
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def _read(path: Path, role: str) -> str:
    """Text of a source file, or a TaskError that says why not."""
    if not path.exists():
        raise TaskError(f"no such file for {role}", str(path), "check the path")
    if path.is_dir():
        raise TaskError(f"{role} is a directory", str(path), "give the Python file inside it")
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise TaskError(
            f"cannot read {role}: {error.strerror or error}", str(path), "check the file's permissions"
        ) from None
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{role} is not UTF-8 text (byte {error.start})", str(path), "save it as UTF-8"
        ) from None


def _name_of(path: Path) -> str:
    """A readable name: the stem, or the folder's name for the conventional file names."""
    if path.stem in ("reference", "candidate", "task", "submission") and path.parent.name:
        return path.parent.name
    return path.stem or "task"


def _one_line(text: str) -> str:
    """Text on one line, at most 300 characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 300 else flat[:297] + "..."
