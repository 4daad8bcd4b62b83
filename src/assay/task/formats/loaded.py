"""What a loader returns, and the pieces that loaders share: source text written and rewritten."""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import re
import symtable
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.contract.model import Contract
from assay.errors import InputError
from assay.task.model import Candidate, Task, parse_candidate

_DEFINES = re.compile(r"^(class|def) ModelNew\b|^ModelNew\s*=", re.MULTILINE)


@dataclass(frozen=True)
class Loaded:
    """One task of another format.

    Attributes:
        task: its reference in the usual form.
        candidates: solutions that came with it.
        contract: the clauses that the format states; the rest is for inference.
        format: name of the format.
        notes: what was not understood, one line each.
        details: what is needed to write results back, such as names and workloads.
        adapt: reads another candidate of this task from a file of the format. Raises InputError.
    """

    task: Task
    candidates: tuple[Candidate, ...] = ()
    contract: Contract = field(default_factory=Contract)
    format: str = ""
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    adapt: Callable[[Path], Candidate] | None = None

    def candidate(self, path: Path) -> Candidate:
        """The candidate in a file: one that came with the task, or another one of its format.

        A file that defines `ModelNew` is taken as it is. Raises InputError.
        """
        place = path.resolve()
        own = next((c for c in self.candidates if c.path and Path(c.path).resolve() == place), None)
        if own is not None:
            return own
        if path.is_dir():
            raise InputError("the candidate is a directory", str(path), "give the file inside it")
        text = read_text(path)
        if self.adapt is None or (path.suffix == ".py" and _DEFINES.search(text)):
            return parse_candidate(text, path=str(path), entries=self.task.candidate_entries, strict=False)
        return self.adapt(path)

    def whole(self) -> Task:
        """The task with what its format states and what was not understood."""
        return self.task.model_copy(update={
            "stated": self.contract.model_dump(mode="json", exclude_unset=True), "notes": self.notes})


def read_text(path: Path) -> str:
    """Text of a file. Raises InputError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror or error}", str(path), "check the file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text (byte {error.start})", str(path), "save it as UTF-8") from None


def read_json(path: Path) -> Any:
    """Data of a JSON file. Raises InputError with the line at fault."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg}", f"{path}:{error.lineno}", "correct it") from None


def parse(source: str, where: str) -> ast.Module:
    """Syntax tree of a source. Raises InputError with the line at fault."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise InputError(f"syntax error: {error.msg}", f"{where}:{error.lineno or 1}", "correct it") from None


def field_of(data: Any, name: str, kind: type, where: str) -> Any:
    """A required field of JSON data. Raises InputError when it is missing or of another type."""
    value = data.get(name) if isinstance(data, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        found = "missing" if value is None else f"a {type(value).__name__}"
        raise InputError(
            f"`{name}` should be {_KINDS.get(kind, kind.__name__)}, it is {found}", where, "correct the file"
        )
    return value


_KINDS = {str: "text", dict: "a table", list: "a list", int: "a whole number"}


def bound_names(tree: ast.Module) -> set[str]:
    """Every name that a module's top level binds or its functions read as globals."""
    table = symtable.symtable(ast.unparse(tree), "<source>", "exec")
    names = set(table.get_identifiers())
    pending = list(table.get_children())
    while pending:
        scope = pending.pop()
        names |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
        pending += scope.get_children()
    return names


def fresh(name: str, taken: Collection[str]) -> str:
    """A legal name like the given one that nothing else goes by."""
    made = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "size"
    if made[0].isdigit():
        made = f"n{made}"
    while made in taken or keyword.iskeyword(made) or hasattr(builtins, made):
        made += "_"
    return made


def module(parts: Iterable[str]) -> str:
    """Source text from its parts, empty ones left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


class _OnHost(ast.NodeTransformer):
    """Device literals and `.cuda()` calls replaced by the place that the caller works on."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, str) and (node.value == "cuda" or node.value.startswith("cuda:")):
            return ast.copy_location(ast.parse("_PLACE[0]", mode="eval").body, node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not node.args:
            node.func.attr = "to"
            node.args = [ast.parse("_PLACE[0]", mode="eval").body]
        return node


PLACE = '_PLACE = ["cpu"]  # the device that the reference works on'


def on_host(tree: ast.Module) -> ast.Module:
    """A reference that names no CUDA device: inputs are made on the host, the rest follows the inputs.

    The source needs `PLACE` before it.
    """
    moved: ast.Module = ast.fix_missing_locations(_OnHost().visit(tree))
    return moved


def without(tree: ast.Module, names: Collection[str]) -> ast.Module:
    """A module without the top-level functions, classes and assignments of these names."""
    kept: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            continue
        if isinstance(node, ast.Assign) and all(
            isinstance(t, ast.Name) and t.id in names for t in node.targets
        ):
            continue
        kept.append(node)
    return ast.Module(body=kept, type_ignores=[])


def has_function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The top-level function of that name."""
    return next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
