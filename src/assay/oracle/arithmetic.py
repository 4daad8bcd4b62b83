"""Declared arithmetic of a task: unit roundoffs, smallest positive numbers, and the modes a kernel may use.

The *unit roundoff* u of a format with p significant bits is 2^-p, half the machine epsilon. Nothing
in this package uses epsilon.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

UNIT: dict[str, float] = {
    "fp64": 2.0**-53,
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "e4m3": 2.0**-4,
    "e5m2": 2.0**-3,
}
"""Unit roundoff by format name."""

FORMAT: dict[torch.dtype, str] = {
    torch.float64: "fp64",
    torch.complex128: "fp64",
    torch.float32: "fp32",
    torch.complex64: "fp32",
    torch.float16: "fp16",
    torch.complex32: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e4m3fnuz: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.float8_e5m2fnuz: "e5m2",
}
"""Format name by floating or complex dtype."""

DTYPE: dict[str, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
"""A dtype that stores each format (TF32 has none: it lives in the upper bits of fp32)."""

SMALLEST: dict[str, float] = {
    "fp64": 2.0**-1022,
    "fp32": 2.0**-126,
    "tf32": 2.0**-126,
    "bf16": 2.0**-126,
    "fp16": 2.0**-24,
    "e4m3": 2.0**-9,
    "e5m2": 2.0**-16,
}
"""Absolute floor of the tolerance. Where devices may flush subnormals (fp64, fp32, bf16) this is the smallest
normal number; the narrow formats are never flushed by a conversion, and their smallest normal is large
enough to hide a fault (6e-5 in fp16), so there it is the smallest subnormal."""


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """The arithmetic that a task declares, and so the arithmetic an honest kernel may use."""

    accumulate: str = "fp32"
    """Format of every operation in the replay: fp64, fp32, tf32, fp16 or bf16."""
    operands: str | None = None
    """Format to which operands of products are rounded first; None leaves them as they are."""
    matmul: str = "ieee"
    """`ieee`, or `tf32`: operands of products are rounded to TF32."""
    storage: str | None = None
    """Format in which results of the reference's own operations may be stored before the next one reads
    them; None keeps them in the accumulation format."""
    fast_math: bool = False
    """Hardware approximations of division, roots and elementary functions are allowed."""

    def __post_init__(self) -> None:
        if self.accumulate not in ("fp64", "fp32", "tf32", "fp16", "bf16"):
            raise ValueError(f"accumulate: expected fp64, fp32, tf32, fp16 or bf16, got {self.accumulate!r}")
        if self.operands is not None and self.operands not in UNIT:
            raise ValueError(f"operands: expected None or one of {sorted(UNIT)}, got {self.operands!r}")
        if self.storage is not None and self.storage not in DTYPE:
            raise ValueError(f"storage: expected None or one of {sorted(DTYPE)}, got {self.storage!r}")
        if self.matmul not in ("ieee", "tf32"):
            raise ValueError(f"matmul: expected ieee or tf32, got {self.matmul!r}")

    @property
    def unit(self) -> float:
        """Unit roundoff of the accumulation format."""
        return UNIT[self.accumulate]

    @property
    def product_operands(self) -> str | None:
        """Coarsest format to which this arithmetic rounds operands of products, or None."""
        formats = [f for f in (self.operands, "tf32" if self.matmul == "tf32" else None) if f is not None]
        return max(formats, key=lambda f: UNIT[f]) if formats else None

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary of the fields."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Arithmetic:
        """Inverse of `to_json`."""
        return cls(**data)


def arithmetic_for(dtype: torch.dtype, *, matmul: str = "ieee", fast_math: bool = False) -> Arithmetic:
    """Default arithmetic of a task whose floating tensors are of `dtype`.

    float64 accumulates in fp64, all others in fp32. bf16 and fp16 tasks also round the operands of products
    to their own dtype, as every tensor-core kernel does, and may store in it what one operation of the
    reference hands to the next, as a chain of separate kernels does.
    """
    name = FORMAT.get(dtype, "fp32")
    return Arithmetic(
        accumulate="fp64" if name == "fp64" else "fp32",
        operands=name if name in ("fp16", "bf16") else None,
        storage=name if name in ("fp16", "bf16") else None,
        matmul=matmul,
        fast_math=fast_math,
    )


def is_real_or_complex(dtype: torch.dtype) -> bool:
    """Whether `dtype` is floating or complex, that is, whether its arithmetic rounds."""
    return dtype.is_floating_point or dtype.is_complex


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for floating, complex128 for complex dtypes; others unchanged."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def wide_dtypes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with floating dtypes replaced by the wide ones."""
    if any(isinstance(a, torch.dtype) for a in args):
        args = tuple(wide_dtype(a) if isinstance(a, torch.dtype) else a for a in args)
    if any(isinstance(a, torch.dtype) for a in kwargs.values()):
        kwargs = {k: wide_dtype(a) if isinstance(a, torch.dtype) else a for k, a in kwargs.items()}
    return args, kwargs


def round_to(x: torch.Tensor, name: str) -> torch.Tensor:
    """Round wide `x` (float64 or complex128) to the nearest number of format `name`; result is wide again.

    Ties go to even, in TF32 away from zero. `tf32 truncated` rounds toward zero instead.
    """
    if x.is_complex():
        return torch.view_as_complex(round_to(torch.view_as_real(x.resolve_conj()), name))
    if name == "tf32 truncated":
        # What tensor cores do with fp32 operands that nobody rounded: drop the low 13 bits.
        return torch.where(
            torch.isfinite(x), (x.float().view(torch.int32) & ~0x1FFF).view(torch.float32).double(), x
        )
    if name == "tf32":
        # To nearest at bit 13 of the float32 pattern, ties away from zero, as the instruction cvt.rna.tf32 does.
        bits = x.float().view(torch.int32)
        rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32).double()
        return torch.where(torch.isfinite(x), rounded, x)
    if name == "fp64":
        return x
    return x.to(DTYPE[name]).double()
