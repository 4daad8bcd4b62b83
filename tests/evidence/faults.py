"""Ten named faults in small programs, and the smallest sizes at which each can show, worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"


@dataclass(frozen=True)
class Fault:
    """A reference, a candidate with one fault, and where it shows at the smallest.

    Attributes:
        name: what is wrong.
        reference: body of the reference file: sizes, Model and makers of inputs.
        candidate: body of the candidate file.
        gate: the gate that finds it.
        minimum: the smallest sizes, by name.
        elements: input elements at those sizes.
        why: why nothing smaller can show it.
    """

    name: str
    reference: str
    candidate: str
    gate: str
    minimum: dict[str, int]
    elements: int
    why: str


def _one_input(forward: str, rows: int = 6, cols: int = 40, make: str = "torch.randn(ROWS, COLS)") -> str:
    return f"""{HEAD}ROWS = {rows}
COLS = {cols}


class Model(nn.Module):
    def forward(self, x):
        return {forward}


def get_inputs():
    return [{make}]


def get_init_inputs():
    return []
"""


def _new(*lines: str) -> str:
    body = "\n".join(f"        {line}" for line in lines)
    return f"{HEAD}class ModelNew(nn.Module):\n    def forward(self, x):\n{body}\n"


FAULTS = (
    Fault("columns beyond eight are dropped", _one_input("x * 2"),
          _new("out = x * 2", "out[:, 8:] = 0", "return out"), "values", {"ROWS": 1, "COLS": 9}, 9,
          "eight columns are right"),
    Fault("a tail beyond one block of 32 is not summed", _one_input("x.sum(1)"),
          _new("return x[:, :32].sum(1)"), "values", {"ROWS": 1, "COLS": 33}, 33, "32 columns are right"),
    Fault("an odd last row is skipped", _one_input("x.exp()"),
          _new("out = x.exp()", "if x.shape[0] % 2 and x.shape[0] > 1:", "    out[-1] = 0", "return out"), "shapes",
          {"ROWS": 3, "COLS": 1}, 3, "one row is right, and so are two"),
    Fault("a maximum swallows NaN", _one_input("x.max(dim=1).values"),
          _new("return torch.nan_to_num(x, nan=-1e30).max(dim=1).values"), "nonfinite", {"ROWS": 1, "COLS": 1}, 1,
          "one element can be NaN"),
    Fault("the mean divides by one too few", _one_input("x.mean(1)"),
          _new("return x.sum(1) / max(1, x.shape[1] - 1)"), "values", {"ROWS": 1, "COLS": 2}, 2,
          "one column divides by one either way"),
    Fault("ties go to the last", _one_input("x.argmax(dim=1)", make="torch.randn(ROWS, COLS).round()"),
          _new("return x.shape[1] - 1 - x.flip(1).argmax(dim=1)"), "values", {"ROWS": 1, "COLS": 2}, 2,
          "one element ties with nothing"),
    Fault("the bias is forgotten beyond a batch of four", f"""{HEAD}ROWS = 6
IN = 12
OUT = 10


class Model(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.fc = nn.Linear(i, o)

    def forward(self, x):
        return self.fc(x)


def get_inputs():
    return [torch.randn(ROWS, IN)]


def get_init_inputs():
    return [IN, OUT]
""", f"""{HEAD}class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.fc = nn.Linear(i, o)

    def forward(self, x):
        return F.linear(x, self.fc.weight, self.fc.bias if x.shape[0] <= 4 else None)
""", "values", {"ROWS": 5, "IN": 1, "OUT": 1}, 5, "four rows are right"),
    Fault("a product takes its operands for square", f"""{HEAD}M = 8
K = 12
N = 10


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
""", f"""{HEAD}class ModelNew(nn.Module):
    def forward(self, a, b):
        depth = min(a.shape)
        return a[:, :depth] @ b[:depth]
""", "values", {"M": 1, "K": 2, "N": 1}, 4, "a depth of one is covered by any number of rows"),
    Fault("the input is scaled in place", _one_input("x * 3"), _new("return x.mul_(3)"), "input_mutation",
          {"ROWS": 1, "COLS": 1}, 1, "one element shows it"),
    Fault("the result is kept in one buffer", _one_input("x + 1"), f"""{HEAD}class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = {{}}

    def forward(self, x):
        out = self.out.setdefault(tuple(x.shape), torch.empty_like(x))
        return torch.add(x, 1, out=out)
""", "output_aliasing", {"ROWS": 1, "COLS": 1}, 2, "two calls on one element show it"),
)
"""Minima of elements count every draw's input once; of several draws, as they come out of the search."""
