"""What changed, in real git repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.repository.changes import changed_since, tracked
from assay.repository.collect import collect

from .made import commit, git, write

TOML = '[[pairs]]\nreference = "k/*/reference.py"\ncandidate = "{dir}/kernel.py"\ncontract = "{dir}/contract.toml"\n'
FILES = {f"k/{name}/{file}": name for name in "abc" for file in ("reference.py", "kernel.py", "contract.toml")}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = write(tmp_path / "répo", {**FILES, "assay.toml": TOML, "notes.md": ""})
    git(root, "init", "--quiet", "--initial-branch", "main")
    commit(root)
    return root


def changed(root: Path, since: str = "main") -> list[str]:
    groups, _ = collect([root], since=since)
    return [pair.name for pair in groups[0].pairs]


def test_nothing_changed(repository: Path) -> None:
    assert changed(repository) == []
    assert len(collect([repository], since="main")[0][0].unchanged) == 3


@pytest.mark.parametrize("file", ["reference.py", "kernel.py", "contract.toml"])
def test_each_file_of_a_pair_counts(repository: Path, file: str) -> None:
    write(repository, {f"k/b/{file}": "other"})
    assert changed(repository) == ["k/b/kernel"]
    git(repository, "switch", "--quiet", "--create", "work")
    commit(repository)
    assert changed(repository) == ["k/b/kernel"]


def test_a_new_file_that_git_does_not_know_counts(repository: Path) -> None:
    write(repository, {f"k/dé d/{file}": "x" for file in ("reference.py", "kernel.py", "contract.toml")})
    assert changed(repository) == ["k/dé d/kernel"]


def test_other_settings_or_another_policy_concern_every_pair(repository: Path) -> None:
    write(repository, {"assay.toml": 'policy = "policy.toml"\n' + TOML, "policy.toml": ""})
    commit(repository)
    assert changed(repository, "HEAD") == []
    write(repository, {"policy.toml": "screened = 'block'"})
    assert len(changed(repository, "HEAD")) == 3
    commit(repository)
    write(repository, {"assay.toml": 'policy = "policy.toml"\n' + TOML + "release = true\n"})
    assert len(changed(repository, "HEAD")) == 3


def test_other_files_concern_none(repository: Path) -> None:
    write(repository, {"notes.md": "x", "k/b/notes.py": "x"})
    assert changed(repository) == []


def test_what_others_did_after_the_branch_is_no_change_of_ours(repository: Path) -> None:
    git(repository, "switch", "--quiet", "--create", "work")
    write(repository, {"k/a/kernel.py": "ours"})
    commit(repository)
    git(repository, "switch", "--quiet", "main")
    write(repository, {"k/b/kernel.py": "theirs"})
    commit(repository)
    git(repository, "switch", "--quiet", "work")
    assert changed(repository) == ["k/a/kernel"]


def test_names_are_right_whatever_git_is_told_about_relative_paths(repository: Path) -> None:
    write(repository, {"sub/assay.toml": TOML, **{f"sub/{name}": text for name, text in FILES.items()}})
    commit(repository)
    git(repository, "config", "diff.relative", "true")
    write(repository, {"sub/k/c/kernel.py": "other"})
    assert changed(repository / "sub", "HEAD") == ["k/c/kernel"]


@pytest.mark.parametrize("revision", ["nowhere", "--output=/tmp/x", "main..work"])
def test_an_unknown_revision_is_named(repository: Path, revision: str) -> None:
    with pytest.raises(InputError, match="revision") as fault:
        changed_since(repository, revision)
    assert revision in str(fault.value)


def test_a_history_without_a_common_commit_is_told(repository: Path) -> None:
    git(repository, "switch", "--quiet", "--orphan", "other")
    commit(repository)
    with pytest.raises(InputError, match="fetch-depth"):
        changed_since(repository, "main")


def test_outside_a_repository_git_s_words_are_passed_on(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a git repository"):
        changed_since(tmp_path, "main")
    assert tracked(tmp_path) == []
    assert tracked(tmp_path / "gone") == []
