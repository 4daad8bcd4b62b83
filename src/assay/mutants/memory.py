"""Operators on masks, buffers and addresses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from assay.mutants.model import Edit, FaultKind, Operator
from assay.mutants.source import Source, keyword


def _without(source: Source, call: ast.Call, names: tuple[str, ...]) -> str:
    """A call's text less some keyword arguments."""
    parts = [source.of(a) for a in call.args]
    parts += [f"{k.arg}={source.of(k.value)}" for k in call.keywords if k.arg not in names]
    return f"{source.of(call.func)}({', '.join(parts)})"


def drop_load_mask(source: Source) -> Iterator[Edit]:
    """A load without its mask."""
    for call in source.kernel_calls("load"):
        if keyword(call, "mask") is not None:
            yield source.replace(call, _without(source, call, ("mask", "other")))


def drop_store_mask(source: Source) -> Iterator[Edit]:
    """A store without its mask."""
    for call in source.kernel_calls("store"):
        if keyword(call, "mask") is not None:
            yield source.replace(call, _without(source, call, ("mask",)))


def _bounds(source: Source) -> Iterator[ast.Compare]:
    """Comparisons `place < limit` with which masks are made."""
    for node in source.in_kernels(ast.Compare):
        assert isinstance(node, ast.Compare)
        if isinstance(node.ops[0], ast.Lt) and len(node.ops) == 1 and source.is_integer(node):
            yield node


def loosen_mask(source: Source) -> Iterator[Edit]:
    """A mask that lets one element too many in."""
    for node in _bounds(source):
        yield source.replace(node, f"{source.of(node.left)} <= {source.of(node.comparators[0])}")


def tighten_mask(source: Source) -> Iterator[Edit]:
    """A mask that leaves the last element out."""
    for node in _bounds(source):
        yield source.replace(node, f"{source.of(node.left)} < {source.of(node.comparators[0])} - 1")


def mask_one_axis(source: Source) -> Iterator[Edit]:
    """A mask of two axes that tests one."""
    for node in source.in_kernels(ast.BinOp):
        assert isinstance(node, ast.BinOp)
        if isinstance(node.op, ast.BitAnd) and source.is_integer(node):
            yield source.replace(node, f"({source.of(node.left)})")
            yield source.replace(node, f"({source.of(node.right)})")


def uninitialised(source: Source) -> Iterator[Edit]:
    """Memory taken as it comes where zeros are needed."""
    for call in source.host_calls("zeros", "zeros_like"):
        new = source.of(call.func).replace("zeros", "empty")
        yield source.replace(call.func, new)


def output_in_input(source: Source) -> Iterator[Edit]:
    """The output written over the input."""
    for call in source.host_calls("empty_like"):
        if call.args:
            yield source.replace(call, source.of(call.args[0]))


def result_in_input(source: Source) -> Iterator[Edit]:
    """The result copied into the first input and returned from there."""
    for place, name in returned(source):
        first = _first_input(source)
        if first is not None:
            yield source.replace(place, f"{first}.copy_({name}) if {first}.shape == {name}.shape else {name}")


def input_as_scratch(source: Source) -> Iterator[Edit]:
    """An input cleared once it is used."""
    for place, name in returned(source):
        first = _first_input(source)
        if first is not None:
            yield source.replace(place, f"({name}, {first}.detach().zero_())[0]")


def unwritten_tail(source: Source) -> Iterator[Edit]:
    """A grid one block short, so that the end of the output stays as it was."""
    for call in source.host_calls("cdiv"):
        yield source.replace(call, f"max(1, {source.of(call)} - 1)")


def cdiv_to_floor(source: Source) -> Iterator[Edit]:
    """Blocks counted by rounding down."""
    for call in source.host_calls("cdiv"):
        yield source.replace(call, f"max(1, {source.of(call.args[0])} // {source.of(call.args[1])})")


def shifted_address(source: Source) -> Iterator[Edit]:
    """An address one element further."""
    for call in source.kernel_calls("load", "store"):
        yield source.replace(call.args[0], f"{source.of(call.args[0])} + 1")


def atomic_to_store(source: Source) -> Iterator[Edit]:
    """A plain store where several programs add."""
    for call in source.kernel_calls("atomic_add"):
        yield source.replace(call.func, "tl.store")


def lost_update(source: Source) -> Iterator[Edit]:
    """A load, a sum and a store where several programs add: one of them undoes what another did in between."""
    for call in source.kernel_calls("atomic_add"):
        masks = [*call.args[2:3], *(k.value for k in call.keywords if k.arg == "mask")]
        pointer, value = (source.of(argument) for argument in call.args[:2])
        mask = f", mask={source.of(masks[0])}" if masks else ""
        yield source.replace(call, f"tl.store({pointer}, tl.load({pointer}{mask}) + ({value}){mask})")


