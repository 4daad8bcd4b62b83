"""popcorn (gpu-mode): `task.yml`, `reference.py` with `generate_input` and `ref_kernel`, and a submission."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.contract.model import Contract, Domain, InputDomain
from assay.errors import InputError
from assay.task.formats import yaml_subset
from assay.task.formats.loaded import (
    PLACE,
    Loaded,
    bound_names,
    fresh,
    has_function,
    module,
    on_host,
    parse,
    read_text,
    without,
)
from assay.task.model import Candidate, parse_candidate, parse_task

NAME = "popcorn"
_CHECKER = ("check_implementation",)
_FILLING = frozenset(
    {
        "uniform_",
        "normal_",
        "random_",
        "fill_",
        "zero_",
        "copy_",
        "exponential_",
        "bernoulli_",
        "cauchy_",
        "log_normal_",
        "geometric_",
    }
)
_EMPTY = frozenset({"empty", "empty_like", "new_empty", "empty_strided"})


def recognises(path: Path) -> bool:
    """Whether a folder holds `task.yml` and `reference.py`."""
    return (path / "task.yml").is_file() and (path / "reference.py").is_file()


def load(path: Path) -> tuple[Loaded, ...]:
    """The task at the smallest of its tests. Raises InputError."""
    cases = test_cases(path)
    smallest = min(range(len(cases)), key=lambda i: _weight(cases[i]))
    return (load_case(path, smallest),)


def test_cases(path: Path) -> list[dict[str, Any]]:
    """Keyword arguments of `generate_input` for every test, then every benchmark. Raises InputError."""
    where = str(path / "task.yml")
    found = yaml_subset.lists(read_text(path / "task.yml"), ("tests", "benchmarks"), where)
    cases = [*found.get("tests", []), *found.get("benchmarks", [])]
    if not cases:
        raise InputError("no tests", where, "list keyword arguments of generate_input under `tests:`")
    return cases


def load_case(path: Path, number: int) -> Loaded:
    """The task at one of its cases. Raises InputError."""
    cases = test_cases(path)
    if not 0 <= number < len(cases):
        raise InputError(
            f"no case {number}, there are {len(cases)}", str(path / "task.yml"), "choose one of them"
        )
    file = path / "reference.py"
    tree = parse(read_text(file), str(file))
    maker = has_function(tree, "generate_input")
    if maker is None or has_function(tree, "ref_kernel") is None:
        raise InputError("no `generate_input` or no `ref_kernel`", str(file), "define both at the top level")
    notes = ["the task's own checker is not used: tolerances are derived"]
    if len(cases) > 1:
        notes.append(f"case {number} of {len(cases)} gives the native sizes")
    filled = uninitialised(maker)
    if filled:
        notes.append(
            f"elements {', '.join(map(str, filled))} of data are outputs: they come as zeros, copied"
        )
    parts = _modules(path, tree, notes)
    core = without(tree, _CHECKER)
    core.body = [n for n in core.body if not _imports(n, ("task", "utils", "reference"))]
    source = _source(module([*parts, ast.unparse(on_host(core))]), cases[number], filled)
    candidates = tuple(_candidate(found, parts, filled) for found in _submissions(path))
    return Loaded(
        parse_task(source, path=str(file), id=path.name),
        candidates,
        _contract(filled),
        NAME,
        tuple(notes),
        {"case": cases[number]},
        lambda found: _candidate(found, parts, filled),
    )


def _contract(filled: tuple[int, ...]) -> Contract:
    """A submission fills memory that it is given, below autograd; that memory lies as the generator makes it."""
    inputs = {f"0.{position}": InputDomain(layouts=()) for position in filled}
    return Contract(domain=Domain(inputs=inputs), gradients="none")


def _weight(case: Mapping[str, Any]) -> int:
    return math.prod(max(1, value) for key, value in case.items() if type(value) is int and key != "seed")


def _source(body: str, case: Mapping[str, Any], filled: tuple[int, ...]) -> str:
    """Text in the usual form: sizes by name, and a seed for `generate_input` from the seeded generator."""
    taken = bound_names(ast.parse(body))
    names = {key: fresh(key, taken) for key, value in case.items() if type(value) is int and key != "seed"}
    arguments = [
        "seed=int(torch.randint(0, 2**31 - 1, (1,)))"
        if key == "seed"
        else f"{key}={names.get(key, repr(value))}"
        for key, value in case.items()
    ]
    return module(
        [
            "import torch",
            PLACE,
            body,
            "\n".join(f"{names[key]} = {case[key]}" for key in names),
            _COPIED,
            "class Model(torch.nn.Module):\n    def forward(self, data):\n"
            f"        return ref_kernel(_copied(data, {filled!r}))",
            "def get_inputs():\n    _PLACE[0] = 'cpu'\n"
            f"    data = generate_input({', '.join(arguments)})\n"
            f"    return [_zeroed(data, {filled!r})]",
            "def get_init_inputs():\n    return []",
        ]
    )


_COPIED = '''def _first(data):
    if isinstance(data, torch.Tensor):
        return data
    items = data.values() if isinstance(data, dict) else data if isinstance(data, (list, tuple)) else ()
    return next((found for item in items if (found := _first(item)) is not None), None)


def _copied(data, outputs):
    """The data with a private copy of every output that the kernel is given."""
    first = _first(data)
    _PLACE[0] = first.device if first is not None else "cpu"
    if not outputs:
        return data
    return tuple(t.detach().clone() if i in outputs else t for i, t in enumerate(data))


def _zeroed(data, outputs):
    """The data with zeros where nothing was written."""
    if not outputs:
        return data
    return tuple(torch.zeros_like(t) if i in outputs else t for i, t in enumerate(data))'''


def uninitialised(maker: ast.FunctionDef) -> tuple[int, ...]:
    """Positions in the returned tuple that hold memory which nothing wrote: outputs to be filled."""
    empty: set[str] = set()
    for node in ast.walk(maker):
        if isinstance(node, ast.Assign) and _is_empty(node.value):
            empty |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    for node in ast.walk(maker):
        written: ast.expr | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLING:
            written = node.func.value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            written = node.targets[0].value
        if isinstance(written, ast.Name):
            empty.discard(written.id)
    returned = [n.value for n in ast.walk(maker) if isinstance(n, ast.Return)]
    if len(returned) != 1 or not isinstance(returned[0], ast.Tuple):
        return ()
    return tuple(
        i
        for i, item in enumerate(returned[0].elts)
        if _is_empty(item) or (isinstance(item, ast.Name) and item.id in empty)
    )


def _is_empty(node: ast.expr) -> bool:
    """Whether an expression is fresh memory, also behind `.contiguous()` and `.to(...)`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr in _EMPTY:
        return True
    return node.func.attr in ("contiguous", "to", "cuda") and _is_empty(node.func.value)


