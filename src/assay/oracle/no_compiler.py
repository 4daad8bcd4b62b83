"""Decompositions of torch without its compiler, which some of them import at their first call, only to be left alone.

Importing it takes a process one to several seconds, and each task's reference has a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

MARK = "__dynamo_disable"
"""Where torch keeps what the compiler made of a function that it is told to leave alone."""
_MODULES = ("torch._refs", "torch._refs.nn.functional", "torch._refs.special", "torch._refs.linalg", "torch._refs.fft",
            "torch._decomp.decompositions")


def spare_compiler() -> int:
    """Have functions that are to be left alone by the compiler called as they are, in this process from now on.

    For processes that compile nothing. Returns how many there are; none where torch does this in another way.
    """
    from torch._decomp import decomposition_table

    named = (value for name in _MODULES for value in vars(sys.modules.get(name, object)).values())
    spared = 0
    for function in _chains([*named, *decomposition_table.values()]):
        inner = getattr(function, "__wrapped__", None)
        if getattr(function, "__code__", None) is not None and function.__code__.co_filename.endswith("_compile.py") \
                and inner is not None and getattr(inner, MARK, None) is None:
            setattr(inner, MARK, inner)
            spared += 1
    return spared


def _chains(functions: Iterable[Any]) -> Iterator[Any]:
    """Functions and what they wrap, each once."""
    seen: set[int] = set()
    for function in functions:
        while callable(function) and id(function) not in seen:
            seen.add(id(function))
            yield function
            function = getattr(function, "__wrapped__", None)
