"""Live Python functions as source text, because candidates and references run in processes of their own.

A function travels with the module-level statements that it needs, each on its own line number, and with
nothing else of its file: a candidate beside its reference does not bring the reference along. A reference
becomes a task file whose `get_inputs` calls the given maker of inputs; the maker's integer parameters are the
sizes of the task.
"""

from __future__ import annotations

import ast
import base64
import inspect
import linecache
import pprint
import symtable
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.errors import InputError
from assay.run import codec
from assay.task import Candidate, Task, parse_candidate, parse_task

EXAMPLE_LIMIT = 16 << 20
"""Bytes of example tensors that are written into a task's source."""
_LIBRARIES = ("torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft")


def candidate_from(candidate: Callable[..., Any]) -> Candidate:
    """A Candidate from a function or class. Raises InputError when it has no source that can travel."""
    origin = _origin(candidate, "candidate")
    return parse_candidate(_text_of(origin), path=origin.file, entries=(origin.name,), id=origin.name)


def task_from(reference: Callable[..., Any], inputs: Any, init: Sequence[Any] = ()) -> Task:
    """A Task from a function or class and what makes its inputs; see `assay.verify`.

    Raises InputError when something has no source that can travel, or `inputs` is neither.
    """
    if inputs is None:
        raise InputError("a function or class as reference needs inputs", "inputs",
                         "give a function that returns the arguments of one call, or example arguments")
    origin = _origin(reference, "reference")
    parts = []
    if callable(inputs):
        maker = _origin(inputs, "inputs")
        if maker.file == origin.file:
            parts.append(_text_of(origin, maker.name))
            call = maker.name
        else:
            # another file may bind the same names to other things: it keeps a namespace of its own
            parts += [_text_of(origin), _separate(_text_of(maker))]
            call = f'_inputs_names["{maker.name}"]'
        parts.append(_maker(inputs, call, set(_bound_everywhere(parts[0]))))
    else:
        parts += [_text_of(origin), _example(inputs)]
    parts.append(f"def get_init_inputs():\n    return {_literal(list(init), 'init')}\n")
    return parse_task("\n\n\n".join(part.rstrip("\n") for part in parts) + "\n", path=origin.file,
                      entry=origin.name, id=origin.name)


@dataclass(frozen=True)
class _Origin:
    """Where a function comes from.

    Attributes:
        name: its module-level name.
        file: its file, or its name where it is imported from a library.
        text: the whole text of the file, or the import.
        package: package of its module.
    """

    name: str
    file: str
    text: str
    package: str


def _text_of(origin: _Origin, *more: str) -> str:
    """The part of the file that the function needs, and what other names of it need. Raises InputError."""
    try:
        return needed_source(origin.text, (origin.name, *more), origin.package)
    except SyntaxError as error:
        raise InputError(f"its file does not parse: {error.msg}", f"{origin.file}:{error.lineno}",
                         "save the file that runs") from None


def _origin(value: Callable[..., Any], role: str) -> _Origin:
    """Where a function or class comes from. Raises InputError when it has no source that can travel."""
    library = _library_name(value)
    if library is not None:
        module, name = library
        return _Origin(name, name, f"from {module} import {name}\n", "")
    value = inspect.unwrap(value)
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        raise InputError(f"a {type(value).__name__} has no source that can run in another process", role,
                         "give a function or a class defined in a file")
    name = value.__qualname__
    if "<lambda>" in name:
        raise InputError("a lambda has no name to be found by", role, "define it with def, at module level")
    if "." in name:
        raise InputError(f"`{name}` is defined inside another function or class", role,
                         "move it to module level: it runs in a process of its own")
    try:
        file = inspect.getsourcefile(value) or ""
    except TypeError:
        file = ""
    text = "".join(linecache.getlines(file)) if file else ""
    if not text:
        raise InputError(f"`{name}` has no source file", role, "define it in a file")
    home = sys.modules.get(value.__module__)
    return _Origin(name, file, text, getattr(home, "__package__", None) or "")


def _library_name(value: Any) -> tuple[str, str] | None:
    """Module and name by which an installed function is imported, such as `torch.softmax`."""
    name = getattr(value, "__name__", "")
    for module in _LIBRARIES:
        if name and getattr(sys.modules.get(module), name, None) is value:
            return module, name
    home = getattr(value, "__module__", None)
    found = sys.modules.get(home or "")
    file = getattr(found, "__file__", None)
    if not file or getattr(found, name, None) is not value:
        return None
    installed = [sysconfig.get_paths()[key] for key in ("purelib", "platlib", "stdlib")]
    if any(Path(file).is_relative_to(path) for path in installed):
        return str(home), name
    return None


def needed_source(text: str, names: Sequence[str], package: str = "") -> str:
    """The lines of a module that `names` need, in place; every other line is blank.

    Args:
        text: source of the module.
        names: module-level names to keep.
        package: package of the module, to make its relative imports absolute.

    Raises SyntaxError for text that is no Python.
    """
    tree = ast.parse(text)
    statements = [s for s in tree.body if not _is_main_guard(s)]
    bound = [set(_binds(s)) for s in statements]
    used = [_uses(s) for s in statements]
    wanted, kept = set(names), set[int]()
    while True:
        have = set().union(*(bound[i] for i in kept)) if kept else set()
        more = {i for i, s in enumerate(statements)
                if i not in kept and (bound[i] & wanted or _always(s) or _configures(s, used[i], have))}
        if not more:
            break
        kept |= more
        for i in more:
            wanted |= used[i]
    lines = text.splitlines()
    result = [""] * len(lines)
    for i in sorted(kept):
        first = min([statements[i].lineno, *(d.lineno for d in getattr(statements[i], "decorator_list", []))])
        last = statements[i].end_lineno or first
        result[first - 1:last] = lines[first - 1:last]
        rewritten = _absolute(statements[i], package)
        if rewritten is not None:
            result[first - 1:last] = [rewritten, *[""] * (last - first)]
    return "\n".join(result).rstrip("\n") + "\n"


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and any(
        isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(statement.test))


