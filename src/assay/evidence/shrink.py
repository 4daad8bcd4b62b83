"""The smallest input that still shows a finding: sizes first, then special values and calls, then values.

Every attempt is a whole experiment: the reference accepts the input and gives its truth, the candidate runs, and
the same gate finds the same reason. So whatever remains is a failing input of the task's own domain, not a likely
one. Sizes move as the task's integers do, and weights and tied dimensions follow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from assay.evidence.admitted import admits, free
from assay.evidence.bundle import input_digest
from assay.evidence.errors import StoreError
from assay.evidence.model import Bundle
from assay.evidence.replay import bundle_to_run, place
from assay.evidence.stage import Stage, restaged, shown_by
from assay.evidence.store import Store
from assay.probe.beside import legal, varying
from assay.probe.model import Draw, Explicit, Probe
from assay.probe.record import Record
from assay.report.model import Finding, Minimal, Report
from assay.run.process import Zygote
from assay.task.facts import TaskSize

SECONDS = 30.0
SMALLEST = (1, 2, 3, 4, 5, 6, 7, 8)
"""Sizes tried first. No element at all is a case of its own, which an input with elements is not made into."""
SINGLE_ELEMENTS = 4096
"""Most elements of an input that is simplified element by element."""
END = "~minimal"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Shrunk:
    """What shrinking came to.

    Attributes:
        bundle: the smallest bundle found.
        finding: the finding as it shows there.
        minimal: the same for a report.
        attempts: experiments made.
        seconds: time taken.
    """

    bundle: Bundle
    finding: Finding
    minimal: Minimal
    attempts: int
    seconds: float


class DoesNotShow(StoreError):
    """A finding that does not show here, so that there is nothing to make smaller."""


@dataclass
class _Search:
    """The state of one search: the best bundle so far, and what was tried."""

    stage: Stage
    best: Bundle
    shown: Finding
    records: list[Record]
    deadline: float
    progress: Progress | None = None
    attempts: int = 0
    known: dict[str, bool] = field(default_factory=dict)
    _kept: dict[str, Record] = field(default_factory=dict)

    @property
    def record(self) -> Record:
        """What came of the probe of the finding."""
        return self.records[self.best.main]

    @property
    def spent(self) -> bool:
        return time.monotonic() > self.deadline

    def accept(self, probes: Sequence[Probe]) -> bool:
        """Whether smaller probes show the finding still; if so they are the best from now on."""
        key = "/".join(p.digest() for p in probes)
        if self.spent or self.known.get(key) is False:
            return False
        self.attempts += 1
        if self.progress is not None:
            self.progress("shrink", self.attempts, 0)
        tried = self.best.model_copy(update={"probes": tuple(probes)})
        records = [self._record(p) for p in probes]
        shown = shown_by(self.stage, tried, records)
        if shown is None:
            self.known[key] = False
            return False
        self.best, self.shown, self.records = tried, shown, records
        return True

    def _record(self, probe: Probe) -> Record:
        """What comes of a probe; a control that did not change is not run again."""
        key = f"{probe.id}/{probe.digest()}"
        if key not in self._kept:
            (self._kept[key],) = self.stage.records([probe], self.best.seed)
            if len(self._kept) > 16:
                self._kept.pop(next(iter(self._kept)))
        return self._kept[key]


def shrink(store: Store, identity: str, zygote: Zygote, *, seconds: float = SECONDS, device: str = "auto",
           sandbox: str | None = None, progress: Progress | None = None) -> Shrunk:
    """Find the smallest input of a finding, and keep it in the store.

    Args:
        store: where the finding is kept.
        identity: its id, or the start of it.
        zygote: a warm parent.
        seconds: how long to look.
        device: `auto` for where it was found.
        sandbox: how the candidate is confined.
        progress: called with ("shrink", attempts, 0).

    Raises DoesNotShow when the finding does not show here, StoreError when the store has not enough of it.
    """
    found = store.finding(identity)
    verdict = store.verdict(found.verdict)
    bundle = bundle_to_run(found, minimal=False)
    where, why = place(verdict, device)
    if why:
        raise DoesNotShow(f"it cannot run here: {why}", found.id, "shrink it where it was found")
    with restaged(verdict, zygote, device=where, sandbox=sandbox, store=str(store.directory)) as stage:
        shrunk = smallest(stage, bundle, seconds, progress)
    if shrunk is None:
        raise DoesNotShow("it does not show here", found.id, f"`assay replay {found.id}` says what differs")
    store.put_minimal(found, shrunk.bundle, shrunk.minimal)
    return shrunk


def shrink_report(store: Store, report: Report, zygote: Zygote, *, seconds: float = SECONDS,
                  sandbox: str | None = None, progress: Progress | None = None) -> Report:
    """A report whose findings show their smallest inputs too, the first of each gate and reason.

    Args:
        store: where the verdict is kept.
        report: with the ids that it has there.
        zygote: a warm parent.
        seconds: how long to look for all of them together.
        sandbox: how the candidate is confined.
        progress: called with ("shrink", attempts, 0).
    """
    began = time.monotonic()
    first = {(f.slug, f.reason): f for f in reversed(report.findings) if f.id}
    wanted = [f for f in report.findings if first.get((f.slug, f.reason)) is f]
    shown: dict[str, Finding] = {}
    probes = dict(report.probes)
    for turn, finding in enumerate(wanted):
        left = seconds - (time.monotonic() - began)
        if left <= 0:
            break
        try:
            found = shrink(store, finding.id, zygote, seconds=left / (len(wanted) - turn), sandbox=sandbox,
                           progress=progress)
        except DoesNotShow:
            # a fault that comes and goes has no smallest input
            continue
        shown[finding.id] = finding.model_copy(update={"minimal": found.minimal})
        probes[found.bundle.probe.id] = found.bundle.probe
    findings = tuple(shown.get(f.id, f) if f in wanted else f for f in report.findings)
    return report.model_copy(update={"findings": findings, "probes": dict(sorted(probes.items()))})


def smallest(stage: Stage, bundle: Bundle, seconds: float, progress: Progress | None = None) -> Shrunk | None:
    """The smallest bundle with the same gate, reason and output; None where the given one does not show it."""
    began = time.monotonic()
    probes = tuple(p.model_copy(update={"id": f"{p.id.partition(END)[0]}{END}"}) for p in bundle.probes)
    start = bundle.model_copy(update={"probes": probes, "inputs": {}})
    records = stage.records(probes, bundle.seed)
    shown = shown_by(stage, start, records)
    if shown is None:
        return None
    search = _Search(stage, start, shown, records, began + seconds, progress)
    complete = False
    while not search.spent:
        before = search.best
        _sizes(search)
        _plainer(search)
        _values(search)
        complete = search.best == before and not search.spent
        if search.best == before:
            break
    final = search.best.model_copy(update={"inputs": {
        r.probe.id: tuple(input_digest(t) for t in r.truths) for r in search.records if all(t.ok for t in r.truths)}})
    at = search.shown
    truth = search.record.truths[0]
    minimal = Minimal(
        probe=final.probe.id, output=at.output, index=at.index, expected=at.expected, actual=at.actual,
        error=at.error, tolerance=at.tolerance, elements=sum(t.numel() for t in truth.inputs), complete=complete)
    return Shrunk(final, at, minimal, search.attempts, round(time.monotonic() - began, 3))


# sizes


def _sizes(search: _Search) -> None:
    """Each of the task's integers down to the smallest value that still fails, all together first."""
    study = search.stage.ctx.study
    by_name = {size.name: size for size in study.integers}
    groups = [(by_name[names[0]], names) for names in varying(study, ("size", "count"))]
    for value in (1, 2, 3, 5, 8):
        together = {name: near for head, names in groups for name in names
                    if (near := _down_to(head, value, _now(search, head))) is not None}
        if together and _resized(search, together):
            break
    changed = True
    while changed and not search.spent:
        changed = False
        for head, names in sorted(groups, key=lambda g: -_now(search, g[0])):
            changed |= _lower(search, head, names)


