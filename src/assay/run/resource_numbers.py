"""What a candidate's kernels take on a target, kept so that nothing is compiled twice.

Numbers of a chip that is at hand come from the launches that were made on it. Numbers of other chips are kept on
disk under everything that they depend on: the candidate, the task, sizes, versions and tools. They were told by the
candidate's own worker, and only ever go back to verdicts on the same candidate.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

import torch

from assay.oracle.cache import TruthCache, key_of, package_version
from assay.probe.model import Probe
from assay.probe.record import Observation, Record
from assay.run import extension_resources

MOST = 100
"""Kernels of one probe that a worker tells of; with more, not all of them are known."""


class ResourceNumbers:
    """Numbers of one candidate on one task.

    Args:
        candidate: digest of its source.
        task: digest of the task.
        languages: of the candidate; launches tell of Triton's kernels alone.
        cache: where numbers outlive a verification; None for nowhere.
    """

    def __init__(self, candidate: str, task: str, languages: Sequence[str], cache: TruthCache | None = None) -> None:
        self._candidate, self._task, self._cache = candidate, task, cache
        self._launches_tell_all = set(languages) <= {"triton", "torch"}
        self._known: dict[str, list[dict[str, Any]]] = {}

    def learn(self, record: Record, target: str) -> None:
        """Take from launches on the chip at hand, where they are all of the target and all known."""
        told = record.observation.facts.get("compiled") or []
        if (self._launches_tell_all and record.observation.ran and 0 < len(told) < MOST
                and all(t.get("target") == target and not t.get("over") for t in told)):
            self._known[self._key(record.probe, target)] = told

    def find(self, probe: Probe, target: str) -> Observation | None:
        """What a compiling probe would bring; None where it has to be run."""
        key = self._key(probe, target)
        if key not in self._known and self._cache is not None and (found := self._cache.get(key)) is not None:
            self._known[key] = list(found[0].get("compiled") or [])
        told = self._known.get(key)
        return Observation(probe=probe.id, status="ok", facts={"compiled": told}) if told else None

    def keep(self, probe: Probe, target: str, seen: Observation) -> None:
        """Keep what a compiling probe brought, where nothing of it failed for want of a tool."""
        told = seen.facts.get("compiled") or []
        if not seen.ran or not 0 < len(told) < MOST or any(t.get("error_type") == "ToolchainError" for t in told):
            return
        key = self._key(probe, target)
        self._known[key] = told
        if self._cache is not None:
            self._cache.put(key, {"compiled": told}, [])

    def _key(self, probe: Probe, target: str) -> str:
        tools = [extension_resources.find(tool) for tool in ("nvcc", "cuobjdump")]
        return key_of("resources", package_version(), torch.__version__, _version("triton"), tools, self._candidate,
                      self._task, target, sorted(probe.sizes.items()), probe.dtype)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
