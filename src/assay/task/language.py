"""Which kernel languages a candidate is written in, told from its text."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Literal

Language = Literal[
    "triton", "cuda", "torch", "gluon", "cute_dsl", "tilelang", "helion", "cutile", "numba", "cupy"
]

# A kernel language counts when the source defines or builds a kernel in it: an unused import does not.
_MARKS: tuple[tuple[Language, str], ...] = (
    ("gluon", r"@\s*gluon\s*\.\s*jit\b"),
    ("triton", r"@\s*triton\s*\.\s*(?:jit|autotune|heuristics)\b|^\s*@\s*jit\b"),
    ("cute_dsl", r"@\s*(?:cute|cutlass)(?:\.\w+)*\s*\.\s*(?:kernel|jit)\b"),
    ("tilelang", r"@\s*(?:T|tilelang)\s*\.\s*(?:prim_func|jit)\b|\btilelang\s*\.\s*compile\s*\("),
    ("helion", r"@\s*helion\s*\.\s*(?:kernel|jit)\b"),
    ("cutile", r"@\s*(?:ct|cutile|cuda\s*\.\s*tile|tile)\s*\.\s*kernel\b"),
    ("numba", r"@\s*(?:numba\s*\.\s*)?cuda\s*\.\s*jit\b"),
    ("cupy", r"\b(?:cp|cupy)\s*\.\s*(?:RawKernel|RawModule|ElementwiseKernel|ReductionKernel)\b"),
    (
        "cuda",
        r"__global__\b|\bload_inline\s*\(|\bcpp_extension\s*\.\s*load\b|\bCUDAExtension\b"
        r"|\b_compile_kernel\s*\(|\bnvrtcCompileProgram\b|<<<",
    ),
)
_IMPORT = r"^\s*(?:from\s+|import\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*)"
"""A module's name is imported from, or stands anywhere in the list of an import."""
_IMPORTS: dict[Language, str] = {
    "triton": _IMPORT + r"triton\b",
    "gluon": _IMPORT + r"triton\.experimental\b",
    "cute_dsl": _IMPORT + r"cutlass\b",
    "tilelang": _IMPORT + r"tilelang\b",
    "helion": _IMPORT + r"helion\b",
    "cutile": _IMPORT + r"(?:cuda\.tile|cutile)\b",
    "numba": _IMPORT + r"numba\b",
    "cupy": _IMPORT + r"cupy\b",
}


def detect_languages(source: str, path: str = "") -> tuple[Language, ...]:
    """Kernel languages that a source defines kernels in, the likeliest main one first.

    Comments and docstrings of Python files do not count; string literals do, because CUDA C++
    travels in them. ``("torch",)`` where no kernel is defined.
    """
    if Path(path).suffix in (".cu", ".cuh"):
        return ("cuda",)
    text = _without_comments(source)
    found: list[Language] = []
    for language, mark in _MARKS:
        needed = _IMPORTS.get(language)
        if re.search(mark, text, re.MULTILINE) and (
            needed is None or re.search(needed, text, re.MULTILINE) is not None
        ):
            found.append(language)
    return tuple(found) or ("torch",)


def _without_comments(source: str) -> str:
    """Source with comment lines and docstrings blanked; unchanged when it does not parse."""
    lines = source.splitlines()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            for line in range(first.lineno - 1, first.end_lineno or first.lineno):
                lines[line] = ""
    return "\n".join("" if line.lstrip().startswith("#") else line for line in lines)
