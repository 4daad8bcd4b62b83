"""The one error that emulation raises on its own account."""

from __future__ import annotations


class NeedsGpu(RuntimeError):
    """Raised where only a real GPU could answer; never for a fault of the candidate.

    Attributes:
        call: the call that cannot be emulated, as a person would write it.
    """

    def __init__(self, call: str, why: str = "") -> None:
        self.call = call
        self.why = why
        super().__init__(f"{call} needs a GPU" + (f": {why}" if why else ""))

    def __reduce__(self) -> tuple[type[NeedsGpu], tuple[str, str]]:
        return type(self), (self.call, self.why)
