"""The cases of `assay_gates`: one verdict, shared by the tests of a run, also by its processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import InputError
from assay.testing import Question, explain, found_path, state, why_open

if TYPE_CHECKING:
    from assay.report.model import Report


@dataclass(frozen=True)
class GateCase:
    """One gate of a shared verdict."""

    question: Question
    slug: str

    def check(self) -> None:
        """Fail, skip or pass as the gate did. Raises what pytest raises for that."""
        __tracebackhide__ = True
        import pytest

        from assay.vocabulary import Label, Outcome

        report = self.report()
        if isinstance(report, InputError):
            pytest.fail(f"assay: {report}", pytrace=False)
        gate = next((g for g in report.gates if g.slug == self.slug), None)
        if gate is None or gate.outcome is Outcome.PASS:
            return
        words = why_open(report, gate)
        rejected = report.label is Label.REJECTED
        if gate.outcome is Outcome.FAIL and gate.blocking and rejected:
            pytest.fail(explain(report, self.slug), pytrace=False)
        if gate.outcome is Outcome.ERROR:
            pytest.fail(f"{self.slug}: {words}", pytrace=False)
        if gate.outcome is Outcome.INCONCLUSIVE and gate.blocking and not rejected:
            if self.question.undecided == "accept":
                return
            if self.question.undecided == "fail":
                pytest.fail(f"{self.slug}: {words}", pytrace=False)
        pytest.skip(f"does not block: {words}" if gate.outcome is Outcome.FAIL else words)

    def report(self) -> Report | InputError:
        """The verdict, decided once per test run, or why there is none."""
        __tracebackhide__ = True
        try:
            key = self._key()
            if key not in state.verdicts:
                state.verdicts[key] = self._shared(key)
        except InputError as error:
            return error
        return state.verdicts[key]

    def _key(self) -> str:
        """A name for the question that processes of one test run agree on."""
        import hashlib

        from assay import accept

        asked, settings = self.question, state.settings
        pair = accept.pair(found_path(asked.reference, settings.beside), found_path(asked.candidate, settings.beside),
                           asked.inputs, asked.init)
        contract = accept.contract(found_path(asked.contract, settings.beside))
        parts = [pair[0].digest, pair[1].digest, contract.model_dump_json(), asked.tier or settings.tier,
                 asked.device or settings.device, str(asked.only), str(asked.seed), str(asked.timeout)]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def _shared(self, key: str) -> Report:
        """The verdict of whichever process of the test run came first; the others wait for it."""
        folder = state.settings.shared
        if folder is None:
            return self.question.verdict()
        import fcntl

        from assay.report.model import Report

        folder.mkdir(parents=True, exist_ok=True)
        done = folder / f"{key}.json"
        with open(folder / f"{key}.lock", "w") as lock:
            # let go by the system when its holder dies, so that a crash keeps nobody waiting
            fcntl.flock(lock, fcntl.LOCK_EX)
            if done.exists():
                return Report.model_validate_json(done.read_text(encoding="utf-8"))
            report = self.question.verdict()
            scratch = done.with_suffix(".tmp")
            scratch.write_text(report.to_json(), encoding="utf-8")
            scratch.replace(done)
            return report
