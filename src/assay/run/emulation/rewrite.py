"""Kernel source rewritten so that Python runs it with the meaning Triton's compiler gives it.

Where the two differ:

* a plain assignment turns a number into a tensor, also inside tuples and ``+=``;
* ``and``, ``or`` and ``not`` work element by element on tensors;
* the truth value of a block of several elements is an error;
* ``range`` gives 32-bit (or 64-bit) tensors, which wrap as registers do;
* ``min`` and ``max`` are Triton's;
* ``assert`` does nothing outside debug mode;
* names that the compiler does not let a kernel see (numbers of the module, Python's other
  builtins) raise `NameError` where they are used.

The rewritten function keeps its file and line numbers, its module's namespace (nothing is
added to it) and its closure.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import triton.language as tl
from triton import knobs
from triton.runtime.jit import JITCallable

from .reduce import AmbiguousTruth
from .values import scalar, tensor

_PREFIX = "__assay_"


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=_PREFIX + name, ctx=ast.Load()), args=list(args), keywords=[])


def _lazy(value: ast.expr) -> ast.Lambda:
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=empty, body=value)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, local: set[str], outer: dict[str, Any]) -> None:
        self.replaced = {"range", "min", "max"} - local - set(outer)
        self.hidden = {name for name, value in outer.items() if name not in local and not _visible(value)}
        self.missing = set(vars(builtins)) - _BUILTINS - local - set(outer)

    def visit_Assign(self, node: ast.Assign) -> Any:
        if len(node.targets) > 1:
            raise NotImplementedError("simultaneous multiple assignment is not supported.")
        self.generic_visit(node)
        node.value = _call("assign", node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        load = ast.Name(id=node.target.id, ctx=ast.Load())
        value = ast.BinOp(left=load, op=node.op, right=node.value)
        return ast.Assign(targets=[node.target], value=_call("assign", value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        fixed = "constexpr" in ast.unparse(node.annotation)
        if node.value is None:
            return ast.Pass()
        value = self.visit(node.value)
        return ast.Assign(targets=[node.target], value=value if fixed else _call("assign", value))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        name = "and" if isinstance(node.op, ast.And) else "or"
        return _call(name, *(_lazy(v) for v in node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return _call("not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        node.test = _call("truth", node.test)
        return node

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        node.test = _call("truth", node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        node.test = _call("truth", node.test)
        return node

    def visit_Assert(self, node: ast.Assert) -> Any:
        return ast.Expr(value=self.visit(node.test))

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return node
        if node.id in self.replaced:
            return ast.Name(id=_PREFIX + node.id, ctx=ast.Load())
        if node.id in self.missing:
            return _call("missing", ast.Constant(value=f"{node.id} is not defined"))
        if node.id in self.hidden:
            text = f"Cannot access global variable {node.id} from within @jit'ed function."
            return _call("missing", ast.Constant(value=text))
        return node


# What the compiler offers of Python's builtins.
_BUILTINS = frozenset({
    "len", "list", "range", "float", "int", "isinstance", "getattr", "hasattr", "print", "min", "max",
    "True", "False", "None", "tuple", "str", "bool",
})  # fmt: skip


def _visible(value: Any) -> bool:
    """Whether the compiler lets a kernel refer to this value of its module or closure."""
    if isinstance(value, (ModuleType, JITCallable, tl.constexpr, tl.dtype)):
        return True
    if getattr(value, "_assay_kernel", False) or knobs.compilation.allow_non_constexpr_globals:
        return True
    if getattr(value, "__triton_builtin__", False) or getattr(value, "__triton_aggregate__", False):
        return True
    module = getattr(value, "__module__", "") or ""
    if module.startswith(("triton.language", "triton.experimental.gluon.language")):
        return True
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _bound_names(function: ast.FunctionDef) -> set[str]:
    args = function.args
    names = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def rewrite(fn: FunctionType, helpers: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The function to run instead of `fn`.

    Raises:
        ValueError: if its source cannot be read, as Triton does.
    """
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError) as error:
        raise ValueError("@jit functions should be defined in a Python file") from error
    module = ast.parse(textwrap.dedent("".join(lines)))
    function = next(n for n in module.body if isinstance(n, ast.FunctionDef))
    function.decorator_list = []
    function.returns = None
    args = function.args
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
        arg.annotation = None
    args.defaults = [ast.Constant(value=None) for _ in args.defaults]
    args.kw_defaults = [None if d is None else ast.Constant(value=None) for d in args.kw_defaults]

    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    outer = {**fn.__globals__, **{name: cell.cell_contents for name, cell in cells.items()}}
    rewriter = _Rewriter(_bound_names(function), outer)
    function.body = [rewriter.visit(statement) for statement in function.body]

    outer_names = [*(_PREFIX + name for name in helpers), *cells]
    factory = ast.FunctionDef(
        name=_PREFIX + "factory",
        args=ast.arguments(
            posonlyargs=[],
            args=[ast.arg(arg=name) for name in outer_names],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[],
        ),
        body=[function, ast.Return(value=ast.Name(id=function.name, ctx=ast.Load()))],
        decorator_list=[],
    )
    tree = ast.Module(body=[factory], type_ignores=[])
    ast.fix_missing_locations(tree)
    ast.increment_lineno(tree, first - 1)
    namespace: dict[str, Any] = {}
    exec(compile(tree, fn.__code__.co_filename, "exec"), fn.__globals__, namespace)
    made: Any = namespace[_PREFIX + "factory"](*helpers.values(), *(c.cell_contents for c in cells.values()))
    made.__defaults__ = fn.__defaults__
    made.__kwdefaults__ = fn.__kwdefaults__
    return made  # type: ignore[no-any-return]


