"""Operators on state, exceptional values, gradients and resources."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator

from assay.mutants.memory import helper, returned
from assay.mutants.model import Edit, FaultKind, Operator
from assay.mutants.source import Source

# -- state


def _wrapped(source: Source, body: str, note: str) -> Iterator[Edit]:
    """forward renamed, and another one in front of it that decides when to call it."""
    found = source.forward()
    if found is None:
        return
    method = found[1]
    start, _ = source.span(method)
    name_at = source.text.index("forward", start)
    names = ", ".join(a.arg for a in method.args.args[1:])
    text = body.format(names=names, first=method.args.args[1].arg)
    yield Edit(((start, start, text), (name_at, name_at + len("forward"), "compute")), note)


_CACHE = '''def forward(self, {{names}}):
        key = {key}
        if getattr(self, "_key", None) != key:
            self._key, self._result = key, self.compute({{names}})
        return self._result

    '''


def cached_by_shape(source: Source) -> Iterator[Edit]:
    """An earlier result returned for inputs of the same shape."""
    yield from _wrapped(source, _CACHE.format(key="tuple({first}.shape)"), "results kept by shape")


def cached_by_address(source: Source) -> Iterator[Edit]:
    """An earlier result returned for inputs at the same address."""
    key = "({first}.data_ptr(), tuple({first}.shape))"
    yield from _wrapped(source, _CACHE.format(key=key), "results kept by address")


def skipped_calls(source: Source) -> Iterator[Edit]:
    """Nothing computed any more from the third call on."""
    body = '''def forward(self, {names}):
        self._calls = getattr(self, "_calls", 0) + 1
        if self._calls <= 2 or not hasattr(self, "_last"):
            self._last = self.compute({names})
        return self._last

    '''
    yield from _wrapped(source, body, "no work after the second call")


def shared_buffer(source: Source) -> Iterator[Edit]:
    """One output buffer for all calls of a shape."""
    for call in source.host_calls("empty", "empty_like"):
        spans = ((*source.span(call), f"_reused({source.of(call)})"), helper(source, _REUSED))
        yield Edit(spans, "output buffer shared")


def carried_over(source: Source) -> Iterator[Edit]:
    """An accumulator that is cleared once and never again."""
    for call in source.host_calls("zeros", "zeros_like"):
        yield Edit(((*source.span(call), f"_reused({source.of(call)})"), helper(source, _REUSED)), "accumulator kept")


_REUSED = '''
_buffers = {}


def _reused(new):
    return _buffers.setdefault((tuple(new.shape), new.dtype), new)
'''


def stale_weights(source: Source) -> Iterator[Edit]:
    """A parameter copied at the first call and never read again."""
    found = source.forward()
    if found is None:
        return
    for node in ast.walk(found[1]):
        if isinstance(node, ast.Attribute) and source.of(node) in ("self.weight", "self.bias", "self.table"):
            copy = f'self.__dict__.setdefault("_{node.attr}_copy", {source.of(node)}.detach().clone())'
            yield source.replace(node, copy)


def random_noise(source: Source) -> Iterator[Edit]:
    """Noise of a few units in the last place."""
    for place, name in returned(source):
        noise = f"1e-6 * torch.rand({name}.shape, device={name}.device)"
        yield source.replace(place, f"({name} * (1.0 + {noise})).to({name}.dtype)")


# -- exceptional values


def nan_test_dropped(source: Source) -> Iterator[Edit]:
    """A test for NaN that never holds."""
    for node in source.in_kernels(ast.Compare):
        assert isinstance(node, ast.Compare)
        if isinstance(node.ops[0], ast.NotEq) and source.of(node.left) == source.of(node.comparators[0]):
            yield source.replace(node, f"{source.of(node.left)} > {source.of(node.left)}")


def nan_swallowed(source: Source) -> Iterator[Edit]:
    """A limit by minimum or maximum, which lose a NaN."""
    for call in source.kernel_calls("where"):
        test, yes, no = call.args[:3]
        if not isinstance(test, ast.Compare) or source.of(test.left) != source.of(no):
            continue
        function = {ast.Lt: "maximum", ast.Gt: "minimum"}.get(type(test.ops[0]))
        if function is not None and source.of(test.comparators[0]) == source.of(yes):
            yield source.replace(call, f"tl.{function}({source.of(no)}, {source.of(yes)})")


def _loaded(source: Source) -> Iterator[ast.Assign]:
    """Statements `name = tl.load(...)` of values."""
    for node in source.in_kernels(ast.Assign):
        assert isinstance(node, ast.Assign)
        text = source.of(node.value)
        if text.startswith("tl.load") and text.endswith(".to(tl.float32)") and isinstance(node.targets[0], ast.Name):
            yield node


def nan_scrubbed(source: Source) -> Iterator[Edit]:
    """NaN in an input taken for zero."""
    for node in _loaded(source):
        name = source.of(node.targets[0])
        end = source.span(node)[1]
        text = f"\n{source.indent(node)}{name} = tl.where({name} == {name}, {name}, 0.0)"
        yield Edit(((end, end, text),), "NaN taken for 0")


def infinity_clamped(source: Source) -> Iterator[Edit]:
    """Infinities in an input limited to large numbers."""
    for node in _loaded(source):
        name = source.of(node.targets[0])
        end = source.span(node)[1]
        text = f"\n{source.indent(node)}{name} = tl.where({name} > 1e30, 1e30, tl.where({name} < -1e30, -1e30, {name}))"
        yield Edit(((end, end, text),), "infinities limited")


def small_flushed(source: Source) -> Iterator[Edit]:
    """Small normal numbers in an input taken for zero."""
    for node in _loaded(source):
        name = source.of(node.targets[0])
        end = source.span(node)[1]
        text = f"\n{source.indent(node)}{name} = tl.where(tl.abs({name}) < 1e-30, 0.0, {name})"
        yield Edit(((end, end, text),), "numbers below 1e-30 taken for 0")


def zero_substituted(source: Source) -> Iterator[Edit]:
    """NaN in the result replaced by zero."""
    for place, name in returned(source):
        yield source.replace(place, f"torch.nan_to_num({name}, nan=0.0, posinf=float('inf'), neginf=float('-inf'))")


# -- gradients


def severed(source: Source) -> Iterator[Edit]:
    """A graph cut in front of the function."""
    for call in source.host_calls("apply"):
        yield source.replace(call.args[0], f"{source.of(call.args[0])}.detach()")


def _gradients(source: Source) -> Iterator[tuple[ast.expr, str]]:
    for function in source.host:
        last = function.body[-1]
        if function.name == "backward" and isinstance(last, ast.Return) and last.value is not None:
            parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
            for part in parts:
                yield part, source.of(part)


def gradient_scaled(source: Source) -> Iterator[Edit]:
    """A gradient one half too small, or of the wrong sign."""
    for place, name in _gradients(source):
        yield source.replace(place, f"{name} * 0.5")
        yield source.replace(place, f"-{name}")


def gradient_missing(source: Source) -> Iterator[Edit]:
    """No gradient for an input."""
    for place, _ in _gradients(source):
        yield source.replace(place, "None")


def gradient_zeroed(source: Source) -> Iterator[Edit]:
    """A gradient of zeros."""
    for place, name in _gradients(source):
        yield source.replace(place, f"torch.zeros_like({name})")


def gradient_noise(source: Source) -> Iterator[Edit]:
    """A gradient with noise in it."""
    for place, name in _gradients(source):
        yield source.replace(place, f"({name} * (1.0 + 1e-6 * torch.rand_like({name}.float()))).to({name}.dtype)")


def gradient_rounded(source: Source) -> Iterator[Edit]:
    """A gradient rounded to bf16."""
    for place, name in _gradients(source):
        yield source.replace(place, f"{name}.bfloat16().to({name}.dtype)")


def saved_overwritten(source: Source) -> Iterator[Edit]:
    """What was saved for the backward pass changed by it."""
    for place, name in _gradients(source):
        yield source.replace(place, f"({name}, ctx.saved_tensors[0].data.mul_(0.5))[0]")


# -- resources


def oversized_block(source: Source) -> Iterator[Edit]:
    """A block larger than a tensor of a kernel may be."""
    for call in source.launches():
        blocks = [k for k in call.keywords if k.arg and k.arg.startswith("BLOCK")]
        if len(blocks) == 1 and isinstance(blocks[0].value, ast.Constant):
            yield source.replace(blocks[0].value, str(1 << 21))


def oversized_tiles(source: Source) -> Iterator[Edit]:
    """Tiles that do not fit into shared memory."""
    if not any(True for _ in source.kernel_calls("dot")):
        return
    for call in source.launches():
        blocks = [k for k in call.keywords if k.arg == "BLOCK_K"]
        if blocks:
            end = source.span(blocks[0].value)
            yield Edit(((*end, "2048, num_stages=4"),), "tiles of 2048 in four stages")


def endless_loop(source: Source) -> Iterator[Edit]:
    """A loop that does not end at some sizes."""
    found = source.forward()
    chosen = hashlib.sha256(source.text.encode()).digest()[0] % 8 == 0
    if chosen and found is not None and len(found[1].args.args) > 1:
        first, body = found[1].args.args[1].arg, found[1].body[0]
        start = source.span(body)[0]
        text = f"while {first}.shape[0] % 2 == 1:\n{source.indent(body)}    pass\n{source.indent(body)}"
        yield Edit(((start, start, text),), "no end at odd sizes")


def exits(source: Source) -> Iterator[Edit]:
    """A process that ends at some sizes."""
    found = source.forward()
    if found is not None and len(found[1].args.args) > 1:
        first, body = found[1].args.args[1].arg, found[1].body[0]
        start = source.span(body)[0]
        space = source.indent(body)
        text = f"if {first}.shape[0] == 1:\n{space}    import os\n\n{space}    os._exit(0)\n{space}"
        yield Edit(((start, start, text),), "exit for one row")


K = FaultKind
OPERATORS = (
    Operator("cached_by_shape", K.STATE, "an earlier result for the same shape", cached_by_shape),
    Operator("cached_by_address", K.STATE, "an earlier result for the same address", cached_by_address),
    Operator("skipped_calls", K.STATE, "no work after the second call", skipped_calls),
    Operator("shared_buffer", K.STATE, "one output buffer for all calls", shared_buffer),
    Operator("carried_over", K.STATE, "an accumulator cleared only once", carried_over),
    Operator("stale_weights", K.STATE, "a parameter copied at the first call", stale_weights),
    Operator("random_noise", K.STATE, "noise in the result", random_noise),
    Operator("nan_test_dropped", K.EXCEPTIONAL, "a test for NaN that never holds", nan_test_dropped),
    Operator("nan_swallowed", K.EXCEPTIONAL, "a limit that loses a NaN", nan_swallowed),
    Operator("nan_scrubbed", K.EXCEPTIONAL, "NaN in an input taken for zero", nan_scrubbed),
    Operator("infinity_clamped", K.EXCEPTIONAL, "infinities in an input limited", infinity_clamped),
    Operator("small_flushed", K.EXCEPTIONAL, "small normal numbers taken for zero", small_flushed),
    Operator("zero_substituted", K.EXCEPTIONAL, "NaN in the result replaced", zero_substituted),
    Operator("severed", K.GRADIENT, "a graph cut", severed),
    Operator("gradient_scaled", K.GRADIENT, "a gradient scaled or negated", gradient_scaled),
    Operator("gradient_missing", K.GRADIENT, "no gradient for an input", gradient_missing),
    Operator("gradient_zeroed", K.GRADIENT, "a gradient of zeros", gradient_zeroed),
    Operator("gradient_noise", K.GRADIENT, "noise in a gradient", gradient_noise),
    Operator("gradient_rounded", K.GRADIENT, "a gradient rounded to bf16", gradient_rounded),
    Operator("saved_overwritten", K.GRADIENT, "saved tensors changed", saved_overwritten),
    Operator("oversized_block", K.RESOURCE, "a block larger than a tensor may be", oversized_block),
    Operator("oversized_tiles", K.RESOURCE, "tiles beyond shared memory", oversized_tiles),
    Operator("endless_loop", K.RESOURCE, "a loop without end at some sizes", endless_loop),
    Operator("exits", K.RESOURCE, "a process that ends at some sizes", exits),
)
