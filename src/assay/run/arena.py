"""Guarded input memory that the judge fills, shares, and reads back itself.

Each fresh input lies in a storage of its own between red zones. After the probe the judge compares every byte
with what it expects: a changed element is an input mutation, a changed byte outside the elements is a write
out of bounds. The candidate's process is not asked.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from assay.probe.layouts import Placement, distinct, distinct_like
from assay.run import codec

RED_ZONE = 512
ALIGNMENT = 256


@dataclass(frozen=True)
class Slot:
    """One input of one call.

    Attributes:
        leaf: position among the tensor inputs.
        start: first byte of its storage, from the start of the region.
        place: where its elements lie in that storage.
        tensor: the values, as a contiguous CPU tensor.
    """

    leaf: int
    start: int
    place: Placement
    tensor: torch.Tensor

    @property
    def storage_bytes(self) -> int:
        """Bytes of the storage."""
        return self.place.length * self.tensor.element_size()

    def to_json(self) -> dict[str, Any]:
        """As the worker reads it."""
        return {"dtype": codec.dtype_name(self.tensor.dtype), "shape": list(self.tensor.shape),
                "stride": list(self.place.stride), "offset": self.place.offset, "start": self.start,
                "length": self.place.length}


@dataclass(frozen=True)
class MemoryFault:
    """A byte that changed although nobody may write there.

    Attributes:
        kind: `input` (an element of an input) or `outside` (red zone, or gap between strided elements).
        leaf: the input it belongs to or lies nearest to.
        index: element index for `input`.
        distance: bytes before (negative) or behind the storage, for `outside`; 0 in a gap.
        before: the element before, for `input`.
        after: the element after, for `input`.
        count: how many elements or bytes changed.
    """

    kind: str
    leaf: int
    count: int
    index: tuple[int, ...] | None = None
    distance: int = 0
    before: str = ""
    after: str = ""


@dataclass
class Region:
    """A probe's part of the shared memory."""

    pad: int = 0xFF
    slots: list[list[Slot]] = field(default_factory=list)
    """Per call, one slot per tensor input; empty for a call that passes the previous tensors again."""
    storage: list[str] = field(default_factory=list)
    """Per call: fresh, same, overwrite or reused."""
    size: int = 0
    offset: int = 0

    def add_call(self, storage: str, tensors: Sequence[torch.Tensor], places: Sequence[Placement]) -> None:
        """Reserve room for one call's inputs."""
        slots = []
        if storage != "same":
            for leaf, (tensor, place) in enumerate(zip(tensors, places, strict=True)):
                self.size += RED_ZONE
                self.size += -self.size % ALIGNMENT
                slots.append(Slot(leaf, self.size, place, tensor))
                self.size += place.length * tensor.element_size()
        self.slots.append(slots)
        self.storage.append(storage)

    def image(self) -> torch.Tensor:
        """The bytes of the region before the probe, uint8 of shape [size]."""
        self.size += RED_ZONE
        self.size += -self.size % mmap.PAGESIZE
        image = torch.full((self.size,), self.pad, dtype=torch.uint8)
        for slots in self.slots:
            for slot in slots:
                _put(image, slot, slot.tensor)
        return image

    def write(self, fd: int, offset: int) -> torch.Tensor:
        """Write the image at `offset` of the memory file; the image."""
        image = self.image()
        self.offset = offset
        array: Any = image.numpy()
        data = memoryview(array).cast("B")
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], offset + done)
        return image

    def check(self, fd: int, image: torch.Tensor, calls_made: int) -> list[MemoryFault]:
        """Compare the region with what it should hold after `calls_made` calls."""
        raw = bytearray(self.size)
        view, done = memoryview(raw), 0
        while done < self.size:
            count = os.preadv(fd, [view[done:]], self.offset + done)
            if count == 0:
                break
            done += count
        after = torch.frombuffer(raw, dtype=torch.uint8)
        expected = image.clone()
        target: list[Slot] = []
        for made, (slots, storage) in enumerate(zip(self.slots, self.storage, strict=True)):
            if storage == "fresh":
                target = slots
            elif storage in ("overwrite", "reused") and made < calls_made:
                for old, new in zip(target, slots, strict=True):
                    _put(expected, old, new.tensor)
        if torch.equal(after, expected):
            return []
        return _classify(expected, after, [s for slots in self.slots for s in slots])


def _put(image: torch.Tensor, slot: Slot, values: torch.Tensor) -> None:
    target = _elements(image, slot)
    distinct(target).copy_(distinct_like(values, target))


def _elements(image: torch.Tensor, slot: Slot) -> torch.Tensor:
    if slot.place.length == 0:
        return torch.empty(slot.tensor.shape, dtype=slot.tensor.dtype)
    flat = image[slot.start:slot.start + slot.storage_bytes].view(slot.tensor.dtype)
    # as_strided counts from the start of the storage, not of the view
    return flat.as_strided(slot.tensor.shape, slot.place.stride, flat.storage_offset() + slot.place.offset)


def _classify(expected: torch.Tensor, after: torch.Tensor, slots: list[Slot]) -> list[MemoryFault]:
    changed = (expected != after).numpy()
    claimed = np.zeros_like(changed)
    faults = []
    for slot in slots:
        if slot.place.length == 0:
            continue
        window = slice(slot.start, slot.start + slot.storage_bytes)
        size = slot.tensor.element_size()
        marks = torch.zeros(slot.storage_bytes, dtype=torch.uint8).view(slot.tensor.dtype)
        ones = torch.full((size,), 255, dtype=torch.uint8).view(slot.tensor.dtype)
        target = distinct(marks.as_strided(slot.tensor.shape, slot.place.stride, slot.place.offset))
        target.copy_(ones.expand(target.shape) if target.dim() else ones.reshape(()))
        mask = marks.view(torch.uint8).numpy() != 0
        hit = changed[window] & mask
        claimed[window] |= mask
        if hit.any():
            now, then = _elements(after, slot), _elements(expected, slot)
            words = _words(now) != _words(then)
            where = torch.nonzero(words.reshape(slot.tensor.shape) if slot.tensor.dim() else words)
            index = tuple(int(n) for n in where[0]) if len(where) else ()
            faults.append(MemoryFault("input", slot.leaf, len(where), index,
                                      before=str(then[index].item()), after=str(now[index].item())))
    outside = np.flatnonzero(changed & ~claimed)
    if outside.size:
        first = int(outside[0])
        near = min(slots, key=lambda s: max(s.start - first, first - s.start - s.storage_bytes + 1, 0))
        distance = (first - near.start if first < near.start
                    else max(0, first - near.start - near.storage_bytes + 1))
        faults.append(MemoryFault("outside", near.leaf, int(outside.size), distance=distance))
    return faults


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bits as integers of its width."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    dense = tensor.contiguous()
    if tensor.element_size() == 16:
        return (torch.view_as_real(dense).view(torch.int64) if tensor.is_complex() else dense.view(torch.int64)).sum(-1)
    return dense.reshape(-1).view(kinds[tensor.element_size()]).reshape(tensor.shape)
