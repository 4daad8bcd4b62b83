"""The gate itself: screens everything, verifies releases and the sample, and decides by the policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay import accept
from assay.contract import Contract
from assay.environment import describe
from assay.errors import InputError
from assay.report.model import Names, Report
from assay.report.words import WEAKNESSES
from assay.repository.collect import Group
from assay.repository.model import Gated, GateReport, Root
from assay.repository.pairs import Pair
from assay.repository.policy import Decision, Policy, decide
from assay.repository.selection import Selection, select
from assay.repository.verdicts import Kind, Verdicts, key_for
from assay.screen import ScreenReport
from assay.task import Candidate, Task
from assay.verify import Options, resolve_device

if TYPE_CHECKING:
    from assay.pool import Pool

Progress = Callable[[str, int, int], None]
"""Called with (phase, done, total)."""
SCREEN_SECONDS = 60.0
"""Time for the candidate's calls in a screen."""


@dataclass
class _State:
    """What is known of one pair so far."""

    pair: Pair
    name: str
    options: Options
    task: Task | None = None
    candidate: Candidate | None = None
    contract: Contract | None = None
    problem: str | None = None
    at_fault: str = "input"
    screen: ScreenReport | None = None
    report: Report | None = None
    cached: list[Literal["screen", "report"]] = field(default_factory=list)
    battery: str = "none"

    @property
    def sound(self) -> bool:
        return self.problem is None


class Work:
    """One run over the groups of a gate.

    Args:
        groups: what to look at.
        verdicts: where verdicts are kept.
        pool: what decides; started when there is anything to decide, so that a run in which nothing is new is
            quick.
        progress: called with (phase, done, total).
    """

    def __init__(self, groups: Sequence[Group], verdicts: Verdicts, pool: Callable[[], Pool],
                 progress: Progress) -> None:
        self.groups, self.verdicts, self.progress = groups, verdicts, progress
        self._start = pool
        self._pool: Pool | None = None
        self._notes: list[str] = []
        self._stacks: dict[tuple[str, str], dict[str, Any]] = {}
        several = len(groups) > 1
        self._states = {id(group): [_loaded(group, pair, several, verdicts.store) for pair in group.pairs]
                        for group in groups}

    def run(self, *, since: str | None = None, notes: Sequence[str] = (), today: date | None = None) -> GateReport:
        """Everything, to the report.

        Args:
            since: the revision since which changes were looked at, for the report.
            notes: what a reader should know beyond the notes of the groups.
            today: the day on which waivers are looked at; None for this one.

        Raises:
            InputError: an option asks for what this machine has not got.
        """
        every = [state for states in self._states.values() for state in states]
        sound = [state for state in every if state.sound]
        # what is to be released is verified whatever its screen says, so it need not wait for any
        self._have("screen", [(kind, state) for state in sound
                              for kind in (("verify", "screen") if state.pair.release else ("screen",))])
        for group in self.groups:
            self._choose(group)
        self._have("verify", [("verify", state) for state in sound
                              if state.sound and state.report is None and state.battery != "none"])
        pairs = [gated for group in self.groups for gated in self._gated(group, today or date.today())]
        return GateReport(
            roots=tuple(Root(path=group.shown, share=group.settings.sample.share,
                             sample_seed=group.settings.sample.seed,
                             policy=group.policy.model_dump(mode="json")) for group in self.groups),
            since=since, pairs=tuple(pairs),
            notes=(*notes, *(note for group in self.groups for note in group.notes), *self._notes, *_weak(pairs)),
            environment=self._stack(every[0].options) if every else {},
        )

    def _stack(self, options: Options) -> dict[str, Any]:
        chosen = (options.device, options.target)
        if chosen not in self._stacks:
            self._stacks[chosen] = describe(resolve_device(options.device), options.target)
        return self._stacks[chosen]

    def _have(self, phase: str, wanted: Sequence[tuple[Kind, _State]]) -> None:
        """Screens and verdicts of pairs, from the store or made now; each is kept as soon as it is there."""
        from assay.pool import Job

        missing: dict[str, tuple[Kind, _State, str, Job]] = {}
        for kind, state in wanted:
            assert state.task is not None
            assert state.candidate is not None
            options = state.options if kind == "verify" else _for_screen(state.options)
            key = key_for(kind, state.task, state.candidate, state.contract or Contract(), options,
                          self._stack(options))
            found = self.verdicts.get(kind, key, state.task, state.candidate)
            if found is None:
                job = Job(id=f"{kind}:{state.name}", task=state.task, candidate=state.candidate,
                          contract=state.contract, options=options, kind=kind)
                missing[job.id] = kind, state, key, job
            else:
                _take(state, found)
                state.cached.append("screen" if kind == "screen" else "report")
        done = len(wanted) - len(missing)
        self.progress(phase, done, len(wanted))
        if not missing:
            return
        if self._pool is None:
            self._pool = self._start()
        for answer in self._pool.run(job for *_, job in missing.values()):
            kind, state, key, _ = missing[answer.job.id]
            if answer.report is None:
                # a screen that was lost leaves the candidate without one, which is a reason for the battery
                if kind == "verify" or answer.at_fault == "input":
                    state.problem = answer.problem or "no verdict"
                    state.at_fault = answer.at_fault or "judge"
            else:
                _take(state, answer.report)
                self._keep(kind, key, answer.report)
            done += 1
            self.progress(phase, done, len(wanted))

    def _keep(self, kind: Kind, key: str, report: Report | ScreenReport) -> None:
        """Keep a verdict. A store that refuses it costs a note, not the verdict."""
        try:
            self.verdicts.put(kind, key, report)
        except InputError as error:
            note = " ".join(str(error).split())
            if note not in self._notes:
                self._notes.append(note)

    def _choose(self, group: Group) -> None:
        """Say who gets the full battery."""
        states = [state for state in self._states[id(group)] if state.sound]
        # who failed the cheap check, or could not take it, is decided by the battery: the cheap check also
        # refuses right kernels
        doubtful = {s.name for s in states if s.screen is None or not s.screen.passed}
        rest = {s.name: f"{s.task.digest}{s.candidate.digest}" for s in states
                if s.task and s.candidate and not s.pair.release and s.name not in doubtful}
        selection: Selection = select([s.name for s in states if s.pair.release], rest,
                                      group.settings.sample.share, group.settings.sample.seed)
        for state in states:
            state.battery = selection.why(state.name) or ("screen" if state.name in doubtful else "none")

    def _gated(self, group: Group, today: date) -> Iterator[Gated]:
        for state in self._states[id(group)]:
            decision, why, waived = _decided(group.policy, state, today)
            yield _row(state.pair, state.name, decision, why=why, waived=waived, battery=state.battery,
                       screen=state.screen, report=state.report, cached=tuple(sorted(state.cached, reverse=True)))
        for pair in group.unchanged:
            yield _row(pair, _named(group, pair, len(self.groups) > 1), Decision.UNCHANGED)


