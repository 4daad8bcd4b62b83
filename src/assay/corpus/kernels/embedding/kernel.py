import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def embedding_kernel(tokens_ptr, table_ptr, out_ptr, n_tokens, width, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    token = tl.load(tokens_ptr + rows, mask=rows < n_tokens, other=0)
    mask = (rows[:, None] < n_tokens) & (cols[None, :] < width)
    values = tl.load(table_ptr + token[:, None] * width + cols[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + rows[:, None] * width + cols[None, :], values, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocabulary, width).to(DTYPE))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens, table = tokens.contiguous(), self.table
        n_tokens, width = tokens.numel(), table.shape[1]
        out = torch.empty((*tokens.shape, width), device=table.device, dtype=table.dtype)
        if out.numel() == 0:
            return out
        embedding_kernel[(triton.cdiv(n_tokens, 8), triton.cdiv(width, 32))](
            tokens, table, out, n_tokens, width, BLOCK_M=8, BLOCK_N=32
        )
        return out
