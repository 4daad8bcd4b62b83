import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def histogram_kernel(bins_ptr, counts_ptr, length, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < length
    bins = tl.load(bins_ptr + at, mask=mask, other=0)
    tl.atomic_add(counts_ptr + bins, 1, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, bins: torch.Tensor) -> torch.Tensor:
        bins = bins.contiguous()
        length = bins.numel()
        counts = torch.zeros(self.bins, device=bins.device, dtype=torch.int64)
        if length == 0:
            return counts
        histogram_kernel[(triton.cdiv(length, 64),)](bins, counts, length, BLOCK_SIZE=64)
        return counts
