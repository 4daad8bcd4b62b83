"""What a candidate's worker keeps between requests, and fresh instances of the candidate."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from assay.run import bait, builds, codec, integrity, stubs, timed, weights


class State:
    """What one worker process keeps between requests."""

    def __init__(self, options: dict[str, Any], arena_fd: int) -> None:
        self.options = options
        self.arena_fd = arena_fd
        self.device, self.entered = "cpu", False
        self.emulation: Any = None
        self.compiler: Any = None
        self.on_device: Any = None
        self.module: Any = None
        self.entry: Callable[..., Any] | None = None
        self.instances: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, torch.Tensor], dict[str, Any]]] = {}
        self.watched: dict[str, dict[str, Any]] = {}
        self.changed = integrity.changed
        self.threads: frozenset[str] = frozenset()
        self.environment: dict[str, str] = {}
        self.modes: list[str] = []
        self.bait, self.expected = bait.plant(), torch.zeros(1)
        self.builds = builds.Builds(os.path.join(os.getcwd(), "builds"))
        self.stubs = stubs.Stubs()
        self.benches: dict[str, timed.Bench] = {}


def instantiate(state: State, key: str, dtype: str | None) -> tuple[Any, weights.WeightMatch]:
    """A fresh candidate for one probe, with the reference's weights."""
    args, kwargs, reference, header = state.instances[key]
    entry = state.entry
    assert entry is not None
    torch.manual_seed(header["seed"])
    if not isinstance(entry, type):
        return entry, weights.WeightMatch("none", {})
    model = entry(*_own(args), **_own(kwargs))
    if isinstance(model, torch.nn.Module) and getattr(model, "adopts_weights", False) is True:
        weights.adopt(model, reference, frozenset(header["buffers"]))
    if isinstance(model, torch.nn.Module) and state.device != "cpu":
        model = model.to(state.device)
    # paired by the values as constructed: varied ones would hide which tensor is which
    constructed = state.instances[header["base"]][2]
    found = weights.match(constructed, weights.named_state(model), frozenset(header["buffers"]))
    if found.how != "unmatched":
        weights.replace(model, reference, found)
    if dtype is not None and isinstance(model, torch.nn.Module):
        model = model.to(codec.DTYPES[dtype])
    if isinstance(model, torch.nn.Module) and header.get("training") is not None and header["force_mode"]:
        model.train(header["training"])
    return model, found


def _own(value: Any) -> Any:
    """Constructor arguments as private copies."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {k: _own(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_own(v) for v in value)
    return value
