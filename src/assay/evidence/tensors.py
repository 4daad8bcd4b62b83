"""Tensors as safetensors files named by their content, each complete or not there at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from assay.evidence.errors import StoreDamaged

SUFFIX = ".safetensors"


def encode(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """A safetensors file, the same bytes for the same tensors.

    Complex tensors are written as pairs of real numbers, and listed in the file's metadata.
    """
    complex_names = sorted(name for name, t in tensors.items() if t.is_complex())
    flat = {}
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().resolve_conj().resolve_neg()
        plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        # a file holds no two tensors in one memory
        flat[name] = plain.contiguous().clone()
    return save(flat, {"complex": json.dumps(complex_names)})


def decode(data: bytes) -> dict[str, torch.Tensor]:
    """Inverse of `encode`. Raises StoreDamaged for what is no such file."""
    try:
        flat = load(data)
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8:8 + size]).get("__metadata__", {})
        complex_names = set(json.loads(metadata.get("complex", "[]")))
    except (SafetensorError, ValueError) as error:
        raise StoreDamaged(f"a file of tensors is damaged: {error}") from None
    return {name: torch.view_as_complex(t) if name in complex_names else t for name, t in flat.items()}


def path_of(folder: Path, digest: str) -> Path:
    """Where the file of a digest lies below the folder of tensors."""
    return folder / digest[:2] / f"{digest}{SUFFIX}"


def write(folder: Path, data: bytes) -> tuple[str, int]:
    """Keep a file under its content hash; digest and bytes. Raises OSError when the disk refuses it.

    The bytes reach the disk under a temporary name before the name that means them exists.
    """
    digest = hashlib.sha256(data).hexdigest()
    path = path_of(folder, digest)
    if path.exists() and path.stat().st_size == len(data):
        return digest, len(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    flush_folder(path.parent)
    return digest, len(data)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder last. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(folder: Path, digest: str) -> bytes:
    """The checked bytes of a file. Raises StoreDamaged when it is missing or not what its name says."""
    path = path_of(folder, digest)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreDamaged(f"a file of tensors cannot be read: {error.strerror or error}", str(path),
                           "`assay store verify` lists what is missing") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise StoreDamaged("a file of tensors is not what its name says", str(path),
                           "`assay store verify` lists what is damaged")
    return data
