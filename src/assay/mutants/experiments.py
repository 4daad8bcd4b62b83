"""Inputs on which a mutant is compared with the kernel it was made of: sizes, values, layouts, special numbers.

Independent of the gates, the probes and the tolerances that mutants are there to test. What an honest kernel may
deviate by is taken from the right kernel itself: a mutant differs only where its error is several times the
largest that the right kernel makes on the same inputs, and several units in the last place.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from assay.mutants.source import Source

TIMES = 8.0
"""How many times the right kernel's own largest error a difference has to be."""
ELEMENTS = 60_000
"""Inputs with more elements than this are not tried."""
UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float64: 2.0**-53}


@dataclasses.dataclass
class Expected:
    """What the right answer is for one output, and how far an honest kernel is from it."""

    value: torch.Tensor
    """float64 reference, or the exact integers."""
    kinds: torch.Tensor
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf, as the reference gives at its own dtype."""
    legal: torch.Tensor
    """Largest difference that counts as rounding, per element."""
    dtype: torch.dtype
    shape: tuple[int, ...]
    decides: torch.Tensor
    """Where the right kernel agrees with the reference."""


@dataclasses.dataclass
class Experiment:
    """One set of inputs with what the reference makes of it."""

    name: str
    module: types.ModuleType
    inputs: list[Any]
    weights: dict[str, torch.Tensor]
    expected: list[Expected]
    sizes: dict[str, int]


def kinds(tensor: torch.Tensor) -> torch.Tensor:
    """int8 class of each element: 0 finite, 1 NaN, 2 +Inf, 3 -Inf."""
    if not tensor.is_floating_point():
        return torch.zeros(tensor.shape, dtype=torch.int8)
    found = torch.zeros(tensor.shape, dtype=torch.int8)
    found[tensor.isnan()] = 1
    found[tensor == math.inf] = 2
    found[tensor == -math.inf] = 3
    return found


def leaves(value: Any) -> list[torch.Tensor]:
    """Tensors of an output, in order. Raises TypeError for anything else."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    raise TypeError(f"an output of type {type(value).__name__}")


def integers(reference: str) -> dict[str, int]:
    """Module-level integers of a reference, by name."""
    return {
        node.targets[0].id: node.value.value for node in ast.parse(reference).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant) and type(node.value.value) is int
    }


def resized(reference: str, sizes: dict[str, int]) -> str:
    """A reference with other module-level integers."""
    source = Source(reference)
    edits = []
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in sizes:
            edits.append((*source.span(node.value), str(sizes[node.targets[0].id])))
    for start, end, text in sorted(edits, reverse=True):
        reference = reference[:start] + text + reference[end:]
    return reference


def load(text: str, name: str, load_file: Callable[[str, str], types.ModuleType] | None = None) -> types.ModuleType:
    """A module from a text; kernels need a real file, which `load_file` makes."""
    if load_file is not None:
        return load_file(text, name)
    module = types.ModuleType(name)
    exec(compile(text, f"<{name}>", "exec"), module.__dict__)
    return module


def build(module: types.ModuleType, entry: str, init: types.ModuleType, seed: int = 0) -> Any:
    """An instance of a module's class, with the constructor arguments of `init`."""
    torch.manual_seed(seed)
    arguments = init.get_init_inputs()
    return getattr(module, entry)(*arguments)


