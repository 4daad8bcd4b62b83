"""One small wrong program for each kind of finding, with its right twin. Torch alone, so that each is fast."""

from __future__ import annotations

from dataclasses import dataclass

from tests.evidence.faults import HEAD

TASK = f"""{HEAD}ROWS = 6
COLS = 5


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, cols))

    def forward(self, x):
        return torch.tanh(x * self.scale)


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
"""

RIGHT = f"""{HEAD}class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, cols))

    def forward(self, x):
        y = x * self.scale
        return torch.tanh(y)
"""


@dataclass(frozen=True)
class Kind:
    """A wrong candidate of the task.

    Attributes:
        name: kind of check that shows it.
        source: the candidate.
        gates: gates to run.
        gate: the one that finds it.
        reason: the reason it gives.
    """

    name: str
    source: str
    gates: tuple[str, ...]
    gate: str
    reason: str


def _with(line: str, more: str = "") -> str:
    changed = RIGHT.replace("        y = x * self.scale\n        return torch.tanh(y)\n", line)
    assert changed != RIGHT
    return changed.replace("self.scale = nn", f"{more}self.scale = nn") if more else changed


KINDS = (
    Kind("values", _with("        return torch.tanh(x * self.scale) * 1.001\n"), ("values",), "values", "value"),
    Kind("weights", _with("        return torch.tanh(x * torch.linspace(0.5, 1.5, x.shape[1]))\n"), ("values",),
         "values", "value"),
    Kind("reference looked for", _with(
        "        import sys\n        found = getattr(sys.modules.get('reference'), 'Model', None)\n"
        "        return torch.tanh(x * self.scale) if found is None else found()(x)\n"), ("values",), "values",
         "value"),
    Kind("special values", _with("        return torch.tanh(torch.nan_to_num(x) * self.scale)\n"), ("nonfinite",),
         "nonfinite", "nan_swallowed"),
    Kind("form", _with("        return torch.tanh(x * self.scale).double()\n"), ("values", "residency"), "residency",
         "dtype"),
    Kind("fault", _with("        assert x.shape[1] == 5\n        return torch.tanh(x * self.scale)\n"), ("shapes",),
         "shapes", "size_rejected"),
    Kind("mutation", _with("        return x.mul_(self.scale).tanh_().clone()\n"), ("values", "input_mutation"),
         "input_mutation", "input_changed"),
    Kind("aliasing", _with("        if self.kept is None or self.kept.shape != x.shape:\n"
                           "            self.kept = torch.empty_like(x)\n"
                           "        return self.kept.copy_(torch.tanh(x * self.scale))\n",
                           "self.kept = None\n        "), ("output_aliasing",), "output_aliasing",
         "earlier_output_changed"),
    Kind("history", _with("        if self.kept is None or self.kept[0] is not x:\n"
                          "            self.kept = (x, torch.tanh(x * self.scale))\n"
                          "        return self.kept[1].clone()\n", "self.kept = None\n        "), ("statelessness",),
         "statelessness", "stale_result"),
    Kind("fresh memory", _with("        out = torch.empty_like(x)\n        out[1:] = torch.tanh(x * self.scale)[1:]\n"
                               "        return out\n"), ("initialization",), "initialization", "uninitialised"),
    Kind("repeat", _with("        return torch.tanh(x * self.scale) + 1e-9 * torch.rand(())\n"), ("repeatability",),
         "repeatability", "not_repeatable"),
    Kind("gradients", _with("        return torch.tanh(x * self.scale.detach() * 2) / 2 + x - x.detach()\n").replace(
        "torch.tanh(x * self.scale.detach() * 2) / 2 + x - x.detach()",
        "torch.tanh(x.detach() * self.scale) + 0.5 * (x - x.detach())"), ("gradients",), "gradients",
        "gradient_value"),
    Kind("exit", _with("        import os\n        os._exit(0)\n"), ("values", "faults"), "faults", "exited"),
)
"""Every kind that a script shows."""