def _now(search: _Search, head: TaskSize) -> int:
    return search.best.probe.sizes.get(head.name, head.native)


def _down_to(head: TaskSize, value: int, now: int) -> int | None:
    """The smallest legal value from `value` on, if it is less than what there is now."""
    return next((v for v in range(value, min(now, value + 64)) if legal(head, v)), None)


def _lower(search: _Search, head: TaskSize, names: Sequence[str]) -> bool:
    """Lower one size as far as it goes; whether it went anywhere."""
    start = _now(search, head)

    def works(value: int) -> bool:
        return value < _now(search, head) and legal(head, value) and _resized(search, dict.fromkeys(names, value))

    for value in SMALLEST:
        if value >= start or works(value):
            break
    if _now(search, head) == start:
        # what fails beyond a block rarely fails below it
        for block in sorted(search.stage.ctx.blocks):
            for value in (block - 1, block, block + 1):
                if SMALLEST[-1] < value < start and works(value):
                    break
            if _now(search, head) < start:
                break
    passing = SMALLEST[-1] if _now(search, head) > SMALLEST[-1] else 0
    while _now(search, head) - passing > head.multiple_of and not search.spent:
        middle = (_now(search, head) + passing) // 2
        middle -= middle % head.multiple_of
        if middle <= passing or not works(middle):
            passing = max(passing + 1, middle)
    return _now(search, head) < start


