"""Huge sizes, from small truths: a batch repeated until it passes a limit of the hardware or of 32-bit offsets.

Where the rows of a batch are independent, repeating the rows of a small batch repeats the rows of the result.
So the truth of the small batch tells what is right at any number of rows, and neither the reference nor the
judge ever holds the large tensors: the worker repeats the inputs on its device and sends back a few blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from assay.task.facts import Study, TaskSize

OFFSET_LIMIT = 1 << 31
"""Elements above which a 32-bit signed offset wraps."""
GRID_LIMIT = 65_535
"""Programs that the y and z axes of a CUDA grid take."""
BASE_ELEMENTS = 1 << 18
BYTES_OF_DEVICE = 0.45
"""Share of the device's memory that inputs and outputs may take together."""
WIDEST = 8


@dataclass(frozen=True)
class Huge:
    """A batch to repeat.

    Attributes:
        name: what limit it passes.
        sizes: the task's integers for the small batch.
        rows: rows of the small batch.
        copies: how often it is repeated.
        leaves: tensor inputs whose first dimension is the batch.
    """

    name: str
    sizes: dict[str, int]
    rows: int
    copies: int
    leaves: tuple[int, ...]

    @property
    def condition(self) -> str:
        """As a probe's condition: `tile:COPIES/ROWS/LEAF,LEAF`."""
        return f"tile:{self.copies}/{self.rows}/{','.join(map(str, self.leaves))}"


def plan(study: Study, base: dict[str, int], device_bytes: int) -> list[Huge]:
    """A control of two copies, a batch past the grid limit, and one past 2^31 elements; empty where none fits.

    Args:
        study: the task's study.
        base: sizes that values are probed at.
        device_bytes: memory of the device.
    """
    axis = _batch(study)
    if axis is None:
        return []
    leaves = tuple(i for i, leaf in enumerate(study.tensor_inputs())
                   if f"input {i} dim 0" in axis.moves or f"input {'.'.join(map(str, leaf.path))} dim 0" in axis.moves)
    one = {**base, axis.name: 1}
    inputs, parameters, outputs = study.elements(one)
    zero_in, zero_parameters, zero_out = study.elements({**base, axis.name: 0})
    per_row = max(1, inputs - zero_in), max(1, outputs - zero_out)
    if parameters != zero_parameters or not leaves:
        return []
    rows = max(1, min(base.get(axis.name, axis.native), BASE_ELEMENTS // max(per_row)))
    rows += -rows % max(1, axis.multiple_of)
    sizes = {**base, axis.name: rows}
    dtypes = [*(leaf.dtype for leaf in study.tensor_inputs()), *(leaf.dtype for leaf in study.outputs)]
    width = max((_width(name) for name in dtypes if name), default=4)
    cost = (2 * per_row[0] + 2 * per_row[1]) * rows * width
    found = [Huge("control", sizes, rows, 2, leaves)]
    past_grid = math.ceil((GRID_LIMIT + 1 + rows) / rows)
    past_offset = math.ceil((OFFSET_LIMIT + rows * max(per_row)) / (rows * max(per_row)))
    found += [Huge(name, sizes, rows, copies, leaves)
              for name, copies in (("past-grid-limit", past_grid), ("past-2^31-elements", past_offset))
              if copies > 2 and copies * cost <= BYTES_OF_DEVICE * device_bytes]
    return found if len(found) > 1 else []


def _width(dtype: str) -> int:
    digits = "".join(c for c in dtype if c.isdigit())
    return {"bool": 1}.get(dtype, max(1, int(digits) // 8) if digits else WIDEST)


def _batch(study: Study) -> TaskSize | None:
    """The integer that is the first dimension of inputs and of every output, and moves nothing else."""
    outputs = [i for i, leaf in enumerate(study.outputs) if leaf.kind == "tensor"]
    for size in study.integers:
        if not size.varies or size.kind != "size" or size.tied:
            continue
        moved = set(size.moves)
        if all(m.startswith(("input ", "output ")) and m.endswith(" dim 0") for m in moved) and moved:
            moved_outputs = sum(1 for m in moved if m.startswith("output "))
            if moved_outputs == len(outputs) and any(m.startswith("input ") for m in moved):
                return size
    return None
