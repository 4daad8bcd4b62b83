"""A kernel's source text with its syntax tree, and edits of the text that leave all other lines as they are."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from assay.mutants.model import Edit


class Source:
    """A candidate's text, parsed.

    Attributes:
        text: the source.
        tree: its syntax tree.
        sizes: module-level integers of the task's reference, by name.
        kernels: functions decorated with `triton.jit`.
        host: functions and methods that are no kernels.
    """

    def __init__(self, text: str, sizes: dict[str, int] | None = None) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.sizes = dict(sizes or {})
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line.encode()))
        self._bytes = text.encode()
        self._ascii = len(self._bytes) == len(text)
        functions = [n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)]
        self.kernels = [f for f in functions if any("jit" in ast.unparse(d) for d in f.decorator_list)]
        self.host = [f for f in functions if f not in self.kernels]

    @functools.cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of every node."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def _place(self, line: int, column: int) -> int:
        at = self._starts[line - 1] + column
        return at if self._ascii else len(self._bytes[:at].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Characters [start, end) of a node, without parentheses round it."""
        located: ast.expr = node  # type: ignore[assignment]
        assert located.end_lineno is not None
        assert located.end_col_offset is not None
        return (self._place(located.lineno, located.col_offset),
                self._place(located.end_lineno, located.end_col_offset))

    def of(self, node: ast.AST) -> str:
        """Text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def line_of(self, at: int) -> int:
        """Line of a character, from 1."""
        return self.text.count("\n", 0, at) + 1

    def indent(self, node: ast.stmt) -> str:
        """White space before a statement."""
        return " " * node.col_offset

    def replace(self, node: ast.AST, text: str, note: str | None = None) -> Edit:
        """An edit that puts `text` in a node's place."""
        start, end = self.span(node)
        return Edit(((start, end, text),), note or f"{_short(self.text[start:end])} -> {_short(text)}")

    def in_kernels(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Nodes of some types inside kernels, in the order of the text."""
        for kernel in self.kernels:
            for statement in kernel.body:
                yield from _sorted(n for n in ast.walk(statement) if isinstance(n, kinds))

    def in_host(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Nodes of some types inside host functions, in the order of the text."""
        for function in self.host:
            for statement in function.body:
                yield from _sorted(n for n in ast.walk(statement) if isinstance(n, kinds))

    def kernel_calls(self, *names: str) -> Iterator[ast.Call]:
        """Calls of `tl.NAME` or `libdevice.NAME` in kernels."""
        for node in self.in_kernels(ast.Call):
            assert isinstance(node, ast.Call)
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in names and isinstance(function.value, ast.Name):
                yield node

    def host_calls(self, *names: str) -> Iterator[ast.Call]:
        """Calls of `torch.NAME`, `triton.NAME` or a method NAME in host code."""
        for node in self.in_host(ast.Call):
            assert isinstance(node, ast.Call)
            if isinstance(node.func, ast.Attribute) and node.func.attr in names:
                yield node

    def launches(self) -> Iterator[ast.Call]:
        """Calls `kernel[grid](...)` in host code."""
        for node in self.in_host(ast.Call):
            assert isinstance(node, ast.Call)
            if isinstance(node.func, ast.Subscript):
                yield node

    def forward(self) -> tuple[ast.ClassDef, ast.FunctionDef] | None:
        """The class `ModelNew` and its `forward`."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
                for item in node.body:
                    if isinstance(item, ast.FunctionDef) and item.name == "forward":
                        return node, item
        return None

    def is_pointer(self, node: ast.AST) -> bool:
        """Whether an expression lies inside the address or the mask of a load or a store."""
        child, parent = node, self.parents.get(node)
        while parent is not None and not isinstance(parent, ast.stmt):
            if isinstance(parent, ast.Call) and _name(parent.func) in ("load", "store", "atomic_add"):
                if parent.args and child is parent.args[0]:
                    return True
                return isinstance(child, ast.keyword) and child.arg == "mask"
            child, parent = parent, self.parents.get(parent)
        return False

    def is_integer(self, node: ast.AST) -> bool:
        """Whether an expression computes places: offsets, masks, tiles, tests. Judged by the names in it."""
        if self.is_pointer(node):
            return True
        child: ast.AST = node
        while not isinstance(child, ast.stmt):
            if isinstance(child, ast.Call) and _name(child.func) in ("range", "arange"):
                return True
            child = self.parents[child]
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return bool(names) and names <= {*PLACES, *(n for n in names if n.startswith(("stride", "BLOCK", "n_")))}

    def in_backward(self, at: int) -> bool:
        """Whether a place lies in a function of the backward pass."""
        for function in [*self.kernels, *self.host]:
            start, end = self.span(function)
            if start <= at < end and "backward" in function.name:
                return True
        return False


PLACES = {
    "tl", "pid", "row", "rows", "col", "cols", "lanes", "offsets", "offs_m", "offs_n", "offs_k", "at", "k",
    "start", "keys", "dims", "mask", "inside", "base", "batch", "size", "M", "N", "K", "tap", "channel",
    "channels", "filters", "length", "height", "width", "out_height", "out_width", "out_length", "top", "left",
    "place", "source", "plane", "tiles_n", "tiles_m", "part", "parts", "step", "chunk", "groups", "per_group",
    "position", "half", "row_mask", "key_mask", "row_at", "key_at", "label", "token", "index", "segment", "own",
    "bins", "head", "WINDOW", "TAPS", "i", "a_at", "b_at", "out_at", "mine",
}
"""Names that hold places rather than values, in the kernels of the corpus."""


def _sorted(nodes: Iterator[ast.AST]) -> list[ast.AST]:
    return sorted(nodes, key=lambda n: (n.lineno, n.col_offset, -(n.end_col_offset or 0)))  # type: ignore[attr-defined]


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else flat[:57] + "..."


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """A keyword argument of a call."""
    return next((k for k in call.keywords if k.arg == name), None)


def apply(text: str, edit: Edit) -> str:
    """The text with an edit made. Raises SyntaxError where the result is no Python."""
    for start, end, new in sorted(edit.spans, reverse=True):
        text = text[:start] + new + text[end:]
    ast.parse(text)
    return text
