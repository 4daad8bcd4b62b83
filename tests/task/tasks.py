"""Tasks in the usual style, for the tests of the study."""

from __future__ import annotations

from assay.task import Task, parse_task


def make(head: str, init: str, forward: str, inputs: str, args: str = "[]", *, prepare: str = "") -> Task:
    """A task from its parts.

    Args:
        head: module-level lines.
        init: parameters of the constructor, then its lines, as ``a, b: self.x = a; self.y = b``.
        forward: parameters of forward and its return value, as ``x: torch.relu(x)``.
        inputs: what ``get_inputs`` returns.
        args: what ``get_init_inputs`` returns.
        prepare: lines of forward before it returns.
    """
    parameters, _, body = init.partition(":")
    taken, _, result = forward.partition(":")
    lines = [
        "import torch",
        "import torch.nn as nn",
        "import torch.nn.functional as F",
        head,
        "class Model(nn.Module):",
        f"    def __init__(self{', ' + parameters if parameters else ''}):",
        "        super().__init__()",
        *(f"        {line.strip()}" for line in body.split(";") if line.strip()),
        f"    def forward(self, {taken.strip()}):",
        *(f"        {line.strip()}" for line in prepare.split(";") if line.strip()),
        f"        return {result.strip()}",
        "def get_inputs():",
        f"    return {inputs}",
        "def get_init_inputs():",
        f"    return {args}",
    ]
    return parse_task("\n".join(lines) + "\n", path="reference.py")
