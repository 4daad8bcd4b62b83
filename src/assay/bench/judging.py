"""From what was seen to times that count, or the reasons for which they do not. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.bench.clocks import Allowance, Told, left_behind, told
from assay.bench.model import Baseline, BenchFinding, Concern, Times
from assay.bench.rounds import Seen
from assay.bench.statistics import interval, ratio

TAIL_S = 1e-4
"""Seconds that other streams go on in a batch before anyone asks why."""
TAIL_SHARE = 0.1
"""Share of a batch that they may go on for."""
KINDS = {"cold": Concern.WRONG_OUTPUT, "warm": Concern.WRONG_OUTPUT, "witness": Concern.LATE_OUTPUT}
"""What a wrong output is by the kind of its batch, the kinds that outdo those after them first."""


def clocks_of(seen: Seen, allowance: Allowance, trusted: Mapping[str, Told] | None = None) -> dict[str, Told]:
    """What both clocks say of cold and of warm calls; nothing where a kind was not run.

    Args:
        seen: what the rounds brought of a contender.
        allowance: how far the clocks may be apart on a machine that does nothing else.
        trusted: what they say of a contender whose word is believed: a busy machine holds up both.
    """
    found = {}
    for kind, idle in {"cold": seen.batches["flush"], "warm": seen.batches["empty"]}.items():
        if (batches := seen.batches[kind]) and idle:
            beside = (trusted or {}).get(kind)
            found[kind] = told(batches, idle, allowance.beside(beside, batches[0].calls))
    return found


def times_of(name: str, clocks: Mapping[str, Told], peak: int | None, *, trusted: bool = False) -> Times:
    """Times of a contender of which both kinds were run.

    Args:
        name: of the contender.
        clocks: what both clocks say, by kind.
        peak: bytes of memory, where somebody counted.
        trusted: whether it is code of the judge's side, whose word counts whatever a busy machine makes of the
            judge's clock: a baseline that seems slow would make a candidate look fast.
    """
    cold, warm = clocks["cold"], clocks["warm"]
    cold_rounds, warm_rounds = (told.claimed if trusted else told.counting for told in (cold, warm))
    return Times(
        name=name, cold=interval(cold_rounds), warm=interval(warm_rounds), cold_rounds=cold_rounds,
        warm_rounds=warm_rounds, judge_cold=interval(cold.seen).value, judge_warm=interval(warm.seen).value,
        peak_bytes=peak)


def baseline_of(theirs: Times, own: Times) -> Baseline:
    """Ratios of a baseline's times to the candidate's, paired by round."""
    return Baseline(name=theirs.name, speedup=ratio(theirs.cold_rounds, own.cold_rounds),
                    speedup_warm=ratio(theirs.warm_rounds, own.warm_rounds))


def findings_of(seen: Seen, clocks: Mapping[str, Told], facts: Mapping[str, Any]) -> list[BenchFinding]:
    """Why the candidate's times do not count."""
    found = []
    if seen.stopped is not None:
        concern = Concern.FORGED if seen.stopped.forged else Concern.STOPPED
        found.append(BenchFinding(concern=concern, detail={"status": seen.stopped.status, "text": seen.stopped.text}))
    kind = next((kind for kind in KINDS if kind in seen.mistakes), "")
    if kind:
        mistake = seen.mistakes[kind]
        found.append(BenchFinding(
            concern=KINDS[kind], round=mistake.round, kind=kind, count=mistake.count, output=mistake.wrong.output,
            expected=mistake.wrong.expected, actual=mistake.wrong.actual, tolerance=mistake.wrong.tolerance))
    types = sorted({t for batches in seen.batches.values() for b in batches for t in b.types})
    if types:
        found.append(BenchFinding(concern=Concern.LAZY_OUTPUT, detail={"types": types[:5]}, attested_by="worker"))
    for kind, each in clocks.items():
        if each.contradicted:
            found.append(BenchFinding(concern=Concern.CLOCK_DISAGREES, kind=kind, detail={
                "worker_s": interval(each.claimed).value, "judge_s": interval(each.seen).value}))
    # by kind: in a cold batch the emptying of the caches hides what went on
    shares = {kind: left_behind(seen.batches[kind], TAIL_S) for kind in ("warm", "cold") if seen.batches[kind]}
    kind = max(shares, key=lambda k: shares[k], default="")
    if kind and shares[kind] > TAIL_SHARE:
        found.append(BenchFinding(concern=Concern.WORK_LEFT_BEHIND, kind=kind, detail={"share": shares[kind]},
                                  attested_by="worker"))
    if facts.get("patched"):
        found.append(BenchFinding(concern=Concern.PATCHED, detail={"names": list(facts["patched"])[:6]},
                                  attested_by="worker"))
    if facts.get("threads"):
        found.append(BenchFinding(concern=Concern.BACKGROUND, detail={"threads": list(facts["threads"])[:6]},
                                  attested_by="worker"))
    return found


def why_left_out(seen: Seen, compiled: bool | None = None) -> str | None:
    """Why a baseline is no baseline; None for one that is.

    Args:
        seen: what the rounds brought of it.
        compiled: whether anything was compiled of what was to be; None where nothing was to be.
    """
    if seen.stopped is not None:
        return str(seen.stopped)[:300]
    if seen.mistakes:
        wrong = next(iter(seen.mistakes.values())).wrong
        return f"its own output is outside the tolerance: expected {wrong.expected}, got {wrong.actual}"
    if not (seen.batches["cold"] and seen.batches["warm"]):
        return "it was not timed"
    if compiled is False:
        return "torch.compile compiled nothing of it"
    return None
