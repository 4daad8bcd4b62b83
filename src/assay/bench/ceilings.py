"""What a device does at best: a large copy, a large sum and large products, timed as candidates are."""

from __future__ import annotations

import statistics
import threading
from dataclasses import dataclass

from assay.bench.clocks import Allowance, told
from assay.bench.contender import Contender, Stopped
from assay.bench.model import Ceilings
from assay.run import codec
from assay.run.candidate import CandidateSession, Weights

SOURCE = '''
import torch


class Ceiling(torch.nn.Module):
    def __init__(self, kind, size, dtype):
        super().__init__()
        self.register_buffer("anchor", torch.zeros(1), persistent=False)
        self.kind, self.size, self.dtype, self.own = kind, size, getattr(torch, dtype), None

    def forward(self):
        if self.own is None:
            device = self.anchor.device
            shape = (self.size,) if self.kind in ("copy", "read") else (self.size, self.size)
            self.own = [torch.randn(shape, device=device).to(self.dtype) for _ in range(2)]
            self.out = torch.empty_like(self.own[0])
        a, b = self.own
        if self.kind == "copy":
            return self.out.copy_(a)
        if self.kind == "read":
            return a.sum()
        return torch.mm(a, b, out=self.out)
'''
ENTRY = "Ceiling"
CALLS = 8
ROUNDS = 5
FIXED = "bf16"
"""The product whose time is watched for drift, where there is one; else the only one."""


@dataclass(frozen=True)
class Piece:
    """One thing to time: its kind, elements (or side of the matrices), dtype and mode of products."""

    kind: str
    size: int
    dtype: str = "float32"
    tf32: bool = False


def pieces(device: str) -> dict[str, Piece]:
    """What is timed on a device, by name: large against every cache on a GPU, small on a CPU."""
    if device == "cpu":
        return {"copy": Piece("copy", 1 << 21), "read": Piece("read", 1 << 21), "fp32": Piece("product", 256)}
    return {
        "copy": Piece("copy", 1 << 27), "read": Piece("read", 1 << 27), "fp32": Piece("product", 4096),
        "tf32": Piece("product", 8192, tf32=True), "fp16": Piece("product", 8192, "float16"),
        "bf16": Piece("product", 8192, "bfloat16"),
    }


class Gauge:
    """Times the ceilings of a device, and a fixed product again whenever asked.

    Args:
        session: a worker for `SOURCE`; it is closed with the gauge.
        device: `cpu` or `cuda`.
        allowance: how far the clocks may be apart.
    """

    def __init__(self, session: CandidateSession, device: str, allowance: Allowance) -> None:
        self._session, self._allowance = session, allowance
        self._pieces = pieces(device)
        self._contenders: dict[str, Contender] = {}
        self._fixed = FIXED if FIXED in self._pieces else "fp32"
        self._lock = threading.Lock()
        self.ceilings: Ceilings | None = None

    def measure(self, cache_bytes: int) -> Ceilings:
        """Time everything once; the ceilings are kept. Raises Stopped."""
        with self._lock:
            if self.ceilings is None:
                self.ceilings = self._measured(cache_bytes)
            return self.ceilings

    def _measured(self, cache_bytes: int) -> Ceilings:
        tree, _ = codec.flatten([[], {}])
        best = {}
        for name, piece in self._pieces.items():
            weights = Weights(name, ((piece.kind, piece.size, piece.dtype), {}), {}, (), 0, None)
            contender = Contender(name, self._session, weights, tf32=piece.tf32)
            contender.prepare(tree, [], buffers=1, flush=0)
            contender.batch("warm", [0] * 2, first=True)
            self._contenders[name] = contender
            # the mode is the process's own: it is set again whenever a product is prepared
            best[name] = self._seconds(name)
        moved = {name: (2 if name == "copy" else 1) * 4 * self._pieces[name].size for name in ("copy", "read")}
        return Ceilings(
            copy_bytes_per_s=max(moved[name] / best[name] for name in moved),
            flops={name: 2.0 * piece.size**3 / best[name] for name, piece in self._pieces.items()
                   if piece.kind == "product"},
            cache_bytes=cache_bytes)

    def fixed(self) -> float:
        """Seconds of the fixed product now. Raises Stopped."""
        if self._fixed not in self._contenders:
            raise Stopped("closed", "the ceilings were not measured")
        batches = [self._contenders[self._fixed].batch("warm", [0] * CALLS) for _ in range(2)]
        return statistics.median(b.total / b.calls for b in batches)

    def _seconds(self, name: str) -> float:
        contender = self._contenders[name]
        batches = [contender.batch("warm", [0] * CALLS) for _ in range(ROUNDS)]
        empty = [contender.batch("flush", []) for _ in range(3)]
        return min(told(batches, empty, self._allowance).counting)

    def close(self) -> None:
        """End the worker."""
        self._session.close()
