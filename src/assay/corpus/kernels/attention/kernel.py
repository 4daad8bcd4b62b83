import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, n_queries, n_keys, width, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr
):
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, BLOCK_D)
    row_mask = (rows[:, None] < n_queries) & (dims[None, :] < width)
    row_at = (batch * n_queries + rows[:, None]) * width + dims[None, :]
    q = tl.load(q_ptr + row_at, mask=row_mask, other=0.0)
    running_max = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    running_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    for start in range(0, n_keys, BLOCK_N):
        keys = start + lanes
        key_mask = (keys[:, None] < n_keys) & (dims[None, :] < width)
        key_at = (batch * n_keys + keys[:, None]) * width + dims[None, :]
        k = tl.load(k_ptr + key_at, mask=key_mask, other=0.0)
        v = tl.load(v_ptr + key_at, mask=key_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(keys[None, :] < n_keys, scores, float("-inf"))
        new_max = tl.maximum(running_max, tl.max(scores, axis=1))
        # While only -inf has been seen, shift by zero: -inf - (-inf) would be NaN.
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        rescale = tl.exp(running_max - shift)
        weights = tl.exp(scores - shift[:, None])
        running_sum = running_sum * rescale + tl.sum(weights, axis=1)
        acc = acc * rescale[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        running_max = new_max
    out = acc / running_sum[:, None]
    tl.store(out_ptr + row_at, out.to(out_ptr.dtype.element_ty), mask=row_mask)


class ModelNew(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, n_queries, width = q.shape
        n_keys = k.shape[1]
        out = torch.empty_like(q)
        if out.numel() == 0:
            return out
        if n_keys == 0:
            return torch.zeros_like(q)
        block = max(16, triton.next_power_of_2(width))
        attention_kernel[(triton.cdiv(n_queries, 16), batch)](
            q, k, v, out, n_queries, n_keys, width, width**-0.5, BLOCK_M=16, BLOCK_N=16, BLOCK_D=block
        )
        return out
