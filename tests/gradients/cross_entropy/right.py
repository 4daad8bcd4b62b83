import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def loss_kernel(x, labels, losses, slope, rows, N, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * N + col, mask=col < N, other=-float("inf")).to(tl.float32)
    label = tl.load(labels + row)
    top = tl.max(value, axis=0)
    powers = tl.exp(value - top)
    total = tl.sum(powers, axis=0)
    chosen = tl.sum(tl.where(col == label, value, 0.0), axis=0)
    tl.store(losses + row, tl.log(total) + top - chosen)
    hit = tl.where(col == label, 1.0, 0.0)
    tl.store(slope + row * N + col, (powers / total - hit) / rows, mask=col < N)


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        logits = logits.contiguous()
        rows, classes = logits.shape
        losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
        slope = torch.empty(rows, classes, dtype=torch.float32, device=logits.device)
        loss_kernel[(rows,)](logits, labels, losses, slope, rows, classes, BLOCK=triton.next_power_of_2(classes))
        ctx.dtype = logits.dtype
        ctx.save_for_backward(slope)
        return losses.mean().to(logits.dtype)

    @staticmethod
    def backward(ctx, g):
        (slope,) = ctx.saved_tensors
        dx = (slope * g.float()).to(ctx.dtype)
        return dx, None


class ModelNew(nn.Module):
    def forward(self, logits, labels):
        return CrossEntropy.apply(logits, labels)
