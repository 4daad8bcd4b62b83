"""The policy of a gate: which findings keep a candidate out, and what is wanted beyond a verdict. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from assay.contract.model import SLUGS
from assay.report.model import Finding, Report
from assay.report.words import REASONS
from assay.repository.config import Table, read_table
from assay.vocabulary import Label, Outcome, Tier

POLICY_VERSION: Literal[1] = 1
SHOWN_REASONS = 4
EMULATED = "cpu-emulation"


class Decision(StrEnum):
    """What becomes of one candidate."""

    MERGE = "merge"
    """Nothing keeps it out."""
    BLOCK = "block"
    """A finding that the policy does not allow."""
    UNDECIDED = "undecided"
    """Nothing wrong was found, and not enough was decided."""
    BAD_INPUT = "bad_input"
    """Its task, its contract or its file is at fault."""
    UNCHANGED = "unchanged"
    """Not looked at: nothing that it depends on changed since the revision given."""


class Waiver(Table):
    """A finding that a person has decided to live with, for a while."""

    pair: str
    """Glob over the names of pairs."""
    gate: str
    """Slug of the gate."""
    because: str = Field(min_length=1)
    """Why, for the next reader."""
    until: date
    """Last day on which it holds."""

    @field_validator("gate")
    @classmethod
    def _known(cls, value: str) -> str:
        return _gate(value)


class Policy(Table):
    """What may merge."""

    schema_version: Literal[1] = POLICY_VERSION
    """Version of this format."""
    block: Literal["all", "tolerance_free"] | tuple[str, ...] = "all"
    """Whose findings block: every gate's that the contract lets reject, or those of the gates listed.
    A finding that needed no tolerance blocks in any case."""
    required: tuple[str, ...] = ()
    """Gates whose findings block even where a contract calls them advisory."""
    allow_divergence: bool = False
    """Whether lower precision than declared may merge, when that needed a tolerance to see."""
    gpu: Literal["none", "release", "all"] = "none"
    """Whose label has to be decided on a GPU; another scope leaves them undecided."""
    screened: Literal["undecided", "block", "allow"] = "undecided"
    """What becomes of a candidate with nothing wrong found and a blocking gate undecided."""
    screen_only: Literal["allow", "undecided"] = "allow"
    """What becomes of a candidate that passed the screen and was not drawn for the full battery."""
    waivers: tuple[Waiver, ...] = ()
    """Findings that do not block until a day."""

    @field_validator("block")
    @classmethod
    def _known_block(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        return value if isinstance(value, str) else tuple(_gate(name) for name in value)

    @field_validator("required")
    @classmethod
    def _known_required(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_gate(name) for name in value)


def load_policy(path: Path) -> Policy:
    """Read a policy. Raises InputError naming the place, the wrong key and the nearest right one."""
    return read_table(Policy, path, "policy")


def _gate(name: str) -> str:
    if name not in SLUGS:
        import difflib

        near = difflib.get_close_matches(name, SLUGS, n=1, cutoff=0.0)
        raise ValueError(f"no gate `{name}`; did you mean `{near[0]}`?")
    return name


def blocks(policy: Policy, report: Report, finding: Finding) -> bool:
    """Whether a finding keeps the candidate out, waivers aside."""
    if finding.slug in policy.required:
        return True
    gate = next((g for g in report.gates if g.slug == finding.slug), None)
    if gate is not None and not gate.blocking:
        return False
    if finding.tier is Tier.DIVERGENCE:
        allowed = (report.contract.get("policy") or {}).get("allow_tiers") or ()
        if "divergence" in allowed or (policy.allow_divergence and not finding.tolerance_free):
            return False
    if finding.tolerance_free or policy.block == "all":
        return True
    return policy.block != "tolerance_free" and finding.slug in policy.block


def decide(policy: Policy, name: str, report: Report, *, release: bool, today: date) -> tuple[
        Decision, tuple[str, ...], tuple[str, ...]]:
    """What becomes of a candidate that was verified.

    Args:
        policy: the policy.
        name: name of the pair.
        report: its verdict.
        release: whether it is to be released.
        today: the day on which waivers are looked at.

    Returns the decision, why it is not `merge`, and what was waived, each in words.
    """
    against, waived = [], []
    for finding in report.findings:
        if not blocks(policy, report, finding):
            continue
        waiver = _waiver(policy.waivers, name, finding.slug, today)
        words = f"{finding.slug}: {REASONS[finding.reason]}"
        if waiver is None:
            against.append(words)
        else:
            waived.append(f"{words} (until {waiver.until}: {waiver.because})")
    why, allowed = tuple(dict.fromkeys(against)), tuple(dict.fromkeys(waived))
    if why:
        return Decision.BLOCK, _few(why), allowed
    wants_gpu = policy.gpu == "all" or (policy.gpu == "release" and release)
    if wants_gpu and report.scope == EMULATED:
        return Decision.UNDECIDED, ("the policy asks for a verdict on a GPU",), allowed
    # also where all that was found is allowed: what was not decided beside it is still open
    doubt = _open(report)
    if doubt is None or policy.screened == "allow":
        return Decision.MERGE, (), allowed
    return (Decision.BLOCK if policy.screened == "block" else Decision.UNDECIDED), (doubt,), allowed


def _waiver(waivers: Sequence[Waiver], name: str, slug: str, today: date) -> Waiver | None:
    return next((w for w in waivers
                 if w.gate == slug and fnmatch.fnmatchcase(name, w.pair) and today <= w.until), None)


def _open(report: Report) -> str | None:
    """What was not decided, in words; None when everything was that had to be."""
    names = [g.slug for g in report.gates if g.blocking and g.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)]
    if names:
        return f"undecided: {', '.join(names)}"
    if not any(gate.outcome is Outcome.PASS for gate in report.gates) and not report.findings:
        return "nothing was decided"
    return "the contract asks for a verdict on a GPU" if report.label is Label.SCREENED else None


def _few(words: tuple[str, ...]) -> tuple[str, ...]:
    if len(words) <= SHOWN_REASONS:
        return words
    return (*words[:SHOWN_REASONS], f"and {len(words) - SHOWN_REASONS} more")