def _for_screen(options: Options) -> Options:
    """Options of a screen. One that takes long is cut off: that is a reason for a verdict, not a result."""
    return replace(options, timeout=min(options.timeout or SCREEN_SECONDS, SCREEN_SECONDS), store=None)


def _decided(policy: Policy, state: _State, today: date) -> tuple[Decision, tuple[str, ...], tuple[str, ...]]:
    if state.report is not None:
        return decide(policy, state.name, state.report, release=state.pair.release, today=today)
    if state.problem is not None:
        ours = state.at_fault == "judge"
        return (Decision.UNDECIDED if ours else Decision.BAD_INPUT), (state.problem,), ()
    if policy.screen_only == "undecided":
        return Decision.UNDECIDED, ("passed the screen, which is no verdict",), ()
    return Decision.MERGE, (), ()


def _take(state: _State, report: Report | ScreenReport) -> None:
    if isinstance(report, ScreenReport):
        state.screen = report
    else:
        state.report = report.model_copy(update={"names": _names(state)})


def _names(state: _State) -> Names:
    """What a person standing here would call the files, so that findings can be replayed by copy and paste."""
    pair, options = state.pair, state.options
    given = {"--contract": pair.contract and _from_here(pair.root / pair.contract),
             "--device": options.device if options.device != "auto" else None,
             "--tier": options.tier.value if options.tier.value != "standard" else None,
             "--emulate": options.target if options.target != "sm_90" else None}
    return Names(_from_here(pair.root / pair.reference), _from_here(pair.root / pair.candidate),
                 tuple(word for name, value in given.items() if value for word in (name, value)))


def _from_here(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _named(group: Group, pair: Pair, several: bool) -> str:
    return f"{group.shown}/{pair.name}" if several else pair.name


def _loaded(group: Group, pair: Pair, several: bool, store: Path) -> _State:
    """A pair with its files read; what is wrong with them is the pair's own problem."""
    battery = group.settings.battery
    options = replace(
        accept.options(device=battery.device, tier=battery.tier, seed=battery.seed, timeout=battery.timeout,
                       emulate=battery.emulate, sandbox=battery.sandbox),
        # findings and failing inputs go there too, for replay
        store=str(store))
    state = _State(pair, _named(group, pair, several), options)
    try:
        state.task, state.candidate = accept.pair(pair.root / pair.reference, pair.root / pair.candidate)
        state.contract = accept.contract(pair.root / pair.contract) if pair.contract else None
    except InputError as error:
        state.problem = " ".join(str(error).split())
    return state


def _weak(pairs: Sequence[Gated]) -> Iterator[str]:
    """Which verdicts say little, because a trivial function would get them too."""
    for pair in pairs:
        if pair.report is not None and pair.report.task.weak:
            found = " or ".join(WEAKNESSES.get(name, name) for name in pair.report.task.weak)
            yield f"{pair.name}: weak task, {found} would pass the usual check"


def _row(pair: Pair, name: str, decision: Decision, **rest: Any) -> Gated:
    return Gated(name=name, reference=pair.reference, candidate=pair.candidate, contract=pair.contract,
                 release=pair.release, decision=decision, **rest)