def set_weights(model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Copy parameters and buffers by name, or by order where names differ, in place."""
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    pairs = [(own[n], weights[n]) for n in own if n in weights]
    if len(pairs) != len(own) and len(own) == len(weights):
        pairs = list(zip(own.values(), weights.values(), strict=True))
    with torch.no_grad():
        for mine, theirs in pairs:
            mine.copy_(theirs)


def _values(inputs: list[Any], name: str) -> list[Any] | None:
    """Inputs varied in value; None where no input takes this variation."""
    changed, any_change = [], False
    for tensor in inputs:
        if not _free(tensor):
            changed.append(tensor)
            continue
        x = tensor.clone()
        if name == "tenfold":
            x = x * 10
        elif name == "tiny":
            x = x * 0.02
        elif name == "offset":
            x = x + 30 if x.dtype == torch.float32 else x + 4
        elif name == "negative":
            x = -x.abs()
        elif name == "positive":
            x = x.abs()
        elif name == "constant":
            x = x * 0 + 0.75
        elif name == "zeros":
            x = x * 0
        elif name == "whole":
            x = (x * 3).round()
        elif name == "hundredfold":
            x = x * 100
        elif name == "microscopic":
            x = x * 1e-4
        elif name == "minute":
            x = x * 1e-33
        changed.append(x)
        any_change = True
    return changed if any_change else None


VALUES = ("tenfold", "tiny", "offset", "negative", "positive", "whole", "constant", "zeros", "hundredfold",
          "microscopic", "minute")


def _free(tensor: Any) -> bool:
    """Whether an input takes any real number: floating, with values of both signs."""
    if not (isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.numel() > 1):
        return False
    return bool((tensor > 0).any()) and bool((tensor < 0).any())


def _special(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Inputs with one NaN or infinity, at the start, in the middle and at the end."""
    for number, tensor in enumerate(inputs):
        if not _free(tensor):
            continue
        for value in (math.nan, math.inf, -math.inf):
            for place in (0, tensor.numel() // 2, tensor.numel() - 1):
                changed = [t.clone() if isinstance(t, torch.Tensor) else t for t in inputs]
                changed[number].reshape(-1)[place] = value
                yield f"{value} at {place} of input {number}", changed


def _layouts(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The same values with other strides: transposed storage, every second element, expanded."""
    def strided(tensor: torch.Tensor, how: str) -> torch.Tensor:
        if how == "transposed" and tensor.dim() > 1:
            return tensor.transpose(0, -1).contiguous().transpose(0, -1)
        if how == "sliced" and tensor.dim() > 0:
            wide = torch.empty(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
            wide[..., ::2] = tensor
            wide[..., 1::2] = 0
            return wide[..., ::2]
        return tensor

    for how in ("transposed", "sliced"):
        yield how, [strided(t, how) if isinstance(t, torch.Tensor) else t for t in inputs]


def size_variants(native: dict[str, int]) -> Iterator[dict[str, int]]:
    """Other sizes, one at a time and all together, small ones first."""
    for name, value in native.items():
        for other in (1, 7, value + 1, max(1, value - 1), 2 * value + 3, 33, 4 * value + 5, 300):
            if other != value:
                yield {**native, name: other}
    yield {name: 2 * value + 1 for name, value in native.items()}
    yield dict.fromkeys(native, 3)


class Laboratory:
    """Every experiment of one subject, made once.

    Args:
        reference: text of the reference.
        kernel: text of the right kernel.
        load_file: makes a module of a text, from a real file.
    """

    def __init__(self, reference: str, kernel: str, load_file: Callable[[str, str], types.ModuleType]) -> None:
        self.reference = reference
        self.native = integers(reference)
        self.right = load(kernel, "right", load_file)
        self._modules: dict[tuple[tuple[str, int], ...], types.ModuleType] = {}
        self.experiments: list[Experiment] = []
        for seed in (1, 2):
            self._add(f"draw {seed}", self.native, seed)
        for sizes in size_variants(self.native):
            self._add(", ".join(f"{k}={v}" for k, v in sizes.items() if v != self.native[k]), sizes, 3)
        for name in VALUES:
            self._add(name, self.native, 4, lambda inputs, name=name: _values(inputs, name))  # type: ignore[misc]
        base = self._inputs(self.module(self.native), 5)
        for name, inputs in [*_layouts(base), *_special(base)]:
            self._add(name, self.native, 5, lambda _, inputs=inputs: inputs)  # type: ignore[misc]
        if self.native:
            longest = max(self.native, key=lambda n: self.native[n])
            for name in ("positive", "offset"):
                self._add(f"long, {name}", {**self.native, longest: 5000}, 6,
                          lambda inputs, name=name: _values(inputs, name))  # type: ignore[misc]

    def module(self, sizes: dict[str, int]) -> types.ModuleType:
        """The reference at some sizes."""
        key = tuple(sorted(sizes.items()))
        if key not in self._modules:
            self._modules[key] = load(resized(self.reference, sizes), "reference")
        return self._modules[key]

    def _inputs(self, module: types.ModuleType, seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return list(module.get_inputs())

    def _add(self, name: str, sizes: dict[str, int], seed: int,
             change: Callable[[list[Any]], list[Any] | None] | None = None) -> None:
        """Keep an experiment, unless the reference or the right kernel does not take it."""
        try:
            module = self.module(sizes)
            inputs: list[Any] | None = self._inputs(module, seed)
            assert inputs is not None
            if change is not None:
                inputs = change(inputs)
            if inputs is None or sum(t.numel() for t in inputs if isinstance(t, torch.Tensor)) > ELEMENTS:
                return
            model = build(module, "Model", module)
            weights = {n: t.detach().clone() for n, t in [*model.named_parameters(), *model.named_buffers()]}
            expected = self.expect(module, model, inputs, weights)
        except Exception:
            return
        if expected is not None:
            self.experiments.append(Experiment(name, module, inputs, weights, expected, dict(sizes)))

    def expect(self, module: types.ModuleType, model: Any, inputs: list[Any],
               weights: dict[str, torch.Tensor]) -> list[Expected] | None:
        """What the reference gives, and how far the right kernel is from it; None where that is wrong itself."""
        with torch.no_grad():
            native = leaves(model(*copies(inputs)))
            precise = leaves(widened(module, weights)(*[_double(t) for t in copies(inputs)]))
            right = build(self.right, "ModelNew", module)
            set_weights(right, weights)
            own = leaves(right(*copies(inputs)))
        if [tuple(t.shape) for t in own] != [tuple(t.shape) for t in native]:
            return None
        found = []
        for reference, wide, mine in zip(native, precise, own, strict=True):
            expected = expected_of(reference.detach(), wide.detach(), mine.detach())
            if all(finite(t) for t in inputs):
                # what 0/0 gives at a degenerate size is nobody's clause
                expected.decides &= expected.kinds == 0
            found.append(expected)
        return found


def widened(module: types.ModuleType, weights: dict[str, torch.Tensor]) -> Any:
    """The reference in float64, with these weights."""
    model = build(module, "Model", module).double()
    set_weights(model, weights)
    return model


def expected_of(reference: torch.Tensor, wide: torch.Tensor, mine: torch.Tensor,
                legal: Sequence[torch.Tensor] = ()) -> Expected:
    """What is right for one output, from the reference at its dtype, in float64, and the right kernel.

    The error of the right kernel is legal, and so is that of each of `legal`.
    """
    shape, dtype = tuple(reference.shape), reference.dtype
    if not reference.is_floating_point():
        return Expected(reference, kinds(reference), torch.zeros(shape), dtype, shape, reference == mine)
    wide = wide.double()
    same = (kinds(reference) == kinds(mine)) & (kinds(wide) == kinds(mine))
    finite = same & (kinds(reference) == 0)
    size = wide[finite].square().mean().sqrt().item() if bool(finite.any()) else 0.0
    errors = [(each.double() - wide).abs()[finite] for each in (mine, *legal)]
    error = max((e.nan_to_num(0.0, 0.0, 0.0).max().item() for e in errors), default=0.0) if bool(finite.any()) else 0.0
    allowed = TIMES * error + 4 * UNIT[dtype] * wide.abs() + 2.0**-21 * size + torch.finfo(dtype).smallest_normal
    return Expected(wide, kinds(reference), allowed, dtype, shape, same)


def finite(value: Any) -> bool:
    """Whether an input holds no NaN and no infinity."""
    return not (isinstance(value, torch.Tensor) and value.is_floating_point()) or bool(value.isfinite().all())


def copies(inputs: list[Any]) -> list[Any]:
    """Private copies that keep strides."""
    return [_copy(t) if isinstance(t, torch.Tensor) else t for t in inputs]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_contiguous() or tensor.numel() == 0:
        return tensor.clone()
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    storage = torch.zeros(span, dtype=tensor.dtype)
    view = storage.as_strided(tensor.shape, tensor.stride())
    view.copy_(tensor)
    return view


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def differs(expected: list[Expected], outputs: list[torch.Tensor]) -> tuple[str, float] | None:
    """How outputs differ from what is right: in what, and by how many times what is legal; None where not."""
    if len(expected) != len(outputs):
        return "structure", math.inf
    worst: tuple[str, float] | None = None
    for want, got in zip(expected, outputs, strict=True):
        if want.shape != tuple(got.shape):
            return "shape", math.inf
        if want.dtype != got.dtype:
            return "dtype", math.inf
        got = got.detach()
        if not got.is_floating_point():
            if bool(((got != want.value) & want.decides).any()):
                return "integer", math.inf
            continue
        if bool(((kinds(got) != want.kinds) & want.decides).any()):
            return "class", math.inf
        finite = want.decides & (want.kinds == 0)
        if not bool(finite.any()):
            continue
        ratio = ((got.double() - want.value).abs() / want.legal)[finite].max().item()
        if ratio > 1 and (worst is None or ratio > worst[1]):
            worst = ("value", ratio)
    return worst
