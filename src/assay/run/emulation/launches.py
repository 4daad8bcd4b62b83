"""What was launched: one record per kernel launch, in bounded memory."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

_MAX_LAUNCHES = 10_000


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel."""

    index: int
    """Number of launches before it since the last reset."""
    kernel: str
    """Name of the kernel function."""
    file: str
    """Source file of the kernel."""
    line: int
    """Line where its definition starts, decorators included."""
    grid: tuple[int, int, int]
    """Programs along x, y, z."""
    constexprs: dict[str, Any]
    """Compile-time arguments by name."""
    options: dict[str, Any]
    """Launch options given, such as num_warps and num_stages."""
    signature: dict[str, str]
    """Type of each other argument as Triton writes it, such as ``*fp32`` or ``i32``."""
    stream: int
    """Stream current at the launch; 0 is the default stream."""
    programs: int = 0
    """Programs that were run."""
    completed: bool = False
    """Whether all of them ended without an error."""
    error: str | None = None
    """Type and text of the error that ended the launch."""
    dots: tuple[tuple[str, str, int], ...] = ()
    """Matrix products: operand type, input precision asked for, count."""


class Recorder:
    """Launches since the last reset.

    The newest 10,000 are kept one by one; `counts` has them all by kernel name.
    """

    def __init__(self) -> None:
        self.launches: deque[Launch] = deque(maxlen=_MAX_LAUNCHES)
        self.counts: Counter[str] = Counter()
        self.total = 0

    def add(self, launch: Launch) -> None:
        """Write one launch down."""
        self.launches.append(launch)
        self.counts[launch.kernel] += 1
        self.total += 1

    def reset(self) -> None:
        """Forget them all."""
        self.launches.clear()
        self.counts.clear()
        self.total = 0