def _resized(search: _Search, sizes: dict[str, int]) -> bool:
    """Try other sizes, for the probe and for those that share its sizes; what was written down is void then."""
    main = search.best.probe
    probes = [p.model_copy(update={"sizes": {**p.sizes, **sizes}, "draws": tuple(
        d.model_copy(update={"literals": ()}) for d in p.draws)}) if p.sizes == main.sizes else p
        for p in search.best.probes]
    return search.accept(probes)


# special values, calls and variations


def _plainer(search: _Search) -> None:
    """Fewer special values, fewer calls, plain layouts, weights as constructed, the task's own values."""
    changed = True
    while changed and not search.spent:
        changed = False
        for attempt in _plainer_probes(search.best.probe):
            if _with(search, attempt):
                changed = True
                break


def _plainer_probes(probe: Probe) -> Iterator[Probe]:
    for number, draw in enumerate(probe.draws):
        for one in range(len(draw.injections)):
            if len(draw.injections) > 1:
                yield _redrawn(probe, number, injections=(draw.injections[one],))
        for one in range(len(draw.injections)):
            if len(draw.injections) > 1:
                yield _redrawn(probe, number, injections=(*draw.injections[:one], *draw.injections[one + 1:]))
    for count in range(1, len(probe.calls)):
        yield _cut(probe, count)
    for number, draw in enumerate(probe.draws):
        special = [i for i, name in enumerate(draw.layouts) if name != "task"]
        for one in special if len(special) > 1 else ():
            yield _redrawn(probe, number, layouts=tuple(
                "task" if i == one else name for i, name in enumerate(draw.layouts)))
        if draw.variant != "task" and not draw.literals:
            yield _redrawn(probe, number, variant="task", leaves=None)
    if probe.parameters:
        yield probe.model_copy(update={"parameters": 0})


def _redrawn(probe: Probe, number: int, **changes: object) -> Probe:
    """A probe with one of its draws changed."""
    draws = tuple(d.model_copy(update=changes) if i == number else d for i, d in enumerate(probe.draws))
    return probe.model_copy(update={"draws": draws})


def _cut(probe: Probe, count: int) -> Probe:
    """The first calls of a probe, with the draws that they use."""
    calls = probe.calls[:count]
    used = sorted({c.draw for c in calls})
    renumbered = tuple(c.model_copy(update={"draw": used.index(c.draw)}) for c in calls)
    return probe.model_copy(update={"calls": renumbered, "draws": tuple(probe.draws[i] for i in used)})


def _with(search: _Search, main: Probe) -> bool:
    """Try another probe; one that differs from it in its conditions alone (the other half of a pair) follows."""
    old = search.best.probe
    follows = {"draws": main.draws, "calls": main.calls, "parameters": main.parameters}
    return search.accept([
        main if p is old else p.model_copy(update=follows)
        if (p.draws, p.calls, p.sizes) == (old.draws, old.calls, old.sizes) else p for p in search.best.probes])


# values


