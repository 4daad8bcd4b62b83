import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_loss_kernel(
    logits_ptr,
    targets_ptr,
    losses_ptr,
    n_classes,
    stride_row,
    stride_class,
    stride_target,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    logits_row = logits_ptr + row * stride_row
    x = tl.load(logits_row + cols * stride_class, mask=cols < n_classes, other=float("-inf")).to(tl.float32)
    row_max = tl.max(x, axis=0)
    log_sum = tl.log(tl.sum(tl.exp(x - row_max), axis=0))
    target = tl.load(targets_ptr + row * stride_target)
    chosen = tl.load(logits_row + target * stride_class).to(tl.float32)
    tl.store(losses_ptr + row, log_sum - (chosen - row_max))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        n_samples, n_classes = logits.shape
        losses = torch.empty((n_samples,), device=logits.device, dtype=torch.float32)
        row_loss_kernel[(n_samples,)](
            logits, targets, losses, n_classes,
            logits.stride(0), logits.stride(1), targets.stride(0), BLOCK_SIZE=1024,
        )
        return losses.mean().to(logits.dtype)
