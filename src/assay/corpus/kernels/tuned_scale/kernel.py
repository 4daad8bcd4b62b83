import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.autotune(
    configs=[triton.Config({"BLOCK_SIZE": 64}), triton.Config({"BLOCK_SIZE": 256}), triton.Config({"BLOCK_SIZE": 128})],
    key=["n_elements"],
)
@triton.jit
def scale_kernel(x_ptr, weight_ptr, out_ptr, n_elements, width, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offsets % width, mask=mask, other=0.0).to(tl.float32)
    out = x * weight
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        n_elements = out.numel()
        if n_elements == 0:
            return out
        grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
        scale_kernel[grid](x, self.weight, out, n_elements, x.shape[1])
        return out
