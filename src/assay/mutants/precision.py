"""Operators on the precision of what is computed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from assay.mutants.model import Edit, FaultKind, Operator
from assay.mutants.source import Source, keyword

ROUNDING = ("sum", "exp", "sqrt", "log", "dot", "tanh", "erf", "expm1", "log1p")


def _accumulator(dtype: str, source: Source) -> Iterator[Edit]:
    for node in source.in_kernels(ast.AugAssign):
        assert isinstance(node, ast.AugAssign)
        if isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name):
            name, value = source.of(node.target), source.of(node.value)
            yield source.replace(node, f"{name} = ({name} + {value}).to({dtype}).to(tl.float32)")
    for call in source.kernel_calls("dot"):
        if len(call.args) > 2:
            yield source.replace(call, f"{source.of(call)}.to({dtype}).to(tl.float32)")


def half_accumulator(source: Source) -> Iterator[Edit]:
    """Partial sums kept in fp16."""
    yield from _accumulator("tl.float16", source)


def bf16_accumulator(source: Source) -> Iterator[Edit]:
    """Partial sums kept in bf16."""
    yield from _accumulator("tl.bfloat16", source)


def tf32_dot(source: Source) -> Iterator[Edit]:
    """A product in TF32."""
    for call in source.kernel_calls("dot"):
        mode = keyword(call, "input_precision")
        if mode is not None and source.of(mode.value) == '"ieee"':
            yield source.replace(mode.value, '"tf32"')


def half_operands(source: Source) -> Iterator[Edit]:
    """A product of operands rounded to half precision."""
    for call in source.kernel_calls("dot"):
        for dtype in ("tl.float16", "tl.bfloat16"):
            a, b = (f"({source.of(x)}).to({dtype})" for x in call.args[:2])
            rest = "".join(f", {source.of(x)}" for x in call.args[2:])
            yield source.replace(call, f"tl.dot({a}, {b}{rest})")


def _loads(source: Source) -> Iterator[ast.Call]:
    """Expressions `LOAD.to(tl.float32)`."""
    for node in source.in_kernels(ast.Call):
        text = source.of(node)
        if text.startswith("tl.load") and text.endswith(".to(tl.float32)"):
            assert isinstance(node, ast.Call)
            yield node


def half_load(source: Source) -> Iterator[Edit]:
    """Inputs rounded to fp16 as they are read."""
    for node in _loads(source):
        yield source.replace(node, source.of(node).removesuffix(".to(tl.float32)") + ".to(tl.float16).to(tl.float32)",
                             "input rounded to fp16")


def bf16_load(source: Source) -> Iterator[Edit]:
    """Inputs rounded to bf16 as they are read."""
    for node in _loads(source):
        yield source.replace(node, source.of(node).removesuffix(".to(tl.float32)") + ".to(tl.bfloat16).to(tl.float32)",
                             "input rounded to bf16")


def missing_cast(source: Source) -> Iterator[Edit]:
    """Arithmetic in the dtype of the input."""
    for node in _loads(source):
        yield source.replace(node, source.of(node).removesuffix(".to(tl.float32)"), "input not widened")


def narrow_intermediate(source: Source) -> Iterator[Edit]:
    """An intermediate value rounded to half precision."""
    for node in source.in_kernels(ast.Assign):
        assert isinstance(node, ast.Assign)
        calls = {n.func.attr for n in ast.walk(node.value)
                 if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
        if calls & set(ROUNDING) and "load" not in calls:
            value = source.of(node.value)
            for dtype in ("tl.float16", "tl.bfloat16"):
                yield source.replace(node.value, f"({value}).to({dtype}).to(tl.float32)")


def rounded_output(source: Source) -> Iterator[Edit]:
    """The result rounded to half precision before it is stored."""
    for call in source.kernel_calls("store"):
        if len(call.args) > 1:
            value = source.of(call.args[1])
            if value.endswith(".dtype.element_ty)"):
                wide = value.rsplit(".to(", 1)[0]
                for dtype in ("tl.float16", "tl.bfloat16"):
                    yield source.replace(call.args[1], f"{wide}.to({dtype})")


def short_constant(source: Source) -> Iterator[Edit]:
    """A constant of three digits."""
    for node in source.in_kernels(ast.Constant):
        assert isinstance(node, ast.Constant)
        if isinstance(node.value, float) and len(repr(node.value)) > 7:
            yield source.replace(node, f"{node.value:.3g}")


def rough_exponential(source: Source) -> Iterator[Edit]:
    """An exponential by a power of two with a rough constant."""
    for call in source.kernel_calls("exp"):
        yield source.replace(call, f"tl.exp2(({source.of(call.args[0])}) * 1.4427)")


def rough_erf(source: Source) -> Iterator[Edit]:
    """An error function by a fit with tanh."""
    for call in source.kernel_calls("erf"):
        x = source.of(call.args[0])
        inner = f"1.1283791670955126 * (({x}) + 0.08943 * ({x}) * ({x}) * ({x}))"
        yield source.replace(call, f"(2.0 / (1.0 + tl.exp(-2.0 * ({inner}))) - 1.0)")


def rough_logarithm(source: Source) -> Iterator[Edit]:
    """A logarithm by a power of two with a rough constant."""
    for call in source.kernel_calls("log"):
        yield source.replace(call, f"(tl.log2({source.of(call.args[0])}) * 0.6931)")


def cancelling_form(source: Source) -> Iterator[Edit]:
    """`exp(x) - 1` and `log(1 + x)` where their own functions are needed."""
    for call in source.kernel_calls("expm1"):
        yield source.replace(call, f"(tl.exp({source.of(call.args[0])}) - 1.0)")
    for call in source.kernel_calls("log1p"):
        yield source.replace(call, f"tl.log(1.0 + {source.of(call.args[0])})")


def one_pass_variance(source: Source) -> Iterator[Edit]:
    """A variance as the mean of squares less the square of the mean."""
    pattern = re.compile(r"variance = tl\.sum\(centred \* centred, axis=0\) / n_cols")
    for found in pattern.finditer(source.text):
        text = "variance = tl.sum(x * x, axis=0) / n_cols - mean * mean"
        yield Edit(((*found.span(), text),), "variance in one pass")


P = FaultKind.PRECISION
OPERATORS = (
    Operator("half_accumulator", P, "partial sums in fp16", half_accumulator),
    Operator("bf16_accumulator", P, "partial sums in bf16", bf16_accumulator),
    Operator("tf32_dot", P, "a product in TF32", tf32_dot),
    Operator("half_operands", P, "operands of a product in half precision", half_operands),
    Operator("half_load", P, "inputs rounded to fp16", half_load),
    Operator("bf16_load", P, "inputs rounded to bf16", bf16_load),
    Operator("missing_cast", P, "arithmetic in the dtype of the input", missing_cast),
    Operator("narrow_intermediate", P, "an intermediate value in half precision", narrow_intermediate),
    Operator("rounded_output", P, "the result rounded before it is stored", rounded_output),
    Operator("short_constant", P, "a constant of three digits", short_constant),
    Operator("rough_exponential", P, "an exponential with a rough constant", rough_exponential),
    Operator("rough_erf", P, "an error function by a fit", rough_erf),
    Operator("rough_logarithm", P, "a logarithm with a rough constant", rough_logarithm),
    Operator("cancelling_form", P, "exp(x) - 1 and log(1 + x) spelt out", cancelling_form),
    Operator("one_pass_variance", P, "a variance in one pass", one_pass_variance),
)
