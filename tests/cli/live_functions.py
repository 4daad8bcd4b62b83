"""Functions that travel to other processes as source: a reference, kernels, and a maker of inputs."""

import torch

assert __name__ == "live_functions", "this file must not be executed as a whole elsewhere"

SCALE = 2.0
FORBIDDEN = torch.zeros(3)


def helper(x):
    return x * SCALE


def reference(x, y):
    return helper(x) + y


def right(x, y):
    return x * SCALE + y


def wrong_beyond_eight_columns(x, y):
    out = x * SCALE + y
    out[:, 8:] = 0
    return out


def make_inputs(rows=4, cols=8, scale=0.5):
    return [torch.randn(rows, cols) * scale, torch.randn(rows, cols)]


def needs_a_value(rows):
    return [torch.randn(rows)]


class Affine(torch.nn.Module):
    def __init__(self, features, bias=True):
        super().__init__()
        self.linear = torch.nn.Linear(features, 3, bias=bias)

    def forward(self, x):
        return self.linear(x)


class AffineByHand(torch.nn.Module):
    def __init__(self, features, bias=True):
        super().__init__()
        self.linear = torch.nn.Linear(features, 3, bias=bias)

    def forward(self, x):
        return x @ self.linear.weight.T + self.linear.bias
