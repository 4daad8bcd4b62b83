"""Verdicts kept by the content that they follow from, so that an unchanged candidate is not judged again."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from assay.contract import Contract
from assay.errors import InputError
from assay.oracle.cache import key_of, package_version
from assay.report.model import Report
from assay.repository.changes import tracked
from assay.screen import ScreenReport
from assay.task import Candidate, Task
from assay.verify import Options
from assay.vocabulary import Label, Outcome, Reason

Kind = Literal["screen", "verify"]

PASSING = frozenset({Reason.BUDGET, Reason.OUT_OF_MEMORY, Reason.MACHINE, Reason.INTERNAL, Reason.TOOLCHAIN,
                     Reason.NEEDS_GPU})
"""Why something was undecided that may be decided next time, on the same content and machine."""


LEAVES_VERDICT = ("lanes", "cache", "memory", "nonce", "store")
"""Options that a verdict does not follow from."""


class Verdicts:
    """One file for each verdict, below `STORE/gate`.

    Safe for many writers and for being killed: a file is written under another name and renamed. A file that
    cannot be read, or that is not about what its name says, counts as absent.

    Args:
        store: the folder; made when something is first kept.
        read: False takes nothing from it, and still keeps what is new.

    Raises:
        InputError: git tracks files in the store. Verdicts that travel with a repository could be written by
            whoever writes its kernels.
    """

    def __init__(self, store: Path, *, read: bool = True) -> None:
        self.store, self.folder, self.read = store, store / "gate", read
        if store.exists() and not store.is_dir():
            raise InputError("the store is no folder", str(store), "give a folder, or remove the file")
        if tracked(store):
            raise InputError("git tracks files in the store, so its verdicts may be anybody's", str(store),
                             "remove them from the repository and add the folder to .gitignore")

    def path(self, key: str) -> Path:
        """Where the verdict of a key is."""
        return self.folder / key[:2] / f"{key}.json"

    def get(self, kind: Kind, key: str, task: Task, candidate: Candidate) -> Report | ScreenReport | None:
        """The verdict kept under a key; None where there is none, or none that is about this pair."""
        if not self.read:
            return None
        try:
            data = json.loads(self.path(key).read_bytes())
            if data["key"] != key or data["kind"] != kind:
                return None
            if kind == "screen":
                screened = ScreenReport.model_validate(data["report"])
                about = (screened.task_sha256, screened.candidate_sha256)
                return screened if about == (task.digest, candidate.digest) else None
            report = Report.model_validate(data["report"])
            about = (report.task.sha256, report.candidate.sha256)
            return report if about == (task.digest, candidate.digest) else None
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            return None

    def put(self, kind: Kind, key: str, report: Report | ScreenReport) -> bool:
        """Keep a verdict, unless it may come out otherwise next time. True when it was kept.

        Raises InputError when the file system refuses.
        """
        if not settled(report):
            return False
        path = self.path(key)
        temporary = path.with_name(f".{uuid.uuid4().hex}")
        data = {"key": key, "kind": kind, "report": report.model_dump(mode="json")}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_text(json.dumps(data, sort_keys=True), encoding="utf-8")
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
        except OSError as error:
            raise InputError(f"cannot keep a verdict: {error.strerror or error}", str(self.folder),
                             "give another --store, or make room") from None
        return True


def settled(report: Report | ScreenReport) -> bool:
    """False for what was left undecided by a limit of this run, or by a fault of ours."""
    if isinstance(report, ScreenReport):
        return report.outcome in (Outcome.PASS, Outcome.FAIL)
    if report.label is not Label.SCREENED:
        return True
    return not any(gate.blocking and gate.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)
                   and (gate.reason is None or gate.reason in PASSING) for gate in report.gates)


def key_for(kind: Kind, task: Task, candidate: Candidate, contract: Contract | None, options: Options,
            stack: dict[str, Any]) -> str:
    """SHA-256 over everything that a verdict follows from.

    Args:
        kind: screen or verdict.
        task: the task.
        candidate: the candidate.
        contract: the obligations; a screen knows none.
        options: how to verify.
        stack: machine and versions.
    """
    clauses = contract.model_dump(mode="json") if contract is not None and kind == "verify" else None
    chosen = {name: value for name, value in asdict(options).items() if name not in LEAVES_VERDICT}
    return key_of("gate", kind, task.digest, candidate.digest, clauses, chosen, package_version(), stack)
