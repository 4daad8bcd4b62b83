"""What a report shows of a finding beside its numbers: where it is wrong, the input, the source, the precision.

All of it is computed by the judge, while the tensors are at hand; renderers only draw it.
"""

from __future__ import annotations

from assay.probe.model import Frozen

MAP_SIDE = 64
"""Most cells along one side of an error map whose other side is as long."""
MAP_LONG = 256
"""Most cells along a side whose other side is short."""

CERTAIN = "!"
"""Cell with an element that is wrong whatever the tolerance: NaN for a number, a wrong index or integer."""
UNDECIDED = " "
"""Cell in which no element decides."""
EXACT = "."
"""Cell in which no element differs from the truth."""


class ErrorMap(Frozen):
    """Where an output is wrong: the largest error ÷ tolerance in each cell of a grid laid over it.

    The output is seen as a matrix whose last dimension runs to the right and whose other dimensions run
    downwards, the first slowest. A cell is one character. `A` to `Z` are wrong: `A` from 1 to 2 times the
    tolerance, `B` from 2 to 4 times, doubling with each letter, `Z` without an upper end. `a` to `z` are
    within it: `a` from a half to the whole tolerance, `b` from a quarter to a half, `z` without a lower end.
    `!` is wrong whatever the tolerance, `.` differs nowhere, a blank decides nothing.
    """

    output: str
    """What it shows, such as `out` or `grad input:0`."""
    shape: tuple[int, ...]
    """Shape of that tensor."""
    cell: tuple[int, int]
    """Rows and columns of the matrix that one cell covers; those at the end may cover fewer."""
    rows: tuple[str, ...]
    """The cells, one text per row of the grid."""
    call: int = 0
    """Which call of the probe returned it."""

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of the tensor seen as a matrix."""
        columns = self.shape[-1] if self.shape else 1
        rows = 1
        for size in self.shape[:-1]:
            rows *= size
        return rows, columns


class SpecialValue(Frozen):
    """One element of an input that the probe is about."""

    index: tuple[int, ...]
    """Which element."""
    value: str
    """What it holds, as text that round-trips."""


class SpecialInput(Frozen):
    """An input with values put in, or with values that are not finite."""

    input: int
    """Position among the tensor inputs."""
    shape: tuple[int, ...]
    """Its shape."""
    count: int
    """Number of such elements."""
    values: tuple[SpecialValue, ...]
    """The first of them."""


class SourceExcerpt(Frozen):
    """The line of the candidate that a finding points to, with what stands around it."""

    line: int
    """The line, from 1."""
    first: int
    """Number of the first line of the excerpt."""
    lines: tuple[str, ...]
    """The excerpt, long lines cut."""


class ModeError(Frozen):
    """One arithmetic that a candidate may have used, and whether its errors allow it."""

    mode: str
    """`declared`, or operands or an accumulator of a lower precision, such as `tf32` or `fp16_accumulate`."""
    ratio: float | None
    """Largest residual ÷ the tolerance that this arithmetic would be granted; None when not finite."""
    correlation: float | None = None
    """Correlation of the residual with the error that this arithmetic predicts, where it predicts one."""
    identifiable: bool | None = None
    """Whether the probe could have told this arithmetic from the declared one; None for `declared`."""


class PrecisionFingerprint(Frozen):
    """Which arithmetic explains the residual of one probe."""

    probe: str
    """Id of the probe."""
    mode: str | None
    """The arithmetic that explains it; None where none does."""
    recognised: bool
    """Whether the residual follows the prediction of that arithmetic element by element."""
    effective_bits: float
    """Significand bits of the arithmetic that would leave this residual."""
    modes: tuple[ModeError, ...]
    """`declared` first, then coarser ones."""
