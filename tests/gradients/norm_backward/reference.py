import torch
import torch.nn as nn

ROWS = 8
COLS = 45


class Model(nn.Module):
    def forward(self, grad_output, x, weight):
        with torch.enable_grad():
            x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
            y = torch.nn.functional.layer_norm(x, (x.shape[-1],), weight)
        dx, dw = torch.autograd.grad(y, (x, weight), grad_output)
        return dx, dw


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS), torch.rand(COLS) + 0.5]


def get_init_inputs():
    return []