def _always(statement: ast.stmt) -> bool:
    """Imports whose names are not written down, or that change how the file reads."""
    return isinstance(statement, ast.ImportFrom) and (
        statement.module == "__future__" or any(alias.name == "*" for alias in statement.names))


def _configures(statement: ast.stmt, used: set[str], have: set[str]) -> bool:
    """A bare call, or an assignment to a part of something, about kept names: `torch.manual_seed(0)`."""
    whole = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    part = isinstance(statement, ast.Assign | ast.AugAssign) and not list(_binds(statement))
    roots = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
    return (whole or part) and bool(roots & have) and used <= have | set(dir(__builtins__))


def _binds(node: ast.AST) -> Iterator[str]:
    """Names that a statement binds in its own scope."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name.split(".")[0]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    else:
        for child in ast.iter_child_nodes(node):
            yield from _binds(child)


def _uses(statement: ast.stmt) -> set[str]:
    """Module-level names that a statement may read, now or when a function in it is called."""
    found: set[str] = set()

    def visit(table: symtable.SymbolTable) -> None:
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() if top else symbol.is_global():
                found.add(symbol.get_name())
        for child in table.get_children():
            visit(child)

    visit(symtable.symtable(ast.unparse(statement), "<statement>", "exec"))
    return found


def _absolute(statement: ast.stmt, package: str) -> str | None:
    """A relative import with the package written out; None for every other statement."""
    if not isinstance(statement, ast.ImportFrom) or not statement.level or not package:
        return None
    parts = package.split(".")
    parent = ".".join(parts[: len(parts) - statement.level + 1])
    module = f"{parent}.{statement.module}" if statement.module else parent
    names = ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in statement.names)
    return f"from {module} import {names}"


def _bound_everywhere(text: str) -> Iterator[str]:
    for statement in ast.parse(text).body:
        yield from _binds(statement)


def _separate(text: str) -> str:
    """Statements that execute a text in the namespace `_inputs_names`."""
    return "\n".join([f"_inputs_source = {text!r}", '_inputs_names = {"__name__": "inputs"}',
                      'exec(compile(_inputs_source, "inputs.py", "exec"), _inputs_names)'])


def _maker(inputs: Callable[..., Any], call: str, taken: set[str]) -> str:
    """Source of `get_inputs` that calls a maker of inputs, with its sizes as module-level integers."""
    lines, arguments = [], []
    for parameter in inspect.signature(inputs).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty:
            raise InputError(f"the maker of inputs needs a value for `{parameter.name}`", "inputs",
                             "give every parameter a default; integer ones are the sizes")
        if type(parameter.default) is int and parameter.kind is not parameter.POSITIONAL_ONLY:
            size = parameter.name
            while size in taken:
                size += "_"
            lines.append(f"{size} = {parameter.default}")
            arguments.append(f"{parameter.name}={size}")
    lines += ["", "", "def get_inputs():", f"    return {call}({', '.join(arguments)})"]
    return "\n".join(lines)


def _example(inputs: Any) -> str:
    """Source of `get_inputs` that returns example arguments, floating tensors shuffled at random."""
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if not isinstance(inputs, Mapping | Sequence) or isinstance(inputs, str):
        raise InputError(f"inputs is a {type(inputs).__name__}", "inputs",
                         "give a function that makes inputs, or example arguments")
    tensors: list[torch.Tensor] = []

    def expression(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return f"_example({len(tensors) - 1})"
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{k!r}: {expression(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list | tuple):
            items = "".join(f"{expression(v)}, " for v in value)
            return f"({items})" if isinstance(value, tuple) else f"[{items}]"
        return _literal(value, "inputs")

    returned = expression(dict(inputs) if isinstance(inputs, Mapping) else list(inputs))
    if sum(t.numel() * t.element_size() for t in tensors) > EXAMPLE_LIMIT:
        raise InputError(f"the example tensors take more than {EXAMPLE_LIMIT >> 20} MiB", "inputs",
                         "give a function that makes inputs")
    rows = []
    for tensor in tensors:
        data = base64.b64encode(bytes(codec.tensor_bytes(tensor))).decode()
        rows.append(f"    ({data!r}, {str(tensor.dtype)!r}, {list(tensor.shape)!r}),")
    return "\n".join([
        "_EXAMPLES = (", *rows, ")", "", "",
        "def _example(position):",
        "    import base64",
        "    import torch",
        "    data, dtype, shape = _EXAMPLES[position]",
        '    kind = getattr(torch, dtype.removeprefix("torch."))',
        "    raw = bytearray(base64.b64decode(data))",
        "    flat = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)",
        "    flat = flat.view(kind)",
        "    if flat.is_floating_point():",
        "        flat = flat[torch.randperm(flat.numel())]",
        "    return flat.reshape(shape)",
        "", "",
        "def get_inputs():",
        f"    return {returned}",
    ])


def _literal(value: Any, role: str) -> str:
    """Source of a plain value. Raises InputError for what has none."""
    text = pprint.pformat(value, width=10**9, compact=True)
    try:
        if ast.literal_eval(text) == value:
            return text
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    raise InputError(f"a {type(value).__name__} cannot be written down", role,
                     "use numbers, text, lists and dicts")
