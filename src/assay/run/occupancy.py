"""How much of a multiprocessor the blocks of a kernel can keep busy at once.

Source: the CUDA C++ programming guide, technical specifications per compute capability, and the rule of NVIDIA's
occupancy calculator: registers are handed out by 256 to a warp, and a block costs 1 KiB of shared memory more.
"""

from __future__ import annotations

from assay.run.emulation.targets import Target

_UNIT = 256
_RESERVED = 1024
_SHARED_UNIT = 128
_BLOCKS = {(8, 9): 24, (12, 0): 24}
"""Resident blocks of a multiprocessor where they are not 32."""


def occupancy(target: Target, warps: int, registers: int | None, shared: int) -> float | None:
    """Resident threads over the most there can be, 0 to 1; None for other chips or where something is not known.

    Args:
        target: the GPU.
        warps: of a block.
        registers: of a thread.
        shared: bytes of a block.
    """
    if target.backend != "cuda" or not registers or warps < 1:
        return None
    threads = warps * target.warp_size
    per_block = warps * (registers * target.warp_size + -(registers * target.warp_size) % _UNIT)
    taken = shared + _RESERVED
    blocks = min(_BLOCKS.get(target.capability, 32), target.threads_per_multiprocessor // threads,
                 target.registers_per_multiprocessor // per_block,
                 target.shared_per_multiprocessor // (taken + -taken % _SHARED_UNIT))
    return blocks * threads / target.threads_per_multiprocessor
