"""A CUDA file with a binding, as a candidate: the module that builds it and calls its `forward`."""

from __future__ import annotations

import re

_BINDING = re.compile(r"\bPYBIND11_MODULE\s*\(|\bTORCH_EXTENSION_NAME\b")
_WRAPPER = '''\
"""Builds kernel.cu and calls what it exports as `forward`: inputs first, then the model's weights in their order."""
import os as _os

import torch
from torch.utils.cpp_extension import load as _load

_SOURCE = {source!r}
with open("kernel.cu", "w", encoding="utf-8") as _file:
    _file.write(_SOURCE)
_built = _load(name={name!r}, sources=[_os.path.abspath("kernel.cu")], with_cuda=True)


class ModelNew(torch.nn.Module):
    adopts_weights = True

    def __init__(self, *args, **kwargs):
        super().__init__()
        self.adopted = []

    def forward(self, *inputs):
        return _built.forward(*inputs, *[getattr(self, name) for name in self.adopted])
'''


def wrapped(source: str, name: str) -> str:
    """The Python module that stands for a bare CUDA file."""
    return _WRAPPER.format(source=source, name=f"assay_{re.sub(r'[^A-Za-z0-9]', '_', name)[:60]}")


def has_binding(source: str) -> bool:
    """Whether a CUDA file says how Python calls it."""
    return _BINDING.search(source) is not None
