"""Operations that Triton's semantic layer asks of its builder, repaired where the
interpreter's own differ from the GPU compiler's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import _allocation, interpreter

from . import libdevice
from .errors import NeedsGpu
from .formats import (
    Array,
    converter,
    flush_subnormals,
    from_fp32,
    is_packed,
    numpy_dtype,
    to_fp32,
    truncated_to_tf32,
)
from .memory import Memory, view_at
from .microscaling import scaled
from .native import matmul, on_torch
from .values import Handle

_FP16_STEP = 16
"""Products that a half-precision matrix instruction adds before it rounds its accumulator."""


class Builder(interpreter.InterpreterBuilder):  # type: ignore[misc]
    """Triton's interpreting builder with corrected arithmetic and checked memory."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory
        self.dots: Counter[tuple[str, str]] = Counter()
        """Matrix products by operand type and input precision asked for."""
        self.tf32 = True
        """Whether the device multiplies float32 in TF32 where a product asks for it."""
        self.descriptors_in_memory = False
        """Whether a descriptor made inside a kernel needs memory from the candidate's allocator."""
        object.__setattr__(
            self,
            "options",
            interpreter.InterpreterOptions(sanitize_overflow=False, default_dot_input_precision="tf32"),
        )
        allowed = {*self.options.allowed_dot_input_precisions, "bf16x3", "bf16x6"}
        object.__setattr__(self.options, "allowed_dot_input_precisions", tuple(sorted(allowed)))
        object.__setattr__(self.options, "num_warps", 4)

    # -- programs

    def set_program(self, x: int, y: int, z: int) -> None:
        """Make (x, y, z) the program that runs."""
        self.grid_idx = (x, y, z)
        self.memory.program = (x, y, z)

    def create_get_program_id(self, axis: int) -> Handle:
        """Program id as int32."""
        return Handle(np.array([self.grid_idx[axis]], dtype=np.int32), tl.int32)

    def create_get_num_programs(self, axis: int) -> Handle:
        """Grid size as int32."""
        return Handle(np.array([self.grid_dim[axis]], dtype=np.int32), tl.int32)

    # -- conversions

    def cast_impl(self, src: Any, dst_type: Any) -> Handle:
        """Any numeric conversion."""
        source, target = src.dtype.scalar, dst_type.scalar
        if source.is_ptr() or target.is_ptr() or source.name == target.name:
            return Handle(src.data.astype(numpy_dtype(target)), target)
        return Handle(converter(source.name, target.name)(src.data), target)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Handle:
        """Conversion between floats, with a rounding mode."""
        rtz = rounding_mode == ir.ROUNDING_MODE.RTZ
        return Handle(converter(src.dtype.scalar.name, dst_type.scalar.name, rtz)(src.data), dst_type.scalar)

    def create_bitcast(self, src: Any, dst_type: Any) -> Handle:
        """The same bits as another type."""
        data = np.ascontiguousarray(src.data).reshape(src.data.shape)
        return Handle(data.view(numpy_dtype(dst_type.scalar)), dst_type.scalar)

    create_int_to_ptr = create_bitcast
    create_ptr_to_int = create_bitcast

    # -- arithmetic that reaches the builder directly

    def create_minnumf(self, lhs: Any, rhs: Any) -> Handle:
        """Smaller value; NaN dropped."""
        return self._float_op(np.fmin, lhs, rhs)

    def create_maxnumf(self, lhs: Any, rhs: Any) -> Handle:
        """Larger value; NaN dropped."""
        return self._float_op(np.fmax, lhs, rhs)

    def _float_op(self, function: Any, *handles: Any) -> Handle:
        """A float function, in float32 for the types numpy lacks."""
        scalar = handles[0].dtype.scalar
        if is_packed(scalar.name):
            result = function(*(to_fp32(h.data, scalar.name) for h in handles))
            return Handle(from_fp32(result, scalar.name), scalar)
        return Handle(function(*(h.data for h in handles)).astype(handles[0].data.dtype), scalar)

    def create_fma(self, x: Any, y: Any, z: Any) -> Handle:
        """``x * y + z`` rounded once (for fp64 with the product rounded too)."""
        if x.dtype.scalar.is_floating() and not x.dtype.scalar.is_fp64():
            scalar = x.dtype.scalar
            a, b, c = (to_fp32(h.data, scalar.name).astype(np.float64) for h in (x, y, z))
            exact = a * b + c
            if scalar.is_fp32():
                return Handle(exact.astype(np.float32), scalar)
            return Handle(converter("fp64", scalar.name)(exact), scalar)
        return Handle(x.data * y.data + z.data, z.dtype.scalar)

    def create_clampf(self, arg: Any, lo: Any, hi: Any, propagate_nans: Any) -> Handle:
        """Clamp; a NaN stays only if asked to."""
        if propagate_nans == tl.PropagateNan.ALL:
            return self._float_op(lambda x, a, b: np.minimum(np.maximum(x, a), b), arg, lo, hi)
        return self._float_op(lambda x, a, b: np.fmin(np.fmax(x, a), b), arg, lo, hi)

    def create_fabs(self, arg: Any) -> Handle:
        """Clear the sign bit."""
        bits = arg.data.dtype.itemsize * 8
        unsigned = np.dtype(f"u{bits // 8}")
        mask = unsigned.type((1 << (bits - 1)) - 1)
        return Handle(
            (np.ascontiguousarray(arg.data).view(unsigned) & mask).view(arg.data.dtype), arg.dtype.scalar
        )

    def create_erf(self, arg: Any) -> Handle:
        """Error function."""
        return Handle(on_torch(torch.erf, arg.data), arg.dtype.scalar)

    # On an H200 these instructions take subnormal float32 numbers for zeros.

    def create_rsqrt(self, arg: Any) -> Handle:
        """Reciprocal square root, rounded once from float64."""
        exact = 1.0 / np.sqrt(flush_subnormals(arg.data).astype(np.float64))
        return Handle(exact.astype(arg.data.dtype), arg.dtype.scalar)

    def create_sqrt(self, arg: Any) -> Handle:
        """Square root."""
        return Handle(np.sqrt(flush_subnormals(arg.data)), arg.dtype.scalar)

    def create_floor(self, arg: Any) -> Handle:
        """Round down."""
        return Handle(np.floor(flush_subnormals(arg.data)), arg.dtype.scalar)

    def create_ceil(self, arg: Any) -> Handle:
        """Round up."""
        return Handle(np.ceil(flush_subnormals(arg.data)), arg.dtype.scalar)

    def create_umulhi(self, lhs: Any, rhs: Any) -> Handle:
        """High half of the unsigned product."""
        bits = lhs.data.dtype.itemsize * 8
        unsigned = np.dtype(f"u{bits // 8}")
        a, b = (np.ascontiguousarray(h.data).view(unsigned).astype(np.uint64) for h in (lhs, rhs))
        if bits < 64:
            high = (a * b) >> np.uint64(bits)
        else:
            low, s = np.uint64(0xFFFFFFFF), np.uint64(32)
            a1, a0, b1, b0 = a >> s, a & low, b >> s, b & low
            middle = a1 * b0 + ((a0 * b0) >> s)
            high = a1 * b1 + (middle >> s) + ((a0 * b1 + (middle & low)) >> s)
        return Handle(high.astype(unsigned).view(lhs.data.dtype), lhs.dtype.scalar)

    def create_select(self, cond: Any, lhs: Any, rhs: Any) -> Handle:
        """Elementwise choice."""
        return Handle(np.where(cond.data, lhs.data, rhs.data), lhs.dtype.scalar)

    # -- matrix products

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: int) -> Handle:
        """``a @ b + d`` with operands exact in the accumulator's type.

        A half-precision accumulator is rounded after every 16 products, as the matrix
        instructions do. For TF32 they leave the last 13 bits of float32 operands out.
        """
        name = a.dtype.scalar.name
        precision = str(input_precision).rpartition(".")[2].lower()
        self.dots[(name, precision)] += 1
        result = d.dtype.scalar
        if result.is_int():
            # Products of 8-bit integers are far from the 53 bits that float64 holds exactly.
            exact = matmul(a.data.astype(np.float64), b.data.astype(np.float64))
            return Handle((exact + d.data).astype(np.int64).astype(np.int32), result)
        if name == "fp64":
            return Handle(matmul(a.data, b.data) + d.data, result)
        x, y = to_fp32(a.data, name), to_fp32(b.data, name)
        if name == "fp32" and precision == "tf32" and self.tf32:
            x, y = truncated_to_tf32(x), truncated_to_tf32(y)
        if not result.is_fp16():
            wide = matmul(x, y)
            return Handle((wide + d.data).astype(d.data.dtype), result)
        total = np.array(np.broadcast_to(d.data, (*x.shape[:-1], y.shape[-1])))
        for k in range(0, x.shape[-1], _FP16_STEP):
            part = matmul(x[..., k : k + _FP16_STEP], y[..., k : k + _FP16_STEP, :])
            total = (total.astype(np.float32) + part).astype(np.float16)
        return Handle(total, result)

    def create_dotscaled(
        self,
        lhs: Any,
        lhs_scale: Any,
        lhs_format: Any,
        rhs: Any,
        rhs_scale: Any,
        rhs_format: Any,
        fast_math: bool,
        lhs_k_pack: bool,
        rhs_k_pack: bool,
        acc: Any,
    ) -> Handle:
        """Block-scaled product: each 32 (or 16) values along K share a power-of-two (or fp8) scale."""
        a = scaled(lhs, lhs_scale, lhs_format, lhs_k_pack, k_axis=-1)
        b = scaled(rhs, rhs_scale, rhs_format, rhs_k_pack, k_axis=-2)
        self.dots[("scaled", "ieee")] += 1
        return Handle((matmul(a, b) + acc.data).astype(acc.data.dtype), acc.dtype.scalar)

    # -- memory

    def create_masked_load(
        self, ptrs: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: bool
    ) -> Handle:
        """Load the lanes of the mask."""
        element = ptrs.get_element_ty()
        lanes = mask.data if isinstance(mask, Handle) else mask
        pointers = np.broadcast_to(ptrs.data, lanes.shape)
        fill = None if other is None else np.broadcast_to(other.data, lanes.shape)
        return Handle(self.memory.load(pointers, lanes, fill, numpy_dtype(element)), element)

    def create_masked_store(
        self, ptrs: Any, value: Any, mask: Any, cache_modifier: Any, eviction_policy: Any
    ) -> None:
        """Store the lanes of the mask."""
        lanes = mask.data if isinstance(mask, Handle) else mask
        self.memory.store(
            np.broadcast_to(ptrs.data, lanes.shape), np.broadcast_to(value.data, lanes.shape), lanes
        )

    def create_tensor_pointer_load(
        self, ptr: Any, boundary_check: Any, padding_option: Any, cache: Any, eviction: Any, is_volatile: bool
    ) -> Handle:
        """Load the block that a block pointer points to."""
        pointers, lanes = ptr.materialize_pointers(boundary_check)
        return self._padded_load(pointers, lanes, padding_option)

    def create_make_tensor_descriptor(
        self, base: Any, shape: Any, strides: Any, tensor_shape: Any, is_signed: bool, padding: Any = None
    ) -> Any:
        """A tensor descriptor.

        Raises:
            RuntimeError: where the hardware keeps descriptors in memory and the candidate set no
                allocator for it, as Triton does.
        """
        if self.descriptors_in_memory and isinstance(_allocation._allocator.get(), _allocation.NullAllocator):
            raise RuntimeError(
                "Kernel requires a runtime memory allocation, but no allocator was set. "
                "Use triton.set_allocator to specify an allocator."
            )
        if padding is None:
            padding = ir.PADDING_OPTION.PAD_ZERO
        descriptor = interpreter.TensorDescHandle(base, shape, strides, tensor_shape, padding)
        descriptor.validate()
        return descriptor

    def create_descriptor_load(
        self, desc: Any, indices: Any, cache_modifier: Any, eviction_policy: Any
    ) -> Handle:
        """Load the block at the offsets given."""
        pointers, lanes = desc.materialize_pointers(indices)
        return self._padded_load(pointers, lanes, desc.padding)

    def _padded_load(self, pointers: Any, lanes: Array, padding: Any) -> Handle:
        element = pointers.get_element_ty()
        dtype = numpy_dtype(element)
        fill = None
        if padding == ir.PADDING_OPTION.PAD_NAN:
            fill = np.broadcast_to(from_fp32(np.array([np.nan], dtype=np.float32), element.name), lanes.shape)
        elif padding == ir.PADDING_OPTION.PAD_ZERO:
            fill = np.zeros(lanes.shape, dtype=dtype)
        return Handle(self.memory.load(pointers.data, lanes, fill, dtype), element)

    def create_descriptor_gather(self, desc: Any, x_offsets: Any, y_offset: Any, type: Any) -> Handle:
        """Load the rows named."""
        rows = [
            self.create_descriptor_load(desc, [Handle(x.reshape(1), tl.int32), y_offset], None, None).data
            for x in x_offsets.data
        ]
        return Handle(np.concatenate(rows).reshape(len(rows), -1), desc.base.dtype.element_ty)

    def create_descriptor_scatter(self, desc: Any, value: Any, x_offsets: Any, y_offset: Any) -> None:
        """Store the rows named."""
        for row, x in zip(value.data, x_offsets.data, strict=True):
            indices = [Handle(x.reshape(1), tl.int32), y_offset]
            self.create_descriptor_store(desc, Handle(row[None], value.dtype), indices)

    def create_descriptor_reduce(self, kind: Any, desc: Any, value: Any, indices: Any) -> None:
        """Combine a block into memory atomically."""
        pointers, lanes = desc.materialize_pointers(indices)
        name = str(kind).rpartition(".")[2]
        element = value.dtype.scalar
        ops = ir.ATOMIC_OP
        if name == "ADD":
            op = ops.FADD if element.is_floating() else ops.ADD
        elif name in ("MIN", "MAX") and element.is_int_unsigned():
            op = getattr(ops, f"U{name}")
        else:
            op = getattr(ops, name)
        mask = Handle(lanes, tl.int1)
        self.create_atomic_rmw(op, pointers, value, mask, ir.MEM_SEMANTIC.RELAXED, None)

    # -- atomics

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Handle:
        """Compare and swap; a lane outside every buffer swaps nothing."""
        shape = ptr.data.shape
        expected, desired = np.broadcast_to(cmp.data, shape), np.broadcast_to(val.data, shape)
        everywhere = np.ones(shape, dtype=np.bool_)
        legal = self.memory.legal_lanes(ptr.data, everywhere, desired.dtype.itemsize)
        if legal.all():
            native = interpreter._interpreter.atomic_cas(
                ptr.data, expected, desired, self.ir_sem_to_interpreter_sem[sem]
            )
            return Handle(native, cmp.dtype.scalar)
        old = np.zeros(shape, dtype=desired.dtype)
        for lane in zip(*np.nonzero(legal), strict=True):
            place = view_at(int(ptr.data[lane]), desired.dtype)
            old[lane] = place[0]
            if place[0] == expected[lane]:
                place[0] = desired[lane]
        return Handle(old, cmp.dtype.scalar)

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Handle:
        """Read, combine and write, lane by lane; returns what was read."""
        shape = ptr.data.shape
        values = np.ascontiguousarray(np.broadcast_to(val.data, shape))
        lanes = np.ascontiguousarray(np.broadcast_to(mask.data, shape))
        lanes = self.memory.legal_lanes(ptr.data, lanes, values.dtype.itemsize)
        scalar = val.dtype.scalar
        if scalar.is_bf16():
            return Handle(self._bf16_atomic(rmwOp, ptr.data, values, lanes), scalar)
        native = interpreter._interpreter.atomic_rmw(
            self.ir_rmw_op_to_interpreter_rmw_op[rmwOp],
            ptr.data,
            values,
            lanes,
            self.ir_sem_to_interpreter_sem[sem],
        )
        return Handle(native, scalar)

    def _bf16_atomic(self, op: Any, pointers: Array, values: Array, lanes: Array) -> Array:
        old = np.zeros(pointers.shape, dtype=np.uint16)
        for lane in zip(*np.nonzero(lanes), strict=True):
            place = view_at(int(pointers[lane]), np.dtype(np.uint16))
            old[lane] = place[0]
            if op == ir.ATOMIC_OP.XCHG:
                place[0] = values[lane]
                continue
            one, two = to_fp32(place, "bf16"), to_fp32(values[lane].reshape(1), "bf16")
            if op == ir.ATOMIC_OP.FADD:
                combined = one + two
            else:
                combined = np.fmax(one, two) if op == ir.ATOMIC_OP.MAX else np.fmin(one, two)
            place[:] = from_fp32(combined, "bf16")
        return old

    # -- the rest

    def create_histogram(self, data: Any, bins: int, mask: Any) -> Handle:
        """Counts per bin as int32; values outside the bins are not counted."""
        values = data.data if mask is None else data.data[np.broadcast_to(mask.data, data.data.shape)]
        inside = values[(values >= 0) & (values < bins)].astype(np.int64)
        return Handle(np.bincount(inside, minlength=bins).astype(np.int32), tl.int32)

    def create_extern_elementwise(
        self, libName: str, libPath: str, symbol: str, argList: Any, retType: Any, isPure: bool
    ) -> Handle:
        """A function of the device library.

        Raises:
            NeedsGpu: for a function of another library.
        """
        scalar = retType.scalar
        result = libdevice.call(symbol, [h.data for h in argList], numpy_dtype(scalar))
        return Handle(result, scalar)

    def create_inline_asm(
        self, inlineAsm: str, constraints: str, values: Any, type: Any, isPure: bool, pack: int
    ) -> Any:
        """Nothing for a hint between dependent launches; otherwise not emulated."""
        if "griddepcontrol" in inlineAsm:
            return _Results([Handle(np.zeros(1, dtype=np.int32), tl.int32)])
        first = inlineAsm.strip().splitlines()[0].strip() if inlineAsm.strip() else ""
        raise NeedsGpu("tl.inline_asm_elementwise", f"inline assembly `{first}`")

    def create_assume(self, condition: Any) -> None:
        """A promise to the compiler; nothing is checked on a GPU either."""

    def create_assert(self, condition: Any, message: str) -> None:
        """Device assertions, which Triton compiles in only in debug mode."""

    def get_all_ones_value(self, type: Any) -> Handle:
        """All bits set, as a scalar."""
        dtype = numpy_dtype(type.scalar)
        ones = np.ones(1, np.bool_) if dtype == np.bool_ else np.invert(np.zeros(1, dtype))
        return Handle(ones, type.scalar)

    def create_barrier(self) -> None:
        """A program runs as one thread here."""


class _Results:
    """Results of an operation with several values."""

    def __init__(self, handles: list[Handle]) -> None:
        self._handles = handles

    def get_result(self, index: int) -> Handle:
        """One value."""
        return self._handles[index]
