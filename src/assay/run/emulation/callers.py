"""Who is asking: candidate code sees the emulated device, library code sees the real one.

A tensor under emulation lies in host memory. Candidate code must be told that it lies on
the GPU; torch's own Python code, which allocates next to the tensor it was given and
chooses code paths by device, must be told the truth. The module of the calling frame
tells the two apart.
"""

from __future__ import annotations

from types import FrameType

_LIBRARIES = frozenset({"torch", "triton", "numpy", "assay", "functools", "contextlib", "copy"})


def from_library(frame: FrameType) -> bool:
    """Whether the code running in `frame` belongs to a library rather than to a candidate."""
    name = frame.f_globals.get("__name__", "")
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES
