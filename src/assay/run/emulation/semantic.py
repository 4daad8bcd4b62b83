"""Triton's operations on interpreted values.

The typing rules are Triton's own: the first time an operation meets a combination of
types, Triton's semantic checks decide the promoted type or raise; the decision is kept as
a plan (numpy function, conversions, result type), and the next time only the plan runs.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic

from .arithmetic import ARITHMETIC, BITWISE, COMPARISON, ONE_BIT, compose, division_type
from .formats import Array, converter, from_fp32, is_packed, numpy_dtype
from .memory import Memory
from .values import Handle, block_of, key_of, make, scalar, shape_of, tensor

Plan = tuple[Callable[[Array, Array], Array], Any]
_unwrap = tl.core._unwrap_if_constexpr
_ALL = slice(None)


class Semantic(TritonSemantic):  # type: ignore[misc]
    """Triton's semantic checks over numpy."""

    def __init__(self, builder: Any, memory: Memory) -> None:
        super().__init__(builder)
        self.memory = memory
        self._plans: dict[Any, Plan] = {}
        self._casts: dict[Any, tuple[Callable[[Array], Array], Any]] = {}
        self._accesses: dict[Any, Any] = {}
        self._constants: dict[Any, Any] = {}
        self._aranges: dict[tuple[int, int], Any] = {}
        self._subscript_slowly: Any = None
        """Triton's own `tensor.__getitem__`, set when the language is installed."""

    # -- constants

    def scalar_constant(self, value: Any, dtype: Any) -> Any:
        """A scalar of a Python number; kept, because kernels use few constants many times."""
        if dtype is None:
            raise ValueError("dtype must be specified when value is not a tensor")
        key = (value, type(value), dtype.name)
        found = self._constants.get(key)
        # 0.0 and -0.0 are equal as keys.
        if found is not None and value:
            return found
        name = dtype.name
        if is_packed(name):
            made = make(from_fp32(np.array([value], dtype=np.float32), name), dtype)
        else:
            made = make(np.array([value], dtype=numpy_dtype(dtype)), dtype)
        if len(self._constants) > 20_000:
            self._constants.clear()
        self._constants[key] = made
        return made

    def arange(self, start: int, end: int, *, ret_ty: Any = None) -> Any:
        """``start .. end - 1``, a power of two of them, as int32."""
        found = self._aranges.get((start, end)) if ret_ty is None else None
        if found is None:
            found = super().arange(start, end, ret_ty=ret_ty)
            if ret_ty is None:
                found.handle.data.flags.writeable = False
                self._aranges[(start, end)] = found
        return make(found.handle.data, found.type)

    def full(self, shape: Any, value: Any, dtype: Any) -> Any:
        """A block of one value."""
        one = self.make_scalar(value, dtype)
        sizes = tuple(_unwrap(s) for s in shape)
        if not sizes:
            return one
        ty = block_of(dtype, sizes)
        return make(np.full(sizes, one.handle.data[0]), ty)

    # -- two operands

    def _binary(self, op: str, a: Any, b: Any) -> Any:
        if type(a) is tensor:
            ka: Any = key_of(a.type)
            da = a.handle.data
        else:
            a = _unwrap(a)
            ka, da = (type(a), a if a else str(a)), None
        if type(b) is tensor:
            kb: Any = key_of(b.type)
            db = b.handle.data
        else:
            b = _unwrap(b)
            kb, db = (type(b), b if b else str(b)), None
        key = (op, ka, kb)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._make_plan(op, a, b)
            if len(self._plans) > 20_000:
                self._plans.clear()
            self._plans[key] = plan
        return make(plan[0](da, db), plan[1])

    def _make_plan(self, op: str, a: Any, b: Any) -> Plan:
        """Decide by Triton's rules what `op` does with operands of these types."""
        if type(a) is not tensor and not isinstance(a, numbers.Number):
            a = self.to_tensor(a)
        if type(b) is not tensor and not isinstance(b, numbers.Number):
            b = self.to_tensor(b)
        pointers = op in ("add", "sub")
        comparison = op in COMPARISON
        if op == "fdiv":
            for x in (a, b):
                if not x.type.scalar.is_floating():
                    raise TypeError("both operands of fdiv must have floating scalar type")
            x, y = self.binary_op_type_checking_impl(a, b, False, False, False, True)
        elif op in ("floordiv", "mod", "truediv"):
            x, y = self.binary_op_type_checking_impl(a, b, False, False, True, True)
        elif op in BITWISE:
            x, y = self.bitwise_op_type_checking_impl(a, b)
        else:
            x, y = self.binary_op_type_checking_impl(a, b, pointers, op == "add")
        common, other = x.type.scalar, y.type.scalar
        shape = shape_of(x)
        if common.is_ptr() or other.is_ptr():
            if comparison:
                raise TypeError(f"unexpected type {common}")
            return self._pointer_plan(op, a, b, x, y)
        if op == "truediv":
            common = division_type(common, other)
        elif op == "floordiv" and not common.is_int():
            raise TypeError(f"unexpected type {common}")
        elif op == "fdiv":
            common = common if common.primitive_bitwidth >= other.primitive_bitwidth else other
        if op in ("minimum", "maximum", "minnum", "maxnum") and common.is_int1():
            raise TypeError(f"Unexpected dtype {common}")
        result = block_of(tl.int1 if comparison else common, shape)
        function = COMPARISON.get(op) or ARITHMETIC[op]
        if common.is_int1() and op in ONE_BIT:
            function = ONE_BIT[op]
        sides = self._side(a, common), self._side(b, common)
        return compose(function, common.name, comparison, *sides), result

    def _side(self, operand: Any, common: Any) -> tuple[Array | None, Callable[[Array], Array] | None]:
        """An operand of a plan: a constant, or the conversion to the common type."""
        if type(operand) is not tensor:
            return self.scalar_constant(operand, common).handle.data, None
        source = operand.type.scalar.name
        return None, None if source == common.name else converter(source, common.name)

    def _pointer_plan(self, op: str, a: Any, b: Any, x: Any, y: Any) -> Plan:
        pointer_first = x.type.scalar.is_ptr()
        if pointer_first and y.type.scalar.is_ptr():
            raise TypeError("cannot add pointers together")
        pointer = x if pointer_first else y
        element = pointer.type.scalar.element_ty
        size = np.int64(max(1, element.primitive_bitwidth // 8))
        if op == "sub":
            size = -size
        result = block_of(pointer.type.scalar, shape_of(pointer))
        offset = b if pointer_first else a
        if type(offset) is not tensor:
            fixed = np.array([offset], dtype=np.int64) * size
            step = fixed.view(np.uint64)
            if pointer_first:
                return (lambda da, db: da + step), result
            return (lambda da, db: step + db), result
        wide = offset.type.scalar.name in ("int64", "uint64")

        def add(base: Array, offset: Array) -> Array:
            signed = offset.view(np.int64) if wide else offset
            result: Array = base + np.multiply(signed, size, dtype=np.int64).view(np.uint64)
            return result

        if pointer_first:
            return add, result
        return (lambda da, db: add(db, da)), result

    def add(self, input: Any, other: Any, sanitize_overflow: bool = True) -> Any:
        """Sum, or a pointer moved by elements."""
        return self._binary("add", input, other)

    def sub(self, input: Any, other: Any, sanitize_overflow: bool = True) -> Any:
        """Difference, or a pointer moved back by elements."""
        return self._binary("sub", input, other)

    def mul(self, input: Any, other: Any, sanitize_overflow: bool = True) -> Any:
        """Product."""
        return self._binary("mul", input, other)

    def minimum(self, x: Any, y: Any, propagate_nan: Any) -> Any:
        """Smaller value; a NaN is dropped unless `propagate_nan` is ALL."""
        return self._binary("minimum" if propagate_nan == tl.PropagateNan.ALL else "minnum", x, y)

    def maximum(self, x: Any, y: Any, propagate_nan: Any) -> Any:
        """Larger value; a NaN is dropped unless `propagate_nan` is ALL."""
        return self._binary("maximum" if propagate_nan == tl.PropagateNan.ALL else "maxnum", x, y)

    def fdiv(self, input: Any, other: Any, ieee_rounding: bool) -> Any:
        """Quotient of floats."""
        return self._binary("fdiv", input, other)

    # -- conversions

    def cast(self, input: Any, dst_ty: Any, fp_downcast_rounding: str | None = None) -> Any:
        """Convert to the scalar type of `dst_ty` as the GPU does."""
        source, target = input.type.scalar, dst_ty.scalar
        if source is target or source == target:
            return input
        key = (key_of(input.type), key_of(target), fp_downcast_rounding)
        plan = self._casts.get(key)
        if plan is None:
            if source.is_ptr() or target.is_ptr():
                return super().cast(input, dst_ty, fp_downcast_rounding)
            narrowing = (
                source.is_floating()
                and target.is_floating()
                and target.primitive_bitwidth < source.primitive_bitwidth
            )
            self._str_to_rounding_mode(fp_downcast_rounding)
            if fp_downcast_rounding is not None and not narrowing:
                raise ValueError(
                    "fp_downcast_rounding should be set only for truncating fp conversions. "
                    f"Source scalar type is {source} and destination type is {target}"
                )
            convert = converter(source.name, target.name, fp_downcast_rounding == "rtz")
            plan = self._casts[key] = (convert, block_of(target, shape_of(input)))
        return make(plan[0](input.handle.data), plan[1])

    # -- selection

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """`x` where `condition`, `y` elsewhere."""
        if condition.type.scalar is not tl.int1:
            condition = self.cast(condition, tl.int1)
        x_key = key_of(x.type) if type(x) is tensor else (type(x), x if x else str(x))
        y_key = key_of(y.type) if type(y) is tensor else (type(y), y if y else str(y))
        key = ("where", key_of(condition.type), x_key, y_key)
        plan: Any = self._plans.get(key)
        if plan is None:
            reference = super().where(condition, x, y)
            common = reference.type.scalar
            if common.is_ptr():
                return reference
            plan = (self._side(x, common), self._side(y, common), reference.type, shape_of(reference))
            self._plans[key] = plan
        (x_const, x_cast), (y_const, y_cast), ty, shape = plan
        dx = x_const if x_const is not None else x.handle.data
        dy = y_const if y_const is not None else y.handle.data
        dx = x_cast(dx) if x_cast else dx
        dy = y_cast(dy) if y_cast else dy
        data = np.where(condition.handle.data, dx, dy)
        if data.shape != shape and shape:
            data = np.broadcast_to(data, shape)
        return make(data, ty)

    # -- shapes

    def expand_dims(self, input: Any, axis: int) -> Any:
        """A new dimension of size 1."""
        if not input.type.is_block():
            return super().expand_dims(input, axis)
        data = np.expand_dims(input.handle.data, axis)
        return make(data, block_of(input.type.scalar, data.shape))

    def splat(self, value: Any, shape: Any) -> Any:
        """A scalar spread over a block, without copying."""
        if len(shape) == 0:
            return value
        sizes = tuple(_unwrap(s) for s in shape)
        return make(np.broadcast_to(value.handle.data, sizes), block_of(value.dtype, sizes))

    def subscript(self, input: Any, slices: Any) -> Any:
        """`x[:, None]` and its kin.

        Raises:
            ValueError: for an index that is neither a full slice nor None.
        """
        parts = slices if type(slices) is tuple else (slices,)
        if not input.type.is_block() or not all(p is None or p == _ALL for p in parts):
            return self._subscript_slowly(input, slices)
        data = input.handle.data[parts]
        return make(data, block_of(input.dtype, data.shape))

    # -- matrix products

    def dot(
        self, lhs: Any, rhs: Any, acc: Any, input_precision: Any, max_num_imprecise_acc: Any, out_dtype: Any
    ) -> Any:
        """``lhs @ rhs + acc``."""
        key = (
            "dot",
            key_of(lhs.type),
            key_of(rhs.type),
            None if acc is None else key_of(acc.type),
            input_precision,
            max_num_imprecise_acc,
            out_dtype.name,
        )
        plan = self._accesses.get(key)
        if plan is None:
            result = super().dot(lhs, rhs, acc, input_precision, max_num_imprecise_acc, out_dtype)
            precision = input_precision or self.builder.options.default_dot_input_precision
            zeros = None
            if acc is None:
                zeros = Handle(np.zeros(shape_of(result), numpy_dtype(result.dtype)), result.dtype)
            self._accesses[key] = (result.type, self._str_to_dot_input_precision(precision), zeros)
            return result
        ty, precision, zeros = plan
        start = zeros if acc is None else acc.handle
        product = self.builder.create_dot(lhs.handle, rhs.handle, start, precision, max_num_imprecise_acc)
        return make(product.data, ty)

    # -- memory

    def load(
        self,
        ptr: Any,
        mask: Any,
        other: Any,
        boundary_check: Any,
        padding_option: str,
        cache_modifier: str,
        eviction_policy: str,
        is_volatile: bool,
    ) -> Any:
        """Load through pointers, or through a block pointer."""
        scalar_type = ptr.type.scalar
        if not scalar_type.is_ptr() or scalar_type.element_ty.is_block():
            return super().load(
                ptr, mask, other, boundary_check, padding_option, cache_modifier, eviction_policy, is_volatile
            )
        key = (
            "load",
            key_of(ptr.type),
            None if mask is None else key_of(mask.type),
            None if other is None else key_of(other.type),
            cache_modifier,
            eviction_policy,
        )
        plan = self._accesses.get(key)
        if plan is None:
            plan = self._plan_load(
                ptr, mask, other, boundary_check, padding_option, cache_modifier, eviction_policy
            )
            self._accesses[key] = plan
        shape, dtype, ty, is_bool, convert = plan
        pointers = ptr.handle.data
        if pointers.shape != shape:
            pointers = np.broadcast_to(pointers, shape)
        lanes = None
        if mask is not None:
            lanes = mask.handle.data
            if lanes.shape != shape:
                lanes = np.broadcast_to(lanes, shape)
            if lanes.all():
                lanes = other = None
        fill = None
        if other is not None:
            fill = other.handle.data
            if convert is not None:
                fill = convert(fill)
            if fill.shape != shape:
                fill = np.broadcast_to(fill, shape)
        data = self.memory.load(pointers, lanes, fill, dtype)
        return make(data != 0 if is_bool else data, ty)

    def _plan_load(
        self,
        ptr: Any,
        mask: Any,
        other: Any,
        boundary_check: Any,
        padding: str,
        cache_modifier: str,
        eviction_policy: str,
    ) -> Any:
        self._str_to_load_cache_modifier(cache_modifier)
        self._str_to_eviction_policy(eviction_policy)
        if mask is None and other is not None:
            raise ValueError("`other` cannot be provided without `mask`")
        if padding or boundary_check:
            raise ValueError(
                "`padding_option` or `boundary_check` argument is not supported for loading a tensor of"
                "pointers or loading a scalar. Because the compiler does not know the boundary; please "
                "use block pointers (defined by `make_block_ptr`) instead"
            )
        _check_mask(ptr, mask)
        wide = ptr
        if ptr.type.is_block():
            if mask is not None:
                wide, mask = self.broadcast_impl_value(wide, mask)
            if other is not None:
                wide, other = self.broadcast_impl_value(wide, other)
        element = ptr.type.scalar.element_ty
        is_bool = element.is_int1()
        stored = tl.int8 if is_bool else element
        convert = None
        if other is not None and other.type.scalar.name != stored.name:
            convert = converter(other.type.scalar.name, stored.name)
        shape = shape_of(wide)
        result = block_of(tl.int1 if is_bool else element, shape)
        return shape or (1,), numpy_dtype(stored), result, is_bool, convert

    def store(
        self,
        ptr: Any,
        val: Any,
        mask: Any,
        boundary_check: Any,
        cache_modifier: str,
        eviction_policy: str,
    ) -> Any:
        """Store through pointers, or through a block pointer."""
        scalar_type = ptr.type.scalar
        if not scalar_type.is_ptr() or scalar_type.element_ty.is_block():
            return super().store(ptr, val, mask, boundary_check, cache_modifier, eviction_policy)
        key = (
            "store",
            key_of(ptr.type),
            key_of(val.type),
            None if mask is None else key_of(mask.type),
            cache_modifier,
            eviction_policy,
        )
        plan = self._accesses.get(key)
        if plan is None:
            plan = self._plan_store(ptr, val, mask, boundary_check, cache_modifier, eviction_policy)
            self._accesses[key] = plan
        shape, convert = plan
        pointers = ptr.handle.data
        values = val.handle.data
        if convert is not None:
            values = convert(values)
        if values.shape != shape:
            values = np.broadcast_to(values, shape)
        lanes = None
        if mask is not None:
            lanes = mask.handle.data
            if lanes.shape != shape:
                lanes = np.broadcast_to(lanes, shape)
            if lanes.all():
                lanes = None
        self.memory.store(pointers, values, lanes)
        return None

    def _plan_store(
        self, ptr: Any, val: Any, mask: Any, boundary_check: Any, cache_modifier: str, eviction_policy: str
    ) -> Any:
        self._str_to_store_cache_modifier(cache_modifier)
        self._str_to_eviction_policy(eviction_policy)
        if ptr.type.scalar.is_const():
            raise ValueError("Cannot store to a constant pointer")
        if boundary_check:
            raise ValueError(
                "`boundary_check` argument is not supported for storing a tensor of pointers or storing a "
                "scalar. Because the compiler does not know the boundary; please use block pointers "
                "(defined by `make_block_ptr`) instead"
            )
        if not ptr.type.is_block() and val.type.is_block():
            raise ValueError("Value argument cannot be block type if pointer argument is not a block")
        _check_mask(ptr, mask)
        shape = shape_of(ptr)
        if ptr.type.is_block():
            wide, _ = self.broadcast_impl_value(ptr, val)
            if mask is not None:
                wide, _ = self.broadcast_impl_value(wide, mask)
            if shape_of(wide) != shape:
                raise ValueError(
                    f"Expected pointer argument to have shape {list(shape_of(wide))} but got {list(shape)}"
                )
        element = ptr.type.scalar.element_ty
        stored = "int8" if element.is_int1() else element.name
        source = val.type.scalar.name
        if element.is_ptr():
            convert = None
        elif element.is_int1():
            convert = lambda data: (data != 0).astype(np.int8)  # noqa: E731
            if source != "int1":
                convert = converter(source, "int8")
        else:
            convert = None if source == stored else converter(source, stored)
        return shape or (1,), convert


def _check_mask(ptr: Any, mask: Any) -> None:
    if mask is None:
        return
    if not ptr.type.is_block() and mask.type.is_block():
        raise ValueError("Mask argument cannot be block type if pointer argument is not a block")
    if not mask.type.scalar.is_bool():
        raise ValueError("Mask must have boolean scalar type")


for _name in ("truediv", "floordiv", "mod", "and_", "or_", "xor_", "shl", "lshr", "ashr", *COMPARISON):

    def _method(self: Semantic, input: Any, other: Any, _op: str = _name) -> Any:
        return self._binary(_op, input, other)

    setattr(Semantic, _name, _method)

__all__ = ["Semantic", "scalar"]
