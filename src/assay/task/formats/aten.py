"""ATen operators: a folder for each overload, with implementations, and inputs from PyTorch's own database.

`add__Tensor` is `aten.add.Tensor`; its files define `add__Tensor_kernel_impl(*args, **kwargs)`. Inputs are
serialised lines in a text file beside them, such as `((T([1, 512], f16), 2), {})`, or else samples of
PyTorch's operator database, recorded as the overload really receives them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.contract.model import Contract
from assay.errors import InputError
from assay.task.formats.loaded import Loaded, fresh, has_function, module, parse, read_text
from assay.task.model import Candidate, parse_candidate, parse_task

NAME = "aten"
DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
    "b8": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
}
MOST_ELEMENTS = 1 << 16
_FOLDER = re.compile(r"[a-z_][a-z0-9_]*?(?:__[A-Za-z0-9_]+)?")
_SUFFIX = "_kernel_impl"
_CONSTANTS = {"inf": float("inf"), "nan": float("nan")}


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument: what `T([2, 3], f32)` says, and the range of its values where a sample shows one."""

    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total


@dataclass(frozen=True)
class Arguments:
    """Arguments of one call, tensors as specs."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def recognises(path: Path) -> bool:
    """Whether a folder is that of an operator, or holds such folders."""
    return _is_operator(path) or (path.is_dir() and any(_is_operator(p) for p in sorted(path.iterdir())))


def _is_operator(path: Path) -> bool:
    if not path.is_dir() or not _FOLDER.fullmatch(path.name):
        return False
    needle = f"def {path.name}{_SUFFIX}"
    return any(needle in file.read_text(encoding="utf-8", errors="replace") for file in path.glob("*.py"))


def load(path: Path) -> tuple[Loaded, ...]:
    """Every operator in a folder. Raises InputError."""
    folders = [path] if _is_operator(path) else [p for p in sorted(path.iterdir()) if _is_operator(p)]
    return tuple(load_operator(folder) for folder in folders)


def load_operator(folder: Path) -> Loaded:
    """One operator with its implementations, at the largest of its inputs that is small.

    Raises:
        InputError: no such operator in this PyTorch, no usable input, or a file at fault.
    """
    name = operator_name(folder.name)
    _overload(name, str(folder))
    notes: list[str] = []
    lines = _serialised(folder, name)
    cases = [parse_arguments(text, where) for text, where in lines] or list(database_cases(name))
    if not lines:
        notes.append(f"inputs are {len(cases)} samples of PyTorch's operator database")
    usable = [case for case in cases if _tensors(case) and _elements(case) <= MOST_ELEMENTS]
    if not usable:
        raise InputError(
            f"no input for {name} with tensors of up to {MOST_ELEMENTS} elements",
            str(folder),
            f"write lines such as ((T([4, 512], f32),), {{}}) to {folder.name}/inputs.txt",
        )
    chosen = max(usable, key=_elements)
    if len(usable) > 1:
        notes.append(f"one of {len(usable)} inputs gives the native sizes")
    if len(usable) < len(cases):
        notes.append(f"{len(cases) - len(usable)} inputs are left out: no tensor, or too large")
    source = reference_source(name, chosen)
    candidates = tuple(
        _candidate(file, folder.name, chosen)
        for file in sorted(folder.glob("*.py"))
        if f"def {folder.name}{_SUFFIX}" in read_text(file)
    )
    return Loaded(
        parse_task(source, path=str(folder), id=folder.name),
        candidates,
        # a kernel of an overload works below autograd
        Contract(gradients="none"),
        NAME,
        tuple(notes),
        {"operator": name, "cases": tuple(usable)},
        lambda file: _candidate(file, folder.name, chosen),
    )


def operator_name(folder: str) -> str:
    """`aten.add.Tensor` of `add__Tensor`; a folder without an overload means `default`."""
    base, _, overload = folder.rpartition("__")
    if not base or not overload:
        base, overload = folder, "default"
    return f"aten.{base}.{overload}"


def _overload(name: str, where: str) -> Any:
    import torch

    _, base, overload = name.split(".")
    packet = getattr(torch.ops.aten, base, None)
    found = getattr(packet, overload, None) if packet is not None else None
    if found is None:
        raise InputError(f"this PyTorch has no operator {name}", where, "name the folder base__overload")
    return found


def _serialised(folder: Path, name: str) -> list[tuple[str, str]]:
    """Lines of inputs for an operator, with their places: in its folder, or for several beside it."""
    found = []
    for file in (*sorted(folder.glob("*.txt")), *sorted(folder.parent.glob("*.txt"))):
        operator: str | None = name if file.parent == folder else None
        for number, line in enumerate(read_text(file).splitlines(), start=1):
            text = line.strip()
            if text.startswith("Operator:"):
                operator = text.removeprefix("Operator:").strip()
                continue
            text = re.sub(r"^cnt:\s*\d+\s*,\s*", "", text)
            if operator == name and text.startswith("("):
                found.append((text, f"{file}:{number}"))
    return found


def parse_arguments(text: str, where: str = "inputs") -> Arguments:
    """Arguments from a line such as `((T([1, 512], f16), 2), {"dim": -1})`.

    The line is parsed, never evaluated: literals, tensors `T(shape, dtype)` (strides are ignored), `inf`,
    `nan` and dotted torch names of dtypes are all there is.

    Raises:
        InputError: anything else.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise InputError(f"not a list of arguments: {error.msg}", where, "write ((args), {kwargs})") from None
    value = _value(tree, where)
    if (
        not isinstance(value, tuple)
        or len(value) != 2
        or not isinstance(value[0], tuple)
        or not isinstance(value[1], dict)
    ):
        raise InputError("not a pair of arguments and keywords", where, "write ((args), {kwargs})")
    return Arguments(value[0], value[1])


