"""Integers of a task file, found in its syntax tree, and rewritten there.

KernelBench-style files hold their sizes in integers: at module level (``N = 4``, ``shape = (64, 28)``), as
locals of ``get_inputs``, or as literals in its calls. A variant of a task is the same text with other
integers; everything computed from them follows when the text is executed again.

An integer that the reference itself reads as a global is *frozen*: a candidate has its own copy of the file's
globals and cannot see the change, so a variant would accuse it of nothing it did.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from assay.task.usage import DYNAMIC, Usage

INPUT_MAKERS = ("get_inputs", "get_init_inputs")

# torch functions whose every positional integer is an extent
_EXTENT_CALLS = frozenset({"rand", "randn", "ones", "zeros", "empty", "eye", "randperm"})
# torch functions that take their extents as one tuple or list
_SHAPE_CALLS = frozenset({"randint", "full", "normal", "new_full", "new_zeros", "new_ones", "new_empty"})
Status = Literal["free", "frozen", "derived", "unused"]


class TaskInteger(BaseModel):
    """One integer of a task file."""

    model_config = ConfigDict(frozen=True)

    name: str
    """``N``, ``shape.0``, ``config.dim``, ``get_inputs.batch`` (a local) or ``get_inputs#1`` (a literal)."""
    value: int | None
    """Its value in the file; None where only execution can tell."""
    line: int
    """Line of the expression, from 1."""
    status: Status
    """``free`` may vary; ``frozen`` is read by the reference; ``derived`` follows other integers; ``unused``
    reaches no input."""
    why: str
    """How the status was found, in words."""
    reads: tuple[str, ...] = ()
    """Module-level names that a derived integer is computed from."""


@dataclass(frozen=True)
class _Site:
    """Where an integer stands in the text."""

    name: str
    node: ast.expr
    value: int | None
    bound: tuple[str, ...]
    """Module-level names that hold the value; empty for locals and literals."""
    reads: tuple[str, ...] = ()
    scope: str = ""


def find(source: str, entry: str = "Model") -> tuple[TaskInteger, ...]:
    """Every integer of a task file with its status, in the order of the text.

    Args:
        source: text of the file; it must parse.
        entry: name of the reference class or function.
    """
    tree = ast.parse(source)
    usage = Usage(source, tree)
    seen_by_reference = usage.closure((entry,))
    reaching = usage.closure(INPUT_MAKERS)
    found = []
    for site in _sites(tree):
        status: Status
        if site.reads:
            status, why = "derived", f"computed from {', '.join(site.reads)}"
        elif site.scope:
            status, why = "free", f"a constant of {site.scope}"
        elif any(name in usage.rebound for name in site.bound):
            status, why = "frozen", "bound more than once"
        elif any(name in seen_by_reference for name in site.bound) or DYNAMIC & seen_by_reference:
            status, why = "frozen", f"{entry} reads it as a global"
        elif any(name in reaching for name in site.bound):
            makers = [maker for maker in INPUT_MAKERS if set(site.bound) & usage.closure((maker,))]
            status, why = "free", f"reaches the reference only through {' and '.join(makers)}"
        else:
            status, why = "unused", "no input depends on it"
        found.append(
            TaskInteger(
                name=site.name,
                value=site.value,
                line=site.node.lineno,
                status=status,
                why=why,
                reads=site.reads,
            )
        )
    return tuple(found)


def override(source: str, values: Mapping[str, int]) -> str:
    """The same text with other integers, every line at its old number.

    Raises:
        KeyError: a name that is no integer of the file, or a derived one.
    """
    if not values:
        return source
    sites = {site.name: site for site in _sites(ast.parse(source)) if not site.reads}
    unknown = sorted(set(values) - set(sites))
    if unknown:
        raise KeyError(f"no integer named {', '.join(unknown)}; there are: {', '.join(sites) or 'none'}")
    lines = [line.encode() for line in source.split("\n")]
    chosen = sorted(
        ((sites[name].node, value) for name, value in values.items()),
        key=lambda item: (item[0].lineno, item[0].col_offset),
        reverse=True,
    )
    for node, value in chosen:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head = lines[first][: node.col_offset]
        tail = lines[last][node.end_col_offset :]
        number = str(value).encode()
        if first == last:
            lines[first] = head + (number if value >= 0 else b"(" + number + b")") + tail
        else:
            # parentheses let the text go on over the lines that the old expression took
            lines[first] = head + b"(" + number
            lines[first + 1 : last] = [b""] * (last - first - 1)
            lines[last] = b")" + tail
    return b"\n".join(lines).decode()


def _sites(tree: ast.Module) -> Iterator[_Site]:
    """All integers of the file, in the order of the text."""
    known: dict[str, int] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            for name, bound, value in _bindings(statement):
                for site in _in_value(name, bound, value, known):
                    if site.value is not None:
                        known[site.name] = site.value
                    yield site
        elif isinstance(statement, ast.FunctionDef) and statement.name in INPUT_MAKERS:
            yield from _local_sites(statement)


