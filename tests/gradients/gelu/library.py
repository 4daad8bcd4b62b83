import torch
import torch.nn as nn


@torch.library.custom_op("assay_tests::gelu", mutates_args=())
def gelu(x: torch.Tensor) -> torch.Tensor:
    return (0.5 * x.double() * (1 + torch.erf(x.double() / 2 ** 0.5))).to(x.dtype)


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def backward(ctx, g):
    x = ctx.saved_tensors[0].double()
    density = torch.exp(-x * x / 2) / (2 * torch.pi) ** 0.5
    return (g.double() * (0.5 * (1 + torch.erf(x / 2 ** 0.5)) + x * density)).to(g.dtype)


gelu.register_autograd(backward, setup_context=setup_context)


class ModelNew(nn.Module):
    def forward(self, x):
        return gelu(x)
