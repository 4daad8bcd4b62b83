import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    length,
    width,
    SCALE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ACC: tl.constexpr,
):
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(length, BLOCK_M)
    head = (pid // tiles_m).to(tl.int64)
    rows = (pid % tiles_m) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, BLOCK_D)
    base = head * length * width

    row_offsets = rows[:, None].to(tl.int64) * width + dims[None, :]
    row_mask = (rows[:, None] < length) & (dims[None, :] < width)
    q = tl.load(q_ptr + base + row_offsets, mask=row_mask, other=0.0)

    running_max = tl.full((BLOCK_M,), float("-inf"), dtype=ACC)
    running_sum = tl.zeros((BLOCK_M,), dtype=ACC)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=ACC)
    # Keys above the diagonal are visited too. Their weight is zero, but the reference multiplies
    # by it, so that a NaN or Inf among their values has to reach every row here as well.
    for start in range(0, length, BLOCK_N):
        keys = start + lanes
        key_offsets = keys[:, None].to(tl.int64) * width + dims[None, :]
        key_mask = (keys[:, None] < length) & (dims[None, :] < width)
        k = tl.load(k_ptr + base + key_offsets, mask=key_mask, other=0.0)
        v = tl.load(v_ptr + base + key_offsets, mask=key_mask, other=0.0)

        scores = tl.dot(q, tl.trans(k), input_precision="ieee", out_dtype=ACC) * SCALE
        visible = (keys[None, :] <= rows[:, None]) & (keys[None, :] < length)
        scores = tl.where(visible, scores, float("-inf"))

        new_max = tl.maximum(running_max, tl.max(scores, axis=1))
        # While only -inf has been seen, shift by zero: -inf - (-inf) would be NaN.
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        rescale = tl.exp(running_max - shift)
        p = tl.exp(scores - shift[:, None])
        running_sum = running_sum * rescale + tl.sum(p, axis=1)
        acc = acc * rescale[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee", out_dtype=ACC)
        running_max = new_max

    o = acc / running_sum[:, None]
    tl.store(o_ptr + base + row_offsets, o.to(o_ptr.dtype.element_ty), mask=row_mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert q.is_cuda and k.is_cuda and v.is_cuda, "inputs must be on a CUDA device"
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, length, width = q.shape
        o = torch.empty_like(q)
        if o.numel() == 0:
            return o
        acc = tl.float64 if q.dtype == torch.float64 else tl.float32
        grid = (batch * heads * triton.cdiv(length, 32),)
        attention_kernel[grid](
            q, k, v, o, length, width, SCALE=width**-0.5,
            BLOCK_M=32, BLOCK_N=32, BLOCK_D=max(16, triton.next_power_of_2(width)), ACC=acc,
        )
        return o
