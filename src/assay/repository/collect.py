"""From paths on a command line to what a gate has to look at."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.repository.changes import changed_since
from assay.repository.config import CONFIG_NAME, Settings, load_settings
from assay.repository.pairs import Pair, chosen, find_pairs, find_roots
from assay.repository.policy import Policy, load_policy


@dataclass(frozen=True)
class Group:
    """The pairs of one `assay.toml`.

    Attributes:
        root: its folder.
        shown: what reports call that folder.
        settings: what it says.
        policy: what may merge.
        pairs: those to look at.
        unchanged: those that did not change.
        notes: what a reader should know.
    """

    root: Path
    shown: str
    settings: Settings
    policy: Policy
    pairs: tuple[Pair, ...]
    unchanged: tuple[Pair, ...] = ()
    notes: tuple[str, ...] = ()


def collect(paths: Sequence[Path], *, policy: Path | None = None, since: str | None = None,
            settings: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[list[Group], list[str]]:
    """The groups that paths name, and what a reader should know about the paths.

    Args:
        paths: folders, files of pairs, or `assay.toml` files.
        policy: a policy for all of them; None for the one that each `assay.toml` names.
        since: leave out pairs of which nothing changed since this revision.
        settings: values that win over those of the files, by table and key.

    Raises:
        InputError: a file is missing or at fault, or the revision is unknown.
    """
    named: dict[Path, list[Path]] = {}
    roots, notes = find_roots(paths)
    for root, path in roots:
        named.setdefault(root, []).append(path)
    return [_group(root, below, policy, since, settings or {}) for root, below in named.items()], notes


def _group(root: Path, paths: Sequence[Path], policy: Path | None, since: str | None,
           settings: Mapping[str, Mapping[str, Any]]) -> Group:
    found = load_settings(root / CONFIG_NAME)
    for table, values in settings.items():
        found = found.model_copy(update={table: getattr(found, table).model_copy(update=dict(values))})
    where = policy
    if where is None and found.policy is not None:
        where = root / found.policy
        if not where.is_file():
            raise InputError(f"no such policy `{found.policy}`", str(root / CONFIG_NAME), "correct the path")
    every, notes = find_pairs(root, found)
    pairs = chosen(every, paths)
    if not pairs:
        notes.append(f"no pair of {CONFIG_NAME} is among the paths given")
    changed = pairs
    if since is not None:
        files = changed_since(root, since)
        # another rule may change any verdict
        rules = {(root / CONFIG_NAME).resolve(), *([where.resolve()] if where is not None else [])}
        if not rules & files:
            changed = [pair for pair in pairs if files & {file.resolve() for file in pair.files}]
    return Group(root, _shown(root), found, load_policy(where) if where is not None else Policy(),
                 tuple(changed), tuple(pair for pair in pairs if pair not in changed), tuple(notes))


def _shown(root: Path) -> str:
    """A folder as a person would name it from here."""
    relative = os.path.relpath(root)
    return str(root) if relative.startswith("..") else relative
