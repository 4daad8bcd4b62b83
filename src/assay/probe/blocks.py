"""Block constants of a candidate: the sizes at which its kernels may change what they do.

Found in the source text alone, which is never executed.
"""

from __future__ import annotations

import ast
import re

SMALLEST, LARGEST = 4, 1 << 17

# names that block sizes go by in keyword arguments, assignments and autotune configurations
_BLOCK_NAME = re.compile(
    r"^(BLOCK|TILE|CHUNK|GROUP_SIZE_|SPLIT|B[MNKDHCRSTQ](_|$)|block|tile|chunk)", re.ASCII
)
_CUDA_CONSTANT = re.compile(
    r"(?:#define\s+\w*(?:BLOCK|TILE|CHUNK|THREADS|WARP)\w*\s+|constexpr\s+\w+\s+\w+\s*=\s*|"
    r"const\s+int\s+\w*(?:block|tile|chunk|threads)\w*\s*=\s*|dim3\s+\w+\s*\(\s*)(\d+)",
    re.IGNORECASE,
)
_GRID_CALLS = frozenset({"cdiv", "ceil_div", "next_power_of_2", "min", "max"})
_KERNEL_CALLS = frozenset({"arange", "zeros", "full", "range", "static_range"})
_KERNEL_MODULES = frozenset({"tl", "language", "gl", "ttgl", "ct"})


def block_constants(source: str) -> tuple[int, ...]:
    """Block sizes a candidate's source names, ascending and without repetition.

    They come from ``tl.constexpr`` arguments and their defaults, launches with keywords such as
    ``BLOCK=128``, autotune configurations, literals in ``cdiv`` and ``next_power_of_2`` (also its bounds in
    ``min``), arguments of ``tl.arange``, comparisons of a size with a literal, and constants of CUDA C++.

    Args:
        source: text of the candidate; text that is not Python gives what the CUDA patterns find.
    """
    found: set[int] = set()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _useful(int(match) for match in _CUDA_CONSTANT.findall(source))
    constants = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 80:
            found |= {int(match) for match in _CUDA_CONSTANT.findall(node.value)}
        elif isinstance(node, ast.keyword) and node.arg and _BLOCK_NAME.match(node.arg):
            found |= _numbers(node.value, constants)
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            names += [target.attr for target in node.targets if isinstance(target, ast.Attribute)]
            if any(_BLOCK_NAME.match(name) for name in names):
                found |= _numbers(node.value, constants)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if (
                    isinstance(key, ast.Constant)
                    and isinstance(key.value, str)
                    and _BLOCK_NAME.match(key.value)
                ):
                    found |= _numbers(value, constants)
        elif isinstance(node, ast.FunctionDef):
            found |= _constexpr_defaults(node, constants)
        elif isinstance(node, ast.Call):
            if _sizes_blocks(node.func):
                for argument in node.args:
                    found |= _numbers(argument, constants)
        elif isinstance(node, ast.Compare):
            # `if n <= 1024:` chooses a kernel by size
            for side in (node.left, *node.comparators):
                found |= _numbers(side, {})
    return _useful(found)


def launched_blocks(facts: object) -> tuple[int, ...]:
    """Block sizes among the compile-time arguments of the kernels that were launched, ascending.

    They are what a candidate computes, such as the next power of two of a width: named like a block, or a
    power of two from 16 on. At most twelve.

    Args:
        facts: what the candidate's worker says of itself, and so perhaps anything: under `launches`, records
            whose `constexprs` map names to the text of a value.
    """
    launches = facts.get("launches") if isinstance(facts, dict) else None
    found: set[int] = set()
    for launch in launches if isinstance(launches, list) else []:
        constants = launch.get("constexprs") if isinstance(launch, dict) else None
        for name, text in (constants if isinstance(constants, dict) else {}).items():
            if not re.fullmatch(r"[0-9]{1,6}", str(text)):
                continue
            value = int(str(text))
            if _BLOCK_NAME.match(str(name)) or (value >= 16 and value & (value - 1) == 0):
                found.add(value)
    return _useful(found)[:12]


def _sizes_blocks(function: ast.expr) -> bool:
    """Whether a call's arguments are block sizes: ``triton.cdiv``, ``tl.arange`` and their like."""
    if isinstance(function, ast.Attribute):
        owner = function.value.attr if isinstance(function.value, ast.Attribute) else None
        owner = function.value.id if isinstance(function.value, ast.Name) else owner
        return function.attr in _GRID_CALLS or (function.attr in _KERNEL_CALLS and owner in _KERNEL_MODULES)
    return isinstance(function, ast.Name) and function.id in _GRID_CALLS


def _constants(tree: ast.Module) -> dict[str, int]:
    """Names bound to integer literals anywhere, for launches such as ``BLOCK=BLOCK_SIZE``."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and type(node.value.value) is int
        ):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = node.value.value
                elif isinstance(target, ast.Attribute):
                    found[target.attr] = node.value.value
    return found


def _numbers(node: ast.expr, constants: dict[str, int]) -> set[int]:
    """Integer literals in an expression, named constants and simple products resolved."""
    if isinstance(node, ast.Constant):
        return {node.value} if type(node.value) is int else set()
    if isinstance(node, ast.Name):
        return {constants[node.id]} if node.id in constants else set()
    if isinstance(node, ast.Attribute):
        return {constants[node.attr]} if node.attr in constants else set()
    if isinstance(node, ast.IfExp):
        return _numbers(node.body, constants) | _numbers(node.orelse, constants)
    if isinstance(node, ast.BinOp):
        left, right = _numbers(node.left, constants), _numbers(node.right, constants)
        if isinstance(node.op, ast.Mult) and len(left) == len(right) == 1:
            return {left.pop() * right.pop()}
        if isinstance(node.op, ast.Pow | ast.LShift) and len(left) == len(right) == 1:
            base, power = left.pop(), right.pop()
            return (
                {base**power if isinstance(node.op, ast.Pow) else base << power} if 0 <= power < 32 else set()
            )
        return left | right
    if isinstance(node, ast.Tuple | ast.List):
        return set().union(*(_numbers(element, constants) for element in node.elts))
    if isinstance(node, ast.Call):
        return set().union(*(_numbers(argument, constants) for argument in node.args))
    return set()


def _constexpr_defaults(function: ast.FunctionDef, constants: dict[str, int]) -> set[int]:
    """Defaults of parameters annotated ``constexpr`` or named like a block."""
    found: set[int] = set()
    parameters = [*function.args.posonlyargs, *function.args.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = list(
        zip(parameters[len(parameters) - len(function.args.defaults) :], function.args.defaults, strict=True)
    )
    pairs += list(zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True))
    for parameter, default in pairs:
        marked = parameter.annotation is not None and "constexpr" in ast.dump(parameter.annotation)
        if default is not None and (marked or _BLOCK_NAME.match(parameter.arg)):
            found |= _numbers(default, constants)
    return found


def _useful(values: object) -> tuple[int, ...]:
    """Those that can be a block: within bounds."""
    return tuple(sorted({v for v in values if SMALLEST <= v <= LARGEST}))  # type: ignore[attr-defined]
