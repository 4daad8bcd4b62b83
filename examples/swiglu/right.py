import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_SIZE": 2048}, num_warps=8),
        triton.Config({"BLOCK_SIZE": 1024}, num_warps=4),
        triton.Config({"BLOCK_SIZE": 512}, num_warps=4),
    ],
    key=["n_elements"],
)
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_elements, ACC: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0).to(ACC)
    up = tl.load(up_ptr + offsets, mask=mask, other=0.0).to(ACC)
    out = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        n_elements = out.numel()
        if n_elements == 0:
            return out
        acc = tl.float64 if gate.dtype == torch.float64 else tl.float32
        grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
        swiglu_kernel[grid](gate, up, out, n_elements, ACC=acc)
        return out
