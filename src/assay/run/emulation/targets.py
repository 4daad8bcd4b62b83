"""The GPUs that emulation can answer as, with the limits a kernel can ask about."""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024
_GIB = 1024**3


@dataclass(frozen=True)
class Target:
    """What a GPU says of itself. Sizes in bytes, clocks in kHz.

    Source: the CUDA C++ programming guide, table of technical specifications per compute
    capability, and the vendors' data sheets of the card named.
    """

    key: str
    """Name of the target, such as ``sm_90``."""
    name: str
    """Device name as the driver reports it."""
    capability: tuple[int, int]
    """Compute capability, major and minor."""
    multiprocessors: int
    """Streaming multiprocessors of the full card."""
    total_memory: int
    """Device memory."""
    shared_per_block: int
    """Static shared memory per block."""
    shared_per_block_optin: int
    """Largest dynamic shared memory per block."""
    shared_per_multiprocessor: int
    """Shared memory per multiprocessor."""
    l2_cache: int
    """L2 cache."""
    threads_per_multiprocessor: int
    """Resident threads per multiprocessor."""
    threads_per_block: int = 1024
    """Threads per block."""
    registers_per_multiprocessor: int = 65536
    """32-bit registers per multiprocessor (and per block)."""
    warp_size: int = 32
    """Threads per warp."""
    clock_khz: int = 1_980_000
    """Core clock."""
    memory_clock_khz: int = 2_619_000
    """Memory clock."""
    memory_bus_bits: int = 5120
    """Width of the memory bus."""
    tensor_memory_columns: int = 0
    """Columns of tensor memory per multiprocessor; 0 where there is none."""
    backend: str = "cuda"
    """Triton's name of the compiler: `cuda` or `hip`."""

    @property
    def arch(self) -> int:
        """Compute capability as Triton writes it, such as 90."""
        return self.capability[0] * 10 + self.capability[1]


TARGETS: dict[str, Target] = {
    t.key: t
    for t in (
        Target(
            key="sm_80",
            name="NVIDIA A100-SXM4-80GB",
            capability=(8, 0),
            multiprocessors=108,
            total_memory=80 * _GIB,
            shared_per_block=48 * _KIB,
            shared_per_block_optin=163 * _KIB,
            shared_per_multiprocessor=164 * _KIB,
            l2_cache=40 * _KIB * _KIB,
            threads_per_multiprocessor=2048,
            clock_khz=1_410_000,
            memory_clock_khz=1_593_000,
        ),
        Target(
            key="sm_89",
            name="NVIDIA L40S",
            capability=(8, 9),
            multiprocessors=142,
            total_memory=48 * _GIB,
            shared_per_block=48 * _KIB,
            shared_per_block_optin=99 * _KIB,
            shared_per_multiprocessor=100 * _KIB,
            l2_cache=96 * _KIB * _KIB,
            threads_per_multiprocessor=1536,
            clock_khz=2_520_000,
            memory_clock_khz=9_001_000,
            memory_bus_bits=384,
        ),
        Target(
            key="sm_90",
            name="NVIDIA H100 80GB HBM3",
            capability=(9, 0),
            multiprocessors=132,
            total_memory=80 * _GIB,
            shared_per_block=48 * _KIB,
            shared_per_block_optin=227 * _KIB,
            shared_per_multiprocessor=228 * _KIB,
            l2_cache=50 * _KIB * _KIB,
            threads_per_multiprocessor=2048,
        ),
        Target(
            key="sm_100",
            name="NVIDIA B200",
            capability=(10, 0),
            multiprocessors=148,
            total_memory=180 * _GIB,
            shared_per_block=48 * _KIB,
            shared_per_block_optin=227 * _KIB,
            shared_per_multiprocessor=228 * _KIB,
            l2_cache=126 * _KIB * _KIB,
            threads_per_multiprocessor=2048,
            clock_khz=1_965_000,
            memory_clock_khz=3_996_000,
            memory_bus_bits=8192,
            tensor_memory_columns=512,
        ),
        Target(
            key="sm_120",
            name="NVIDIA GeForce RTX 5090",
            capability=(12, 0),
            multiprocessors=170,
            total_memory=32 * _GIB,
            shared_per_block=48 * _KIB,
            shared_per_block_optin=99 * _KIB,
            shared_per_multiprocessor=100 * _KIB,
            l2_cache=96 * _KIB * _KIB,
            threads_per_multiprocessor=1536,
            clock_khz=2_407_000,
            memory_clock_khz=14_001_000,
            memory_bus_bits=512,
        ),
    )
}


def _amd(key: str, name: str, capability: tuple[int, int], lds: int, **given: int) -> Target:
    """A chip of AMD. `lds` is the local data share that a workgroup may have, bytes.

    Sources: the AMDGPU backend's user guide of LLVM (local data share, registers), AMD's data sheets (the card).
    """
    common = {"l2_cache": 4 * _KIB * _KIB, "threads_per_multiprocessor": 2048, "warp_size": 64,
              "registers_per_multiprocessor": 4 * 512 * 64, "clock_khz": 2_100_000, "memory_bus_bits": 8192}
    return Target(key=key, name=name, capability=capability, shared_per_block=lds, shared_per_block_optin=lds,
                  shared_per_multiprocessor=lds, backend="hip", **{**common, **given})


AMD_TARGETS: dict[str, Target] = {
    t.key: t
    for t in (
        _amd("gfx90a", "AMD Instinct MI250X", (9, 0), 64 * _KIB, multiprocessors=110, total_memory=64 * _GIB),
        _amd("gfx942", "AMD Instinct MI300X", (9, 4), 64 * _KIB, multiprocessors=304, total_memory=192 * _GIB),
        _amd("gfx950", "AMD Instinct MI355X", (9, 5), 160 * _KIB, multiprocessors=256, total_memory=288 * _GIB),
        _amd("gfx1100", "AMD Radeon RX 7900 XTX", (11, 0), 64 * _KIB, multiprocessors=48, total_memory=24 * _GIB,
             warp_size=32, registers_per_multiprocessor=4 * 1536 * 32, memory_bus_bits=384),
        _amd("gfx1201", "AMD Radeon RX 9070 XT", (12, 0), 64 * _KIB, multiprocessors=32, total_memory=16 * _GIB,
             warp_size=32, registers_per_multiprocessor=4 * 1536 * 32, memory_bus_bits=256),
    )
}
"""Chips that kernels are compiled for and that emulation does not answer as."""

COMPILED_TARGETS: dict[str, Target] = {**TARGETS, **AMD_TARGETS}
"""Every chip that kernels can be compiled for."""

DEFAULT_TARGET = "sm_90"