def _value(node: ast.expr, where: str) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(_value(item, where) for item in node.elts)
    if isinstance(node, ast.List):
        return [_value(item, where) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {
            _value(k, where): _value(v, where)
            for k, v in zip(node.keys, node.values, strict=True)
            if k is not None
        }
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, where)
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.Name) and node.id in DTYPES:
        return _Dtype(DTYPES[node.id])
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        return _Dtype(node.attr)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "T":
        return _tensor(node, where)
    raise InputError(f"`{ast.unparse(node)}` is not understood", where, "use literals and T([sizes], dtype)")


class _Dtype(str):
    """Name of a dtype among literals, such as `float16`."""

    def __repr__(self) -> str:
        return f"torch.{self!s}"


def _tensor(node: ast.Call, where: str) -> TensorSpec:
    if len(node.args) < 2 or not isinstance(node.args[1], ast.Name) or node.args[1].id not in DTYPES:
        raise InputError(f"`{ast.unparse(node)}` is no tensor", where, f"dtypes: {', '.join(DTYPES)}")
    shape = _value(node.args[0], where)
    if not isinstance(shape, list | tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise InputError(f"`{ast.unparse(node)}` has no shape", where, "write T([sizes], dtype)")
    return TensorSpec(tuple(shape), DTYPES[node.args[1].id])


def database_cases(name: str) -> Iterator[Arguments]:
    """Arguments that an overload receives when PyTorch's own samples of its operator run."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.utils._python_dispatch import TorchDispatchMode

    overload = _overload(name, name)
    base = name.split(".")[1]
    # `_log_softmax` and `native_layer_norm` are what `log_softmax` and `layer_norm` call
    names = {base, base.strip("_"), base.strip("_").removeprefix("native_")}
    seen: list[Arguments] = []

    class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # wrapping the mode would import the compiler
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is overload:
                seen.append(_described(args, kwargs))
            return func(*args, **kwargs)

    for info in op_db:
        if not {info.name, info.aten_name, info.name.split(".")[-1]} & names:
            continue
        dtype = torch.float32 if torch.float32 in info.dtypes else sorted(info.dtypes, key=str)[0]
        for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
            try:
                with Recorder():  # type: ignore[no-untyped-call]
                    info.op(sample.input, *sample.args, **sample.kwargs)
            except (RuntimeError, NotImplementedError, TypeError, ValueError):
                # a sample that this build cannot run says nothing about the operator
                continue
    yield from seen


def _described(value: Any, kwargs: dict[str, Any]) -> Arguments:
    return Arguments(tuple(_spec(v) for v in value), {k: _spec(v) for k, v in kwargs.items()})


def _spec(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        finite = (
            value[torch.isfinite(value)]
            if not value.is_complex() and value.dtype != torch.bool
            else value[:0]
        )
        ends = (float(finite.min()), float(finite.max())) if finite.numel() else (None, None)
        return TensorSpec(tuple(value.shape), dtype, *ends)
    if isinstance(value, list | tuple):
        return type(value)(_spec(item) for item in value)
    if isinstance(value, torch.dtype):
        return _Dtype(str(value).removeprefix("torch."))
    return value


def _tensors(case: Arguments) -> list[TensorSpec]:
    found: list[TensorSpec] = []

    def walk(value: Any) -> None:
        if isinstance(value, TensorSpec):
            found.append(value)
        elif isinstance(value, list | tuple):
            for item in value:
                walk(item)

    walk(case.args)
    walk(list(case.kwargs.values()))
    return found


def _elements(case: Arguments) -> int:
    return sum(spec.elements for spec in _tensors(case))


def reference_source(name: str, case: Arguments) -> str:
    """A reference file for one overload at one set of arguments; each dimension is a size of its own.

    Which sizes depend on each other is for the study to find, by what the operator accepts.
    """
    sizes: dict[str, int] = {}
    taken: set[str] = {"torch", "Model", "get_inputs", "get_init_inputs"}

    def expression(value: Any, path: str) -> str:
        if isinstance(value, TensorSpec):
            names = []
            for dim, extent in enumerate(value.shape):
                key = fresh(f"{path}_{dim}", taken)
                taken.add(key)
                sizes[key] = extent
                names.append(key)
            return _made(value, f"({', '.join(names)}{',' if len(names) == 1 else ''})")
        if isinstance(value, list | tuple):
            inner = ", ".join(expression(item, f"{path}_{i}") for i, item in enumerate(value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        return repr(value)

    args = [expression(value, f"S{i}") for i, value in enumerate(case.args)]
    tensor_keywords = [k for k, v in case.kwargs.items() if isinstance(v, TensorSpec)]
    args += [expression(case.kwargs[k], k.upper()) for k in tensor_keywords]
    call = f"torch.ops.{name}(*arguments[:{len(case.args)}], {_keywords(case, tensor_keywords)})"
    return module(
        [
            "import torch",
            "\n".join(f"{key} = {value}" for key, value in sizes.items()),
            f"class Model(torch.nn.Module):\n    def forward(self, *arguments):\n        return {call}",
            "def get_inputs():\n    return [\n" + "".join(f"        {a},\n" for a in args) + "    ]",
            "def get_init_inputs():\n    return []",
        ]
    )


def _keywords(case: Arguments, tensors: Sequence[str]) -> str:
    """Keyword arguments of the call: literals as they are, tensors from the end of the positional ones."""
    parts = [
        f"{k!r}: arguments[{len(case.args) + tensors.index(k)}]" if k in tensors else f"{k!r}: {v!r}"
        for k, v in case.kwargs.items()
    ]
    return "**{" + ", ".join(parts) + "}"


def _made(spec: TensorSpec, size: str) -> str:
    """Expression for a tensor of that dtype, within the range seen."""
    dtype = f"torch.{spec.dtype}"
    if spec.dtype == "bool":
        return f"torch.randint(0, 2, {size}).bool()"
    if spec.dtype.startswith(("int", "uint")):
        low = int(spec.low) if spec.low is not None else 0
        high = int(spec.high) if spec.high is not None else 7
        return f"torch.randint({low}, {high + 1}, {size}, dtype={dtype})"
    if spec.dtype.startswith("complex"):
        return f"torch.randn({size}, dtype={dtype})"
    if spec.low is not None and spec.high is not None and spec.low >= 0 and spec.elements > 8:
        start, width = float(f"{spec.low:.3g}"), float(f"{max(spec.high - spec.low, 0.0):.3g}")
        made = f"torch.rand({size}) * {width!r} + {start!r}"
    elif spec.low is not None and spec.high is not None and spec.elements > 8:
        width = float(f"{max(abs(spec.low), abs(spec.high)) / 3:.2g}") or 1.0
        made = f"torch.randn({size}) * {width!r}"
    else:
        made = f"torch.randn({size})"
    return made if spec.dtype == "float32" else f"({made}).to({dtype})"


def _candidate(file: Path, folder: str, case: Arguments) -> Candidate:
    """An implementation, called as the reference calls the operator."""
    source = read_text(file)
    function = f"{folder}{_SUFFIX}"
    if has_function(parse(source, str(file)), function) is None:
        raise InputError(f"no function `{function}`", str(file), "define it at the top level")
    tensors = [k for k, v in case.kwargs.items() if isinstance(v, TensorSpec)]
    adapted = module(
        [
            source,
            "import torch",
            "class ModelNew(torch.nn.Module):\n    def forward(self, *arguments):\n"
            f"        return {function}(*arguments[:{len(case.args)}], {_keywords(case, tensors)})",
        ]
    )
    return parse_candidate(adapted, path=str(file), id=file.stem, strict=False)