def _bindings(statement: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, tuple[str, ...], ast.expr]]:
    """(name, names bound to it, value) of an assignment, tuple targets taken apart."""
    value = statement.value
    assert value is not None
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    plain = tuple(target.id for target in targets if isinstance(target, ast.Name))
    if plain:
        yield plain[0], plain, value
    for target in targets:
        if (
            isinstance(target, ast.Tuple | ast.List)
            and isinstance(value, ast.Tuple | ast.List)
            and len(target.elts) == len(value.elts)
        ):
            for element, part in zip(target.elts, value.elts, strict=True):
                if isinstance(element, ast.Name):
                    yield element.id, (element.id,), part


def _in_value(name: str, bound: tuple[str, ...], node: ast.expr, known: Mapping[str, int]) -> Iterator[_Site]:
    """Integers in an assigned expression: itself, or the items of a tuple, list or dict display."""
    if isinstance(node, ast.Tuple | ast.List):
        for index, element in enumerate(node.elts):
            yield from _in_value(f"{name}.{index}", bound, element, known)
        return
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
        # `widths = [64] * 8`: one width for all layers
        yield from _in_value(name, bound, node.left, known)
        return
    if isinstance(node, ast.Dict):
        for key, element in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield from _in_value(f"{name}.{key.value}", bound, element, known)
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        for keyword in node.keywords:
            if keyword.arg is not None:
                yield from _in_value(f"{name}.{keyword.arg}", bound, keyword.value, known)
        return
    constant = _evaluate(node, {})
    if constant is not None:
        yield _Site(name, node, constant, bound)
        return
    reads = tuple(dict.fromkeys(child.id for child in ast.walk(node) if isinstance(child, ast.Name)))
    roots = {key.split(".")[0] for key in known}
    if isinstance(node, ast.BinOp | ast.Name | ast.Call | ast.Subscript | ast.UnaryOp) and set(reads) & roots:
        value = _evaluate(node, known)
        if value is not None or isinstance(node, ast.BinOp | ast.Name | ast.Subscript):
            yield _Site(name, node, value, bound, reads=tuple(read for read in reads if read in roots))


def _local_sites(function: ast.FunctionDef) -> Iterator[_Site]:
    """Integers that a maker of inputs holds itself: local constants, and literals used as extents."""
    literals = 0
    stores: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores[node.id] = stores.get(node.id, 0) + 1
    found: list[_Site] = []
    for statement in function.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            for name, _, value in _bindings(statement):
                constant = _evaluate(value, {})
                if constant is not None and stores.get(name) == 1:
                    found.append(_Site(f"{function.name}.{name}", value, constant, (), scope=function.name))
    named = {id(site.node) for site in found}
    literal_nodes = sorted(
        {id(node): node for node in _extent_literals(function)}.values(),
        key=lambda node: (node.lineno, node.col_offset),
    )
    for node in literal_nodes:
        constant = _evaluate(node, {})
        if constant is not None and id(node) not in named:
            found.append(_Site(f"{function.name}#{literals}", node, constant, (), scope=function.name))
            literals += 1
    yield from sorted(found, key=lambda site: (site.node.lineno, site.node.col_offset))


def _extent_literals(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Expressions that are extents by their place: arguments of tensor makers, returned constants."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            shape_arguments = [word.value for word in node.keywords if word.arg == "size"]
            if node.func.attr in _EXTENT_CALLS:
                shape_arguments += node.args
            elif node.func.attr in _SHAPE_CALLS:
                shape_arguments += [arg for arg in node.args if isinstance(arg, ast.Tuple | ast.List)]
            for argument in shape_arguments:
                yield from argument.elts if isinstance(argument, ast.Tuple | ast.List) else [argument]
        elif isinstance(node, ast.Return) and node.value is not None and function.name == "get_init_inputs":
            yield from _display_items(node.value)


def _display_items(node: ast.expr) -> Iterator[ast.expr]:
    """Items of nested list, tuple and dict displays."""
    if isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _display_items(element)
    elif isinstance(node, ast.Dict):
        for element in node.values:
            yield from _display_items(element)
    else:
        yield node


_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Pow: operator.pow,
    ast.Div: operator.truediv,
}


def _evaluate(node: ast.expr, known: Mapping[str, int]) -> int | None:
    """Integer value of a constant expression over known names; None if it is anything else."""
    value = _number(node, known)
    return value if isinstance(value, int) else None


def _number(node: ast.expr, known: Mapping[str, int]) -> int | float | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) in (int, float) else None  # type: ignore[return-value]
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int | str):
            return known.get(f"{node.value.id}.{node.slice.value}")
        return None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _number(node.operand, known)
        return None if inner is None else (-inner if isinstance(node.op, ast.USub) else inner)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int":
        inner = _number(node.args[0], known) if len(node.args) == 1 and not node.keywords else None
        return None if inner is None or inner != inner or abs(inner) > 2**62 else int(inner)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _number(node.left, known), _number(node.right, known)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Pow | ast.LShift) and not (0 <= right <= 62 and abs(left) <= 2**20):
            return None
        try:
            result = _BINARY[type(node.op)](left, right)
        except (ArithmeticError, TypeError, ValueError):
            return None
        return result if isinstance(result, int | float) else None
    return None
