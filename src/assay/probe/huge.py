"""Huge sizes, from small truths: a batch repeated until it passes a limit of the hardware or of 32-bit offsets.

Where the rows of a batch are independent, repeating the rows of a small batch repeats the rows of the result.
So the truth of the small batch tells what is right at any number of rows, and neither the reference nor the
judge ever holds the large tensors: the worker repeats the inputs on its device and sends back a few blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.task.facts import Study, TaskSize

OFFSET_LIMIT = 1 << 31
"""Elements above which a 32-bit signed offset wraps."""
GRID_LIMIT = 65_535
"""Programs that the y and z axes of a CUDA grid take."""
BASE_ELEMENTS = 1 << 18
ROW_ELEMENTS = 1 << 20
"""Elements of the longest row that is evaluated as it is at the native sizes."""
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
    small = _small(study, base)
    if small is None:
        return []
    past_grid = math.ceil((GRID_LIMIT + 1 + small.rows) / small.rows)
    past_offset = math.ceil((OFFSET_LIMIT + small.rows * small.per_row) / (small.rows * small.per_row))
    wanted = (("past-grid-limit", past_grid), ("past-2^31-elements", past_offset))
    return small.batches(wanted, device_bytes)


def at_native(study: Study, base: dict[str, int], device_bytes: int) -> list[Huge]:
    """A control, and a batch of the native length, for a task that is too large to be evaluated at its native sizes.

    Empty where values are probed at the native length anyway, and where the native batch does not fit.

    Args:
        study: the task's study.
        base: sizes that values are probed at.
        device_bytes: memory of the device.
    """
    axis = _batch(study)
    if axis is None or base.get(axis.name, axis.native) >= axis.native:
        return []
    # the other sizes as the task has them, where one row of them can be evaluated
    for others in ({name: value for name, value in study.native().items() if name in base}, base):
        small = _small(study, {**others, axis.name: base[axis.name]})
        if small is not None and small.per_row <= ROW_ELEMENTS:
            return small.batches((("native-batch", math.ceil(axis.native / small.rows)),), device_bytes)
    return []


@dataclass(frozen=True)
class _Small:
    """A batch that can be evaluated: the rest of its meaning as in Huge."""

    sizes: dict[str, int]
    rows: int
    leaves: tuple[int, ...]
    per_row: int
    cost: int

    def batches(self, wanted: Sequence[tuple[str, int]], device_bytes: int) -> list[Huge]:
        """A control and those of the wanted numbers of copies that fit; empty where none does."""
        fitting = [(name, copies) for name, copies in wanted
                   if copies > 2 and copies * self.cost <= BYTES_OF_DEVICE * device_bytes]
        return [Huge(name, self.sizes, self.rows, copies, self.leaves)
                for name, copies in [("control", 2), *fitting]] if fitting else []


def _small(study: Study, base: dict[str, int]) -> _Small | None:
    """The batch to repeat; None where the rows are not independent of each other as far as the study can tell."""
    axis = _batch(study)
    if axis is None:
        return None
    leaves = tuple(i for i, leaf in enumerate(study.tensor_inputs())
                   if f"input {i} dim 0" in axis.moves or f"input {'.'.join(map(str, leaf.path))} dim 0" in axis.moves)
    inputs, parameters, outputs = study.elements({**base, axis.name: 1})
    zero_in, zero_parameters, zero_out = study.elements({**base, axis.name: 0})
    per_row = max(1, inputs - zero_in), max(1, outputs - zero_out)
    if parameters != zero_parameters or not leaves:
        return None
    rows = max(1, min(base.get(axis.name, axis.native), BASE_ELEMENTS // max(per_row)))
    rows += -rows % max(1, axis.multiple_of)
    dtypes = [*(leaf.dtype for leaf in study.tensor_inputs()), *(leaf.dtype for leaf in study.outputs)]
    width = max((_width(name) for name in dtypes if name), default=4)
    cost = (2 * per_row[0] + 2 * per_row[1]) * rows * width
    return _Small({**base, axis.name: rows}, rows, leaves, max(per_row), cost)


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
