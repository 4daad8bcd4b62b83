"""What changed in a git repository."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from assay.errors import InputError


def changed_since(root: Path, revision: str) -> set[Path]:
    """Files below the top of the repository that differ from where this line of work left a revision.

    Compared is the working tree, files that git does not yet know included, with the merge base of `revision`
    and HEAD: what others did after it is no change of ours.

    Args:
        root: a folder of the repository.
        revision: a commit, branch or tag.

    Raises:
        InputError: no git, no repository, no such revision, or a history too shallow to compare.
    """
    if revision.startswith("-"):
        raise InputError(f"`{revision}` is no revision", "--changed-since", "give a branch, a tag or a commit")
    top = Path(_git(root, "rev-parse", "--show-toplevel").strip())
    if _run(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode:
        raise InputError(f"git knows no revision `{revision}`", "--changed-since",
                         "fetch it first; a checkout in CI needs `fetch-depth: 0`")
    base = _run(root, "merge-base", revision, "HEAD")
    if base.returncode:
        raise InputError(f"`{revision}` and HEAD have no common commit here", "--changed-since",
                         "fetch the whole history; a checkout in CI needs `fetch-depth: 0`")
    changed = _git(root, "diff", "--name-only", "--no-renames", "-z", base.stdout.strip(), "--")
    new = _git(top, "ls-files", "--others", "--exclude-standard", "-z")
    return {(top / name).resolve() for name in (changed + new).split("\0") if name}


def tracked(folder: Path) -> list[str]:
    """Files below a folder that git tracks; none where there is no git."""
    if not folder.is_dir():
        return []
    try:
        done = _run(folder, "ls-files", "-z", "--", ".")
    except InputError:
        return []
    return [] if done.returncode else [name for name in done.stdout.split("\0") if name]


def _git(root: Path, *arguments: str) -> str:
    done = _run(root, *arguments)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"status {done.returncode}"
        raise InputError(f"git refused: {said}", str(root), "run the gate inside a git repository")
    return done.stdout


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = ("git", "-C", str(root), "-c", "core.quotePath=false", "-c", "diff.relative=false",
                              *arguments)
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="surrogateescape", check=False,
                              timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"cannot run git: {error}", str(root), "install git") from None
