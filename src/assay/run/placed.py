"""A probe's inputs in the worker: tensors over the memory that the judge filled and reads back."""

from __future__ import annotations

import mmap
from typing import Any

import torch

from assay.run import codec
from assay.run.candidate_state import State

RED_ZONE = 512
ALLOCATION = 512
"""Bytes that sizes of GPU memory are rounded up to by torch's allocator."""


class Arena:
    """The probe's region of shared memory, as tensors.

    On a GPU each storage is copied to the device with its red zones round it, and copied back after the calls,
    so that the judge reads the same bytes whatever the device.
    """

    def __init__(self, state: State, region: dict[str, int]) -> None:
        self._device = state.device
        self._map = mmap.mmap(state.arena_fd, region["size"], offset=region["offset"]) if region["size"] else None
        self._mirrors: list[tuple[int, torch.Tensor]] = []

    def tensor(self, place: dict[str, Any]) -> torch.Tensor:
        """The tensor at one placement: dtype, shape, stride, offset (elements), start (bytes), length (elements)."""
        dtype = codec.DTYPES[place["dtype"]]
        if self._map is None or place["length"] == 0:
            return torch.empty(place["shape"], dtype=dtype, device=self._device)
        if self._device == "cpu":
            flat = torch.frombuffer(self._map, dtype=dtype, count=place["length"], offset=place["start"])
            return flat.as_strided(place["shape"], place["stride"], place["offset"])
        begin, size = place["start"] - RED_ZONE, place["length"] * dtype.itemsize
        raw = torch.frombuffer(self._map, dtype=torch.uint8, count=size + 2 * RED_ZONE, offset=begin)
        mirror = raw.to(self._device)
        self._mirrors.append((begin, mirror))
        flat = mirror[RED_ZONE:RED_ZONE + size].view(dtype)
        return flat.as_strided(place["shape"], place["stride"], flat.storage_offset() + place["offset"])

    def again(self, tensor: torch.Tensor, place: dict[str, Any]) -> torch.Tensor:
        """Another tensor object over the memory of one that `tensor` made at `place`."""
        if self._device == "cpu":
            return self.tensor(place)
        return torch.utils.dlpack.from_dlpack(tensor.detach())

    def held(self) -> int:
        """Bytes of the device that the copies take."""
        return sum(allocated(mirror.numel()) for _, mirror in self._mirrors)

    def write_back(self) -> None:
        """Copy what the device holds now into the shared memory."""
        for begin, mirror in self._mirrors:
            assert self._map is not None
            self._map[begin:begin + mirror.numel()] = bytes(codec.tensor_bytes(mirror))


def allocated(size: int) -> int:
    """Bytes that the allocator of a GPU hands out for a request."""
    return size + -size % ALLOCATION