def _values(search: _Search) -> None:
    """Every input toward zeros, ones and small whole numbers, as far as the task's domain lets it."""
    study = search.stage.ctx.study
    leaves = study.tensor_inputs()
    for number in range(len(search.best.probe.draws)):
        for leaf, fact in enumerate(leaves):
            if search.spent or fact.structure is None or not free(fact.structure):
                continue
            if not search.record.truths[number].ok or leaf >= len(search.record.truths[number].inputs):
                continue
            _simplify(search, number, leaf)


def _simplify(search: _Search, number: int, leaf: int) -> None:
    fills = (0.0, 1.0)
    written = next((each for each in search.best.probe.draws[number].literals if each.leaf == leaf), None)
    for fill in fills:
        plain = Explicit(leaf=leaf, fill=fill)
        # nothing is simpler than what is plain already, but a plainer fill
        if plain == written or _written(search, number, plain):
            return
    values = _values_of(search, number, leaf)
    if values is None or values.numel() > SINGLE_ELEMENTS:
        return
    current = _literal_of(search.best.probe.draws[number], leaf, values)
    if current.fill not in fills:
        return
    # whole numbers first: then most of what remains is simple already
    rounded = Explicit(leaf=leaf, fill=current.fill, places=current.places,
                       values=tuple(float(round(v)) for v in current.values))
    if _written(search, number, rounded):
        current = _literal_of(search.best.probe.draws[number], leaf, values)
    size = max(1, len(current.places) // 2)
    while not search.spent:
        start = 0
        while start < len(current.places) and not search.spent:
            fewer = Explicit(leaf=leaf, fill=current.fill,
                             places=(*current.places[:start], *current.places[start + size:]),
                             values=(*current.values[:start], *current.values[start + size:]))
            if _written(search, number, fewer):
                current = fewer
            else:
                start += size
        if size == 1:
            break
        size //= 2
    for place_of in range(len(current.places)):
        current = _rounder(search, number, current, place_of)


def _rounder(search: _Search, number: int, current: Explicit, position: int) -> Explicit:
    """The simplest number that does in one place."""
    value = current.values[position]
    signed = (1.0, -1.0, 2.0, -2.0, float(round(value)), round(value, 1))
    for simple in signed:
        if simple == value:
            break
        tried = current.model_copy(update={
            "values": (*current.values[:position], simple, *current.values[position + 1:])})
        if _written(search, number, tried):
            return tried
    return current


def _values_of(search: _Search, number: int, leaf: int) -> torch.Tensor | None:
    """Finite values of an input as it is now, before special values are put in; None where there are none."""
    tensor = search.record.truths[number].inputs[leaf].double().reshape(-1)
    return torch.nan_to_num(tensor, nan=0.0, posinf=0.0, neginf=0.0)


def _literal_of(draw: Draw, leaf: int, values: torch.Tensor) -> Explicit:
    """An input written down: as it is already, or in full over a fill of zeros."""
    found = next((each for each in draw.literals if each.leaf == leaf), None)
    if found is not None:
        return found
    places = values.nonzero().reshape(-1).tolist()
    return Explicit(leaf=leaf, fill=0.0, places=tuple(places), values=tuple(values[places].tolist()))


def _written(search: _Search, number: int, literal: Explicit) -> bool:
    """Try an input written down, where the task's domain admits it."""
    ctx, old = search.stage.ctx, search.best.probe
    structure = ctx.study.tensor_inputs()[literal.leaf].structure
    sample = search.record.truths[number].inputs[literal.leaf]
    flat = torch.full((sample.numel(),), literal.fill, dtype=torch.float64)
    if literal.places:
        flat[torch.tensor(literal.places)] = torch.tensor(literal.values, dtype=torch.float64)
    made = flat.reshape(sample.shape).to(sample.dtype)
    if structure is None or not admits(structure, made, ctx.study.complete(old.sizes)):
        return False
    draw = old.draws[number]
    if next((each for each in draw.literals if each.leaf == literal.leaf), None) == literal:
        return False
    kept = tuple(each for each in draw.literals if each.leaf != literal.leaf)
    literals = tuple(sorted((*kept, literal), key=lambda each: each.leaf))
    return _with(search, _redrawn(old, number, literals=literals))
