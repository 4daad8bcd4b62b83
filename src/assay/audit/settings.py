"""What an audit is: with its settings, its corpus and a machine, its results are determined."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from assay.audit.outcome import Checks


@dataclass(frozen=True)
class Settings:
    """How every row of an audit is checked, and which rows are.

    Attributes:
        checks: what runs on each row.
        seed: of the probes and of the sample; None draws one.
        tier: effort.
        device: `auto`, `cpu` or `cuda`.
        target: device that emulation answers as.
        timeout: seconds for one verdict; None for the tier's own.
        only: slugs of gates; None for all.
        contract: obligations for every row, as data; None for the corpus's or the defaults.
        everything: audit also what the corpus itself took for wrong.
        sample: rows to draw; None for all.
        stratify: column to draw in proportion to.
        sandbox: how candidates are confined.
    """

    checks: Checks = field(default_factory=Checks)
    seed: int | None = None
    tier: str = "standard"
    device: str = "auto"
    target: str = "sm_90"
    timeout: float | None = None
    only: tuple[str, ...] | None = None
    contract: dict[str, Any] | None = None
    everything: bool = False
    sample: int | None = None
    stratify: str | None = None
    sandbox: str = "auto"

    def to_json(self) -> str:
        """As text, the same for the same settings."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Settings:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        checks = data.pop("checks")
        only = data.pop("only")
        return Settings(checks=Checks(checks["mode"], tuple(checks["variants"])),
                        only=None if only is None else tuple(only), **data)


def difference(old: Settings, new: Settings) -> str:
    """Which settings differ, in one line."""
    mine, theirs = asdict(old), asdict(new)
    return ", ".join(f"{name} {mine[name]!r} there, {theirs[name]!r} here" for name in mine
                     if mine[name] != theirs[name])