def _imports(node: ast.stmt, names: tuple[str, ...]) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in names
    return isinstance(node, ast.Import) and all(alias.name in names for alias in node.names)


def _modules(path: Path, tree: ast.Module, notes: list[str]) -> list[str]:
    """Definitions that the reference takes from the files beside it, and type names as placeholders."""
    used = {
        node.id
        for n in without(tree, _CHECKER).body
        if not isinstance(n, ast.Import | ast.ImportFrom)
        for node in ast.walk(n)
        if isinstance(node, ast.Name)
    }
    parts = []
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or node.module not in ("task", "utils"):
            continue
        wanted = {alias.asname or alias.name for alias in node.names} & used
        if not wanted:
            continue
        file = next(
            (f for f in (path / f"{node.module}.py", path.parent / f"{node.module}.py") if f.is_file()), None
        )
        if file is None:
            # types of `task` only annotate; a function that is missing would be noticed when it is called
            notes.append(f"no {node.module}.py: {', '.join(sorted(wanted))} stand for anything")
            parts.append("\n".join(f"{name} = object" for name in sorted(wanted)))
            continue
        found = parse(read_text(file), str(file))
        found.body = [n for n in found.body if not _imports(n, ("task", "utils", "reference"))]
        parts.append(ast.unparse(on_host(found)))
    return parts


def _submissions(path: Path) -> list[Path]:
    """Python files that may define `custom_kernel`: the submission, and solutions beside it."""
    found = [path / "submission.py", *sorted((path / "solutions").rglob("*.py"))]
    return [f for f in found if f.is_file() and "custom_kernel" in read_text(f)]


def _candidate(file: Path, parts: list[str], filled: tuple[int, ...]) -> Candidate:
    """A submission, given private copies of the outputs that it may write to."""
    tree = parse(read_text(file), str(file))
    if has_function(tree, "custom_kernel") is None:
        raise InputError("no function `custom_kernel`", str(file), "define it at the top level")
    tree.body = [n for n in tree.body if not _imports(n, ("task", "utils", "reference"))]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    types = [] if parts else [f"{name} = object" for name in ("input_t", "output_t") if name in names]
    source = module(
        [
            "import torch",
            PLACE,
            *parts,
            "\n".join(types),
            ast.unparse(tree),
            _COPIED,
            "class ModelNew(torch.nn.Module):\n    def forward(self, data):\n"
            f"        return custom_kernel(_copied(data, {filled!r}))",
        ]
    )
    name = (
        file.parent.parent.name
        if file.stem == "submission" and file.parent.name == "solutions"
        else file.stem
    )
    return parse_candidate(source, path=str(file), id=name, strict=False)
