"""Legal orders of summation and multiplication, all in the dtype of their arguments (float32 here).

Sums take (..., n) and return (...). Products take (..., m, k) and (..., k, n) and return (..., m, n).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from assay.oracle.arithmetic import round_to

Sum = Callable[[torch.Tensor], torch.Tensor]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def native(x: torch.Tensor) -> torch.Tensor:
    """As torch sums."""
    return x.sum(-1)


def sequential(x: torch.Tensor) -> torch.Tensor:
    """One accumulator, first to last."""
    terms = x.movedim(-1, 0).contiguous()
    total = terms[0].clone()
    for term in terms[1:]:
        total += term
    return total


def reverse(x: torch.Tensor) -> torch.Tensor:
    """One accumulator, last to first."""
    return sequential(x.flip(-1))


def _padded(x: torch.Tensor, multiple: int) -> torch.Tensor:
    short = -x.shape[-1] % multiple
    return torch.nn.functional.pad(x, (0, short)) if short else x


def lanes(count: int) -> Sum:
    """Interleaved accumulators, as vector registers hold them, added at the end."""

    def total(x: torch.Tensor) -> torch.Tensor:
        parts = _padded(x, count)
        return sequential(sequential(parts.reshape(*x.shape[:-1], -1, count).transpose(-1, -2)))

    return total


def blocked(length: int) -> Sum:
    """Blocks summed one by one, then their totals in turn, as a loop over tiles does."""

    def total(x: torch.Tensor) -> torch.Tensor:
        parts = _padded(x, length)
        return sequential(sequential(parts.reshape(*x.shape[:-1], -1, length)))

    return total


def pairwise(x: torch.Tensor) -> torch.Tensor:
    """A binary tree, as a warp shuffle or `tl.sum` does."""
    while x.shape[-1] > 1:
        x = _padded(x, 2)
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]


def kahan(x: torch.Tensor) -> torch.Tensor:
    """Compensated summation."""
    terms = x.movedim(-1, 0).contiguous()
    total, lost = torch.zeros_like(terms[0]), torch.zeros_like(terms[0])
    for term in terms:
        corrected = term - lost
        following = total + corrected
        lost = (following - total) - corrected
        total = following
    return total


def shuffled(x: torch.Tensor) -> torch.Tensor:
    """One accumulator in an arbitrary order, as atomic additions arrive."""
    order = torch.randperm(x.shape[-1], generator=torch.Generator().manual_seed(5)).to(x.device)
    return sequential(x[..., order])


SUMS: dict[str, Sum] = {
    "sequential": sequential,
    "reverse": reverse,
    "lanes of 8": lanes(8),
    "lanes of 64": lanes(64),
    "blocks of 128": blocked(128),
    "pairwise": pairwise,
    "kahan": kahan,
    "shuffled": shuffled,
}
"""Orders of summation by name."""

FEW_SUMS: dict[str, Sum] = {name: SUMS[name] for name in ("sequential", "lanes of 8", "pairwise")}
"""Three of them, for operators in which the sum is one step among others."""


def scan(x: torch.Tensor) -> torch.Tensor:
    """Running sums, one accumulator."""
    terms = x.movedim(-1, 0).contiguous()
    out = torch.empty_like(terms)
    out[0] = terms[0]
    for i in range(1, terms.shape[0]):
        out[i] = out[i - 1] + terms[i]
    return out.movedim(0, -1)


def scan_log_steps(x: torch.Tensor) -> torch.Tensor:
    """Running sums by doubling distances (Hillis and Steele), as a block-wide scan does."""
    n, step = x.shape[-1], 1
    while step < n:
        x = torch.cat([x[..., :step], x[..., step:] + x[..., :-step]], -1)
        step *= 2
    return x


def scan_blocks(x: torch.Tensor) -> torch.Tensor:
    """Running sums within blocks of 64, then the totals of the blocks before."""
    n = x.shape[-1]
    inner = scan(_padded(x, 64).reshape(*x.shape[:-1], -1, 64))
    before = scan(inner[..., -1])
    before = torch.cat([torch.zeros_like(before[..., :1]), before[..., :-1]], -1)
    return (inner + before.unsqueeze(-1)).reshape(*x.shape[:-1], -1)[..., :n]


def product_blocks(length: int, backwards: bool = False) -> Product:
    """Blocks of the inner dimension, each added to the accumulator."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=a.dtype, device=a.device)
        starts = range(0, a.shape[-1], length)
        for lo in reversed(starts) if backwards else starts:
            total = total + a[..., lo : lo + length] @ b[..., lo : lo + length, :]
        return total

    return product


def split_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Four parts of the inner dimension, computed apart and added as a tree."""
    length = -(-a.shape[-1] // 4)
    parts = [a[..., i : i + length] @ b[..., i : i + length, :] for i in range(0, a.shape[-1], length)]
    return pairwise(torch.stack(parts, -1))


def rank_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One term at a time, product and sum each rounded."""
    total = torch.zeros((), dtype=a.dtype, device=a.device)
    for i in range(a.shape[-1]):
        total = total + a[..., i : i + 1] * b[..., i : i + 1, :]
    return total


def fused(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One term at a time by fused multiply-add: the product of two float32 is exact in float64."""
    wide_a, wide_b = a.double(), b.double()
    total = torch.zeros((), dtype=torch.float32, device=a.device)
    for i in range(a.shape[-1]):
        total = (total.double() + wide_a[..., i : i + 1] * wide_b[..., i : i + 1, :]).float()
    return total


def truncated(x: torch.Tensor) -> torch.Tensor:
    """float64 to float32, rounded toward zero."""
    nearest = x.float()
    past = nearest.double().abs() > x.abs()
    return torch.where(past, torch.nextafter(nearest, torch.zeros_like(nearest)), nearest)


def tensor_core(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sixteen terms and the accumulator added without rounding, the result rounded toward zero.

    How the matrix units of recent GPUs accumulate half-precision products in float32: Fasi, Higham, Mikaitis
    and Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021.
    """
    wide_a, wide_b = a.double(), b.double()
    total = torch.zeros((), dtype=torch.float64, device=a.device)
    for lo in range(0, a.shape[-1], 16):
        total = truncated(total + wide_a[..., lo : lo + 16] @ wide_b[..., lo : lo + 16, :]).double()
    return total.float()


def three_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Three TF32 products of a split into leading and trailing bits, which together keep float32 accuracy."""

    def parts(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        high = round_to(t.double(), "tf32").float()
        return high, round_to((t - high).double(), "tf32").float()

    (a_high, a_low), (b_high, b_low) = parts(a), parts(b)
    return (a_low @ b_high + a_high @ b_low) + a_high @ b_high


PRODUCTS: dict[str, Product] = {
    "blocks of 32": product_blocks(32),
    "blocks backwards": product_blocks(64, backwards=True),
    "split-K": split_k,
    "one term at a time": rank_one,
    "fused multiply-add": fused,
    "tensor core": tensor_core,
    "three TF32 products": three_tf32,
}
"""Orders of products by name."""