def helpers_for(semantic: Any) -> dict[str, Callable[..., Any]]:
    """What rewritten code calls, by name."""
    to_tensor = semantic.to_tensor
    constexpr = tl.constexpr

    def assign(value: Any) -> Any:
        if type(value) is tensor:
            return value
        if isinstance(value, constexpr):
            value = value.value
        if isinstance(value, (bool, int, float)):
            return to_tensor(value)
        if type(value) is tuple:
            return tuple(assign(v) for v in value)
        return value

    def truth(value: Any) -> Any:
        if type(value) is tensor:
            data = value.handle.data
            if data.size != 1:
                raise AmbiguousTruth()
            return bool(data.item())
        return value

    def connect(name: str, stop: bool) -> Callable[..., Any]:
        def connected(*operands: Callable[[], Any]) -> Any:
            tensors = []
            value: Any = None
            for operand in operands:
                value = operand()
                if isinstance(value, tensor):
                    tensors.append(value)
                elif bool(value) is stop:
                    return value
            if not tensors:
                return value
            result = tensors.pop()
            while tensors:
                result = getattr(semantic, name)(tensors.pop(), result)
            return result

        return connected

    def negate(value: Any) -> Any:
        return semantic.not_(value) if isinstance(value, tensor) else not value

    def missing(text: str) -> Any:
        raise NameError(text)

    def device_range(*args: Any, **_: Any) -> Iterator[Any]:
        bounds = [semantic.to_tensor(a) for a in args]
        dtype = bounds[0].dtype
        for bound in bounds[1:]:
            dtype = semantic.integer_promote_impl(dtype, bound.dtype)
        for bound in bounds:
            if not bound.dtype.is_int():
                raise TypeError("For loop bounds and step must all be ints")
        for value in range(*(int(b.handle.data.item()) for b in bounds)):
            yield scalar(value, dtype)

    def extreme(name: str, builtin: Any) -> Callable[..., Any]:
        choose = getattr(tl.core, f"builtin_{name}", None)

        def extremum(*values: Any, **kwargs: Any) -> Any:
            if not any(isinstance(v, tensor) for v in values) or choose is None:
                return builtin(*values, **kwargs)
            result = values[0]
            for value in values[1:]:
                result = (semantic.minimum if name == "min" else semantic.maximum)(
                    semantic.to_tensor(result), semantic.to_tensor(value), tl.PropagateNan.NONE
                )
            return result

        return extremum

    return {
        "assign": assign,
        "truth": truth,
        "and": connect("logical_and", False),
        "or": connect("logical_or", True),
        "not": negate,
        "missing": missing,
        "range": device_range,
        "min": extreme("min", min),
        "max": extreme("max", max),
    }
