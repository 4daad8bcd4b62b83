"""Memory that torch hands out: filled with a known byte, and fenced by canaries.

A dispatch mode sees every allocation that the candidate makes through torch. With a fill, memory that would
hold whatever was there before holds one byte everywhere, so that two runs with two bytes show what depends on
it. With a fence, each allocation lies between red zones that are looked at after the calls.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ZONE = 512
"""Bytes of canary on either side of a fenced allocation; a multiple of every alignment in use."""
MAX_FENCED = 4096
MAX_FENCED_BYTES = 256 << 20

_aten = torch.ops.aten
_UNINITIALISED = frozenset(
    {
        _aten.empty.memory_format,
        _aten.empty_strided.default,
        _aten.empty_like.default,
        _aten.new_empty.default,
        _aten.new_empty_strided.default,
        _aten.empty_permuted.default,
    }
)
_INITIALISED = frozenset(
    {
        _aten.zeros.default,
        _aten.zeros_like.default,
        _aten.new_zeros.default,
        _aten.ones.default,
        _aten.ones_like.default,
        _aten.new_ones.default,
        _aten.full.default,
        _aten.full_like.default,
        _aten.new_full.default,
    }
)
_INTO = frozenset({_aten.empty.out, _aten.empty_like.out, _aten.new_empty.out, _aten.empty_strided.out})
_RESIZE = frozenset({_aten.resize_.default, _aten.resize_as_.default})


class FreshMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What torch allocates while the mode is on.

    Args:
        fill: byte that uninitialised memory is filled with; None leaves it as it is.
        fence: byte of the red zones round each allocation; None makes none.
    """

    def __init__(self, fill: int | None = None, fence: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fill, self.fence = fill, fence
        self.fenced_bytes = 0
        self.unfenced = 0
        self._fences: list[tuple[torch.Tensor, int, str]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # nothing is compiled here, and wrapping the mode would import the compiler, which replaces functions
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _RESIZE:
            return self._resized(func, args, kwargs)
        out = func(*args, **kwargs)
        fresh = func in _UNINITIALISED or func in _INTO
        if not (fresh or func in _INITIALISED) or not _plain(out):
            return out
        if fresh and self.fill is not None:
            out.untyped_storage().fill_(self.fill)
        if self.fence is not None and func not in _INTO:
            return self._fenced(out)
        return out

    def _resized(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Grow a tensor; what is new in its storage is fresh memory."""
        tensor = args[0]
        before = tensor.untyped_storage().nbytes() if _plain(tensor) else 0
        if not _plain(tensor) or tensor.untyped_storage().resizable():
            out = func(*args, **kwargs)
        else:
            # a fenced storage lies in a larger one and cannot grow where it is
            plain = tensor.clone(memory_format=torch.contiguous_format)
            out = func(plain, *args[1:], **kwargs)
            tensor.set_(out.untyped_storage(), out.storage_offset(), out.size(), out.stride())
            out = tensor
        if self.fill is not None and _plain(out):
            after = out.untyped_storage().nbytes()
            if after > before:
                whole = torch.empty(0, dtype=torch.uint8, device=out.device).set_(out.untyped_storage())
                whole[before:].fill_(self.fill)
        return out

    def _fenced(self, out: torch.Tensor) -> torch.Tensor:
        """The same tensor in a storage between red zones."""
        size = out.untyped_storage().nbytes()
        if size == 0:
            return out
        if len(self._fences) >= MAX_FENCED or self.fenced_bytes + size > MAX_FENCED_BYTES:
            self.unfenced += 1
            return out
        assert self.fence is not None
        self.fenced_bytes += size
        raw = torch.full((size + 2 * ZONE,), self.fence, dtype=torch.uint8, device=out.device)
        raw[ZONE : ZONE + size] = torch.empty(0, dtype=torch.uint8, device=out.device).set_(
            out.untyped_storage()
        )
        if out.device.type == "cpu":
            # a storage of exactly the allocation's size, so that nothing in the candidate can tell
            body = torch.frombuffer(
                raw.numpy(), dtype=out.dtype, count=size // out.element_size(), offset=ZONE
            )
        else:
            body = raw[ZONE : ZONE + size].view(out.dtype)
        self._fences.append((raw, size, f"{str(out.dtype).removeprefix('torch.')}{list(out.shape)}"))
        return body.as_strided(out.size(), out.stride(), body.storage_offset() + out.storage_offset())

    def broken(self) -> list[dict[str, Any]]:
        """Fences that something wrote into: the allocation, bytes changed, and the first one's distance.

        The distance is in bytes: negative before the allocation, positive behind it.
        """
        found = []
        for raw, size, shown in self._fences:
            zones = torch.cat([raw[:ZONE], raw[ZONE + size :]])
            hit = torch.nonzero(torch.ne(zones, self.fence or 0)).reshape(-1)
            if hit.numel():
                first = int(hit[0]) if int(hit[0]) >= ZONE else int(hit[hit < ZONE][-1])
                distance = first - ZONE + 1 if first >= ZONE else first - ZONE
                found.append({"allocation": shown, "bytes": int(hit.numel()), "distance": distance})
        return found[:20]

    @property
    def fenced(self) -> int:
        """Number of allocations between red zones."""
        return len(self._fences)


def _plain(value: Any) -> bool:
    """Whether a value is a dense tensor with memory of its own."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.layout is torch.strided
        and value.device.type in ("cpu", "cuda")
    )
