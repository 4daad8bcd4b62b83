"""The strict floor of an audit: findings that need no tolerance, in every composition and under every NaN policy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from assay.audit.outcome import FAULTS, Records

POLICIES: dict[str, str] = {
    "propagate": "every finding of the gate nonfinite counts",
    "NaN waived": "a kernel that fails for injected NaN alone is let off",
    "ignore": "the gate nonfinite does not count",
}
"""What may be asked of exceptional values, and what it means for the count."""

CHANNELS = ("no output", "crash", "aliasing", "repeatability", "nonfinite")
"""What the strict floor is made of."""

COMPOSITIONS: dict[str, tuple[str, ...]] = {
    "strict floor": (),
    "with shape rejection": ("shape rejection",),
    "with subnormals": ("subnormals",),
    "with any shape finding": ("shape rejection", "shapes"),
    "with shape rejection and subnormals": ("shape rejection", "subnormals"),
}
"""What is added to it, by name."""

_INF_FAILED = re.compile(r"(\d+) of \d+ Inf probes failed")
_CRASHES = ("signalled", "exited", "forged_frame")


@dataclass(frozen=True)
class Marks:
    """What of a row can put it into a floor.

    Attributes:
        channels: names of `CHANNELS` and of additions that it shows.
        nan_only: it fails the gate nonfinite for injected NaN alone.
    """

    channels: frozenset[str]
    nan_only: bool

    def under(self, policy: str) -> frozenset[str]:
        """The channels that count under a policy."""
        if policy == "ignore" or (policy == "NaN waived" and self.nan_only):
            return self.channels - {"nonfinite"}
        return self.channels

    def floor(self, composition: str = "strict floor", policy: str = "propagate") -> frozenset[str]:
        """The channels that put the row into a floor; empty where it is not in it."""
        return self.under(policy) & frozenset((*CHANNELS, *COMPOSITIONS[composition]))


def marks(records: Records) -> Marks:
    """What of a row can put it into a floor."""
    found: set[str] = set()
    if records.row["no_output"]:
        found.add("no output")
    for finding in records.findings:
        slug, reason, actual = finding["slug"], finding["reason"], str(finding["actual"])
        if reason in _CRASHES or "CUDA error" in actual:
            found.add("crash")
        if slug == "output_aliasing":
            found.add("aliasing")
        if slug in ("repeatability", "nonfinite", "subnormals", "shapes"):
            found.add(slug)
        if slug == "shapes" and (reason in FAULTS or reason == "size_rejected"):
            found.add("shape rejection")
    if records.row["no_output"]:
        # it failed before any gate could ask for a size or a value
        found -= {"repeatability", "nonfinite", "subnormals", "shapes", "shape rejection"}
    return Marks(frozenset(found), "nonfinite" in found and not _fails_for_infinity(records))


def _fails_for_infinity(records: Records) -> bool:
    """Whether a kernel fails for an injected infinity too: the gate counts both, its findings are examples."""
    note = next((g["note"] for g in records.gates if g["slug"] == "nonfinite"), None)
    counted = _INF_FAILED.search(note or "")
    if counted is not None:
        return int(counted[1]) > 0
    return any(f["slug"] == "nonfinite" and f["injected"] != "nan" for f in records.findings)
