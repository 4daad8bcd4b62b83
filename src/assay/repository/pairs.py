"""Finding the pairs of a repository. Reads files, runs nothing."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from assay.errors import InputError
from assay.repository.config import CONFIG_NAME, PairTable, Settings

WILD = "*?["


@dataclass(frozen=True)
class Pair:
    """One candidate with its reference.

    Attributes:
        root: folder of the `assay.toml`.
        reference: path of the reference, relative to the root, with slashes.
        candidate: the same of the candidate.
        contract: the same of the contract; None for what the reference does.
        release: whether it is about to be released.
    """

    root: Path
    reference: str
    candidate: str
    contract: str | None = None
    release: bool = False

    @property
    def name(self) -> str:
        """The candidate's path without `.py`."""
        return self.candidate.removesuffix(".py")

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the verdict is about."""
        named = (self.reference, self.candidate, self.contract)
        return tuple(self.root / path for path in named if path is not None)


def find_pairs(root: Path, settings: Settings) -> tuple[list[Pair], list[str]]:
    """The pairs of one `assay.toml`, in its order, and what a reader should know.

    Raises:
        InputError: a table matches nothing, or a contract is missing.
    """
    found: dict[tuple[str, str], Pair] = {}
    notes = []
    for number, table in enumerate(settings.pairs, 1):
        where = f"{root / CONFIG_NAME}: pairs[{number}]"
        references = _matches(root, table.reference)
        if not references:
            raise InputError(f"no file matches the reference `{table.reference}`", where,
                             "correct the path or the glob")
        count = 0
        for reference in references:
            pairs = _of(root, table, reference, where)
            if not pairs:
                notes.append(f"{reference}: no candidate matches `{table.candidate}`")
            for pair in pairs:
                key = (pair.reference, pair.candidate)
                # a later table says more about a pair than an earlier one
                found.pop(key, None)
                found[key] = pair
            count += len(pairs)
        if not count:
            raise InputError(f"no file matches the candidate `{table.candidate}`", where,
                             "correct the path or the glob")
    return list(found.values()), notes


def _of(root: Path, table: PairTable, reference: str, where: str) -> list[Pair]:
    """The pairs of one reference by one table."""
    contract = None
    if table.contract is not None:
        contract = _filled(table.contract, reference)
        if not (root / contract).is_file():
            raise InputError(f"no such contract `{contract}`", where,
                             "write it, for example with `assay contract infer`, or leave the key out")
    excluded = [_filled(pattern, reference) for pattern in table.exclude]
    return [
        Pair(root, reference, path, contract, table.release)
        for path in _matches(root, _filled(table.candidate, reference))
        if path != reference and not any(fnmatch.fnmatchcase(path, pattern) for pattern in excluded)
    ]


def _filled(pattern: str, reference: str) -> str:
    """A pattern with its placeholders filled; the names of real folders are taken literally."""
    path = PurePosixPath(reference)
    for name, value in (("{dir}", str(path.parent)), ("{stem}", path.stem)):
        pattern = pattern.replace(name, _literal(value) if any(c in pattern for c in WILD) else value)
    return str(PurePosixPath(pattern))


def _literal(text: str) -> str:
    return "".join(f"[{c}]" if c in WILD else c for c in text)


def _matches(root: Path, pattern: str) -> list[str]:
    """Python files below a folder that a path or a glob names, sorted."""
    if not any(c in pattern for c in WILD):
        return [pattern] if (root / pattern).is_file() else []
    return sorted(path.relative_to(root).as_posix() for path in root.glob(pattern) if path.is_file())


def find_roots(paths: Sequence[Path]) -> tuple[list[tuple[Path, Path]], list[str]]:
    """For each path its root, the nearest folder upwards with an `assay.toml`, and the path itself; and notes.

    A folder without one upwards stands for every root below it. A file without one is no candidate: a commit
    may change many files that are none.

    Raises:
        InputError: a path does not exist, or a folder has no `assay.toml` above or below.
    """
    found, notes = [], []
    for path in paths:
        if not path.exists():
            raise InputError("no such file or folder", str(path), "check the path")
        full = path.resolve()
        if full.name == CONFIG_NAME and full.is_file():
            full = full.parent
        folder = full if full.is_dir() else full.parent
        above = next((p for p in (folder, *folder.parents) if (p / CONFIG_NAME).is_file()), None)
        if above is not None:
            found.append((above, full))
        elif full.is_file():
            notes.append(f"{path}: no {CONFIG_NAME} above it")
        else:
            below = sorted(p.parent for p in folder.rglob(CONFIG_NAME))
            if not below:
                raise InputError(f"no {CONFIG_NAME} here or above", str(path),
                                 "write one that says where the kernels are")
            found += [(root, root) for root in below]
    return found, notes


def chosen(pairs: Iterable[Pair], paths: Sequence[Path]) -> list[Pair]:
    """The pairs that paths name: below a folder, or with this file among theirs."""
    def named(pair: Pair) -> bool:
        files = [file.resolve() for file in pair.files]
        return any(path == pair.root.resolve() or path in files or any(f.is_relative_to(path) for f in files)
                   for path in paths)

    return [pair for pair in pairs if named(pair)]
