import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(logits_ptr, labels_ptr, out_ptr, n_classes, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_classes
    logits = tl.load(logits_ptr + row * n_classes + cols, mask=mask, other=float("-inf")).to(tl.float32)
    label = tl.load(labels_ptr + row)
    largest = tl.max(logits, axis=0)
    total = tl.sum(tl.exp(logits - largest), axis=0)
    chosen = tl.load(logits_ptr + row * n_classes + label).to(tl.float32)
    loss = tl.log(total) - (chosen - largest)
    tl.store(out_ptr + row, loss.to(out_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits, labels = logits.contiguous(), labels.contiguous()
        rows, classes = logits.shape
        out = torch.empty(rows, device=logits.device, dtype=logits.dtype)
        if rows == 0:
            return out
        block = triton.next_power_of_2(classes)
        cross_entropy_kernel[(rows,)](logits, labels, out, classes, BLOCK_SIZE=block)
        return out
