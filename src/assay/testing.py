"""Contracts as tests.

    from assay.testing import assert_contract

    def test_softmax():
        assert_contract("kernels/softmax.py", "reference/softmax.py")

Works in any test runner; under pytest, the plugin adds command-line options, markers and a test per gate. One
warm parent serves every verdict of a process. Importing this module is light.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InputError

if TYPE_CHECKING:
    from assay.contract import Contract
    from assay.integrations.gate_cases import GateCase
    from assay.report.model import Finding, GateResult, Report
    from assay.task import Candidate, Task

MOST_FINDINGS = 5
UNDECIDED = ("fail", "skip", "accept")


@dataclass(frozen=True)
class Settings:
    """What a verdict is asked with where a call does not say. Arguments win over all of these.

    Attributes:
        tier: `quick`, `standard` or `deep`.
        device: `auto`, `cpu` or `cuda`.
        seed: seed of the probes; None draws one.
        timeout: seconds for each verdict; None for the tier's own.
        html: folder that a page of each verdict is written to; None for none.
        beside: folder that relative paths are looked for in first; None for the working directory alone.
        name: name of the page.
        shared: folder in which processes of one test run share the verdicts of `assay_gates`; None for none.
    """

    tier: str = "standard"
    device: str = "auto"
    seed: int | None = None
    timeout: float | None = None
    html: Path | None = None
    beside: Path | None = None
    name: str = "assay"
    shared: Path | None = None


@dataclass
class _State:
    settings: Settings = field(default_factory=Settings)
    verdicts: dict[str, Report] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    seen: list[Report] = field(default_factory=list)


state = _State()
"""Of this process: what the plugin set for the running test, and verdicts that several tests share."""


class ContractUndecided(AssertionError):
    """Nothing wrong was found, and something that blocks could not be decided; `.report` holds the verdict."""

    def __init__(self, report: Report, text: str) -> None:
        self.report = report
        super().__init__(text)


def assert_contract(
    candidate: str | os.PathLike[str] | Candidate | Callable[..., Any],
    reference: str | os.PathLike[str] | Task | Callable[..., Any],
    *,
    inputs: Callable[..., Any] | Sequence[Any] | Mapping[str, Any] | None = None,
    init: Sequence[Any] = (),
    contract: str | os.PathLike[str] | Mapping[str, Any] | Contract | None = None,
    tier: str | None = None,
    device: str | None = None,
    only: str | Sequence[str] | None = None,
    seed: int | None = None,
    timeout: float | None = None,
    undecided: str = "fail",
) -> Report:
    """Assert that a candidate is the same program as its reference, and return the verdict.

    Args:
        candidate: as in `assay.verify`. A relative path is looked for beside the test first.
        reference: as in `assay.verify`.
        inputs: as in `assay.verify`, with a function or class as reference.
        init: constructor arguments of a class.
        contract: the obligations; None for the defaults.
        tier: `quick`, `standard` or `deep`; None takes the command line's, the marker's, or `standard`.
        device: `auto`, `cpu` or `cuda`; None likewise.
        only: gates to run; None for all.
        seed: seed of the probes; None likewise, and draws one in the end.
        timeout: seconds for the verdict.
        undecided: what happens when nothing wrong was found but a blocking gate could not decide: `fail`, `skip`
            (under pytest) or `accept`.

    Raises:
        AssayFailure: the candidate is rejected; its text shows the findings.
        ContractUndecided: it is neither rejected nor right, and `undecided` is `fail`.
        InputError: the task, the contract or an argument is at fault.
    """
    __tracebackhide__ = True
    try:
        asked = Question(candidate, reference, inputs=inputs, init=init, contract=contract, tier=tier, device=device,
                         only=only, seed=seed, timeout=timeout, undecided=undecided)
        found = asked.verdict()
    except InputError as error:
        # where in this package it was noticed tells the reader of a test nothing
        raise error.with_traceback(None) from None
    trouble = asked.trouble(found)
    if trouble is not None:
        raise trouble from None
    return found


@dataclass(frozen=True)
class Question:
    """One verdict asked for by a test. The arguments are those of `assert_contract`."""

    candidate: Any
    reference: Any
    inputs: Any = None
    init: Sequence[Any] = ()
    contract: Any = None
    tier: str | None = None
    device: str | None = None
    only: str | Sequence[str] | None = None
    seed: int | None = None
    timeout: float | None = None
    undecided: str = "fail"

    def __post_init__(self) -> None:
        if self.undecided not in UNDECIDED:
            raise InputError(f"unknown value `{self.undecided}`", "undecided", f"one of {', '.join(UNDECIDED)}")

    def verdict(self) -> Report:
        """Decide, and write the page where one is asked for. Raises InputError."""
        __tracebackhide__ = True
        import assay
        from assay.report.model import Names

        settings = state.settings
        candidate, reference = found_path(self.candidate, settings.beside), found_path(self.reference, settings.beside)
        contract = found_path(self.contract, settings.beside)
        report = assay.verify(
            candidate, reference, inputs=self.inputs, init=self.init, contract=contract, only=self.only,
            tier=self.tier or settings.tier, device=self.device or settings.device,
            seed=self.seed if self.seed is not None else settings.seed,
            timeout=self.timeout if self.timeout is not None else settings.timeout)
        if _is_path(candidate) and _is_path(reference):
            options = [("--tier", report.tier, "standard"), ("--device", self.device or settings.device, "auto"),
                       ("--contract", str(contract) if _is_path(contract) else "", "")]
            names = Names(str(reference), str(candidate),
                          tuple(word for name, value, default in options if value != default for word in (name, value)))
            report = report.model_copy(update={"names": names})
        state.seen.append(report)
        _write_page(report, settings)
        return report

    def trouble(self, report: Report) -> BaseException | None:
        """What keeps a verdict from being `contract`, as an exception; None when nothing does."""
        from assay.report.model import AssayFailure
        from assay.vocabulary import Label

        if report.label is Label.REJECTED:
            return AssayFailure(report, explain(report))
        if report.label is Label.SCREENED and self.undecided != "accept":
            if self.undecided == "skip":
                return _skipped(headline(report))
            return ContractUndecided(report, explain(report))
        return None


def _skipped(words: str) -> BaseException:
    """An exception by which the test runner skips the test."""
    import sys

    if "pytest" in sys.modules:
        import pytest

        return pytest.skip.Exception(words)
    import unittest

    return unittest.SkipTest(words)


def headline(report: Report) -> str:
    """The verdict in one line."""
    from assay.report.phrases import verdict_text
    from assay.report.words import printable

    return printable(verdict_text(report))


def explain(report: Report, slug: str | None = None) -> str:
    """The findings as the terminal shows them, and how to see them again.

    Args:
        report: the verdict.
        slug: a gate, to leave out the findings of others; None for all.
    """
    from assay.report.phrases import scope_text
    from assay.report.words import printable

    chosen = [(n, f) for n, f in enumerate(report.findings, 1) if slug in (None, f.slug)]
    lines = [headline(report)]
    for number, finding in chosen[:MOST_FINDINGS]:
        lines += ["", *_finding(report, finding, number)]
    if len(chosen) > MOST_FINDINGS:
        lines += ["", f"and {len(chosen) - MOST_FINDINGS} more findings"]
    if not chosen:
        lines += [f"  {gate.slug}: {why_open(report, gate)}" for gate in report.gates
                  if gate.blocking and gate.outcome.value in ("inconclusive", "error")]
    lines += ["", printable(f"scope      {scope_text(report)}")]
    return "\n".join(lines)


def _finding(report: Report, finding: Finding, number: int) -> list[str]:
    from assay.report import phrases
    from assay.report.words import printable

    facts = phrases.facts(report, finding)
    if report.names is not None:
        facts.append(("replay", phrases.replay_command(report, finding, report.names)))
    return [printable(f"{number}. {phrases.headline(finding)}"),
            *(printable(f"   {label:<10} {text}") for label, text in facts)]


def why_open(report: Report, gate: GateResult) -> str:
    """How a gate came out and why, in one line."""
    from assay.report.phrases import gate_note
    from assay.report.words import OUTCOMES, printable

    return printable(f"{OUTCOMES[gate.outcome]}: {gate_note(report, gate)}")


def _is_path(value: Any) -> bool:
    return isinstance(value, os.PathLike) or (isinstance(value, str) and "\n" not in value)


def found_path(value: Any, beside: Path | None) -> Any:
    """A relative path beside the test where there is such a file, else as it is."""
    if beside is not None and _is_path(value) and not os.path.isabs(value) and (beside / value).exists():
        path = beside / value
        return Path(os.path.relpath(path)) if path.is_relative_to(Path.cwd()) else path
    return value


def _write_page(report: Report, settings: Settings) -> None:
    if settings.html is None:
        return
    from assay.report.html import render

    settings.html.mkdir(parents=True, exist_ok=True)
    count = state.pages[settings.name] = state.pages.get(settings.name, 0) + 1
    number = "" if count == 1 else f"-{count}"
    (settings.html / f"{settings.name}{number}.html").write_text(render(report), encoding="utf-8")


def assay_gates(candidate: Any, reference: Any, **options: Any) -> Callable[..., None]:
    """A test with one case per gate, for pytest with the plugin.

        test_softmax = assay_gates("kernels/softmax.py", "reference/softmax.py", tier="quick")

    The verdict is decided once and shared by the cases; the options are those of `assert_contract`. A gate that
    does not apply, fails without blocking, or could not decide beside a rejection is skipped with its reason.
    """
    import pytest

    @pytest.mark.assay_gates(candidate, reference, **options)
    def test(assay_gate: GateCase) -> None:
        assay_gate.check()

    return test


def merged(settings: Settings, **given: Any) -> Settings:
    """Settings with what is given, where it is."""
    return replace(settings, **{name: value for name, value in given.items() if value is not None})