def launches_swapped(source: Source) -> Iterator[Edit]:
    """Two kernels launched in the wrong order, the second without waiting for what the first writes."""
    for function in source.host:
        for one, two in zip(function.body, function.body[1:], strict=False):
            if all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)
                   and isinstance(s.value.func, ast.Subscript) for s in (one, two)):
                a, b = source.span(one), source.span(two)
                yield Edit(((*a, source.of(two)), (*b, source.of(one))), "launches swapped")


def drop_contiguous(source: Source) -> Iterator[Edit]:
    """Strides ignored: the input taken for dense."""
    for call in source.host_calls("contiguous"):
        assert isinstance(call.func, ast.Attribute)
        yield source.replace(call, source.of(call.func.value))


def view_of_buffer(source: Source) -> Iterator[Edit]:
    """The output as a view of a larger buffer that later calls use again."""
    for call in source.host_calls("empty", "empty_like"):
        if call.args:
            spans = ((*source.span(call), f"_arena({source.of(call)})"), helper(source, _ARENA))
            yield Edit(spans, "output in an arena")


_ARENA = '''
_arenas = {}


def _arena(new):
    room = _arenas.setdefault(new.dtype, torch.empty(1 << 20, dtype=new.dtype, device=new.device))
    return room[: new.numel()].view(new.shape)
'''


def grid_of_one_configuration(source: Source) -> Iterator[Edit]:
    """A grid computed for one of the configurations that tuning may choose."""
    blocks = sorted({int(n) for n in re.findall(r'triton\.Config\(\{"BLOCK_SIZE": (\d+)', source.text)})
    for node in source.in_host(ast.Subscript):
        if source.of(node) == 'meta["BLOCK_SIZE"]':
            for block in blocks[1:]:
                yield source.replace(node, str(block))


def no_reset(source: Source) -> Iterator[Edit]:
    """An accumulator that tuning does not clear between its trials."""
    found = re.search(r",\n\s*reset_to_zero=\[[^]]*\]", source.text)
    if found is not None:
        yield Edit(((*found.span(), ""),), "reset_to_zero left out")


def helper(source: Source, text: str) -> tuple[int, int, str]:
    """An insertion before the first class or kernel of the file."""
    first = next(n for n in source.tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef))
    decorators = first.decorator_list
    start = source.span(decorators[0])[0] - 1 if decorators else source.span(first)[0]
    return (start, start, text.strip("\n") + "\n\n\n")


def returned(source: Source) -> Iterator[tuple[ast.expr, str]]:
    """Last `return NAME` or `return CALL` of forward: the expression and its text."""
    found = source.forward()
    if found is None:
        return
    last = found[1].body[-1]
    if isinstance(last, ast.Return) and last.value is not None and not isinstance(last.value, ast.Tuple):
        yield last.value, source.of(last.value)


def _first_input(source: Source) -> str | None:
    found = source.forward()
    if found is None:
        return None
    arguments = found[1].args.args
    return arguments[1].arg if len(arguments) > 1 else None


M = FaultKind.MEMORY
OPERATORS = (
    Operator("drop_load_mask", M, "a load without its mask", drop_load_mask),
    Operator("drop_store_mask", M, "a store without its mask", drop_store_mask),
    Operator("loosen_mask", M, "a mask that lets one element too many in", loosen_mask),
    Operator("tighten_mask", FaultKind.SEMANTIC, "a mask that leaves the last element out", tighten_mask),
    Operator("mask_one_axis", M, "a mask of two axes that tests one", mask_one_axis),
    Operator("uninitialised", M, "empty memory where zeros are needed", uninitialised),
    Operator("output_in_input", M, "the output written over the input", output_in_input),
    Operator("result_in_input", M, "the result copied into an input and returned from there", result_in_input),
    Operator("input_as_scratch", M, "an input cleared once it is used", input_as_scratch),
    Operator("unwritten_tail", M, "a grid one block short", unwritten_tail),
    Operator("cdiv_to_floor", FaultKind.SEMANTIC, "blocks counted by rounding down", cdiv_to_floor),
    Operator("shifted_address", M, "an address one element further", shifted_address),
    Operator("lost_update", M, "an addition that other programs may undo", lost_update),
    Operator("atomic_to_store", M, "a plain store where several programs add", atomic_to_store),
    Operator("launches_swapped", M, "two kernels launched in the wrong order", launches_swapped),
    Operator("drop_contiguous", M, "strides ignored", drop_contiguous),
    Operator("grid_of_one_configuration", M, "a grid for one configuration of several", grid_of_one_configuration),
    Operator("no_reset", M, "an accumulator that tuning does not clear", no_reset),
    Operator("view_of_buffer", M, "outputs that share one buffer", view_of_buffer),
)
