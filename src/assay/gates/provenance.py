"""INT-02: the work is done by the candidate's own kernel, where the contract asks for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from assay.gates.base import Context, Verdict, distinct, own
from assay.gates.kernel_names import is_library, is_neutral
from assay.gates.numbers import same_bits
from assay.probe import values
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

REQUIRED_SHARE = 0.5
"""Least share of the elementary operations that own kernels do under `provenance = "required"`."""
_ELSEWHERE = frozenset({"ways", "eval", "autocast"})
"""Kinds of probes in which torch may rightly take over, as where a kernel without a backward is trained."""
_WIDER = ("wide10", "wide100", "both_ends", "filled")


class Provenance:
    """Launches counted on every probe; then what kernels store is corrupted, and what torch does is counted.

    Under `auto` a candidate that defines kernels may leave work to torch, but not all of it: its result has
    to depend on what its kernels store, and must not be an operation's of torch that a kernel only copies.
    Under `required` its kernels also do at least half of the elementary operations.
    """

    id = "INT-02"
    slug = "provenance"
    aliases: tuple[str, ...] = ("lethe:provenance",)
    obligation = "the work is done by the candidate's own kernel, where the contract asks for one"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Three calls with everything counted, and the same twice with corrupted stores."""
        if self._waived(ctx) or ctx.language == "torch" or (ctx.device == "cpu" and not _triton(ctx)):
            return []
        names = [
            name
            for leaf in ctx.study.tensor_inputs()
            if leaf.structure is not None
            for name in values.variants(leaf.structure)
        ]
        wider = next((name for name in _WIDER if name in names), "task")
        draws = (
            Draw(seed=ctx.draw_seed(self.slug, 0)),
            Draw(seed=ctx.draw_seed(self.slug, 1), variant=wider),
        )
        # as constructed, scales are ones and biases zeros, and an epilogue would look like a copy
        parameters = 1 if any(p.requires_grad for p in ctx.study.parameters) else 0
        return [
            Probe(
                id=f"{self.slug}/{kind}",
                gate=self.slug,
                kind=kind,
                sizes=ctx.sizes,
                draws=draws,
                calls=(Call(), Call(draw=1), Call()),
                conditions=conditions,
                parameters=parameters,
            )
            for kind, conditions in (
                ("work", ("work:1", *_clock(ctx))),
                # on a GPU what a kernel stored is told by what changed, so memory must not hold it beforehand
                ("corrupt-1", ("corrupt:1",) if ctx.device == "cpu" else ("corrupt:1", "fresh:5a")),
                ("corrupt-2", ("corrupt:2",) if ctx.device == "cpu" else ("corrupt:2", "fresh:a5")),
            )
            # what a kernel stores can be corrupted where its launches pass through Triton
            if kind == "work" or _triton(ctx)
        ]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """A candidate that defines kernels has to run them, and their results have to matter."""
        if self._waived(ctx):
            note = "a plain torch candidate owes no kernel" if ctx.contract.provenance == "auto" else None
            return Verdict(inapplicable=Reason.BY_CONTRACT, note=note)
        if ctx.device == "cpu" and not _triton(ctx) and ctx.language != "torch":
            return Verdict(inapplicable=Reason.NEEDS_GPU, note=f"work of {ctx.language} kernels is timed on a GPU")
        verdict = Verdict()
        for record in records:
            if ((_triton(ctx) or ctx.language == "torch") and record.observation.ran and record.probe.gate == "values"
                    and record.probe.kind not in _ELSEWHERE):
                self._launches(ctx, record, verdict)
        mine = {r.probe.kind: r for r in own(self, records)}
        if "work" in mine and not verdict.findings:
            if _triton(ctx):
                self._dataflow(ctx, mine, verdict)
            else:
                self._timed(ctx, mine["work"], verdict)
        if not verdict.findings:
            for record in records:
                verdict.findings += self._later_calls(record)
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _waived(self, ctx: Context) -> bool:
        wanted = ctx.contract.provenance
        return wanted == "none" or (wanted == "auto" and ctx.language == "torch")

    def _launches(self, ctx: Context, record: Record, verdict: Verdict) -> None:
        facts = record.observation.facts
        if "launch_count" not in facts:
            verdict.undecided[Reason.NEEDS_GPU] += 1
            return
        launches = facts.get("launches", [])
        if any(launch.get("completed") for launch in launches):
            verdict.decided += 1
            return
        error = next((launch.get("error") for launch in launches if launch.get("error")), None)
        if str(error).startswith("NeedsGpu") or (not launches and ctx.sizes and not _native(ctx, record)):
            # the emulated device could not run it, or a small size may take another path than the native one
            verdict.undecided[Reason.EMULATION] += 1
            return
        verdict.decided += 1
        tried = sorted({str(launch.get("kernel")) for launch in launches})
        reason = Reason.KERNEL_NEVER_RAN if tried or ctx.language != "torch" else Reason.NO_OWN_KERNEL
        actual = f"no launch of {', '.join(tried)} completed" if tried else "no kernel was launched"
        verdict.findings.append(
            self._found(record, reason, actual, {"error": str(error)[:300]} if error else {})
        )

    def _dataflow(self, ctx: Context, mine: dict[str, Record], verdict: Verdict) -> None:
        """Does the result depend on what the kernels store, or did torch compute it?"""
        base = mine["work"]
        corrupted = [
            mine[k]
            for k in ("corrupt-1", "corrupt-2")
            if k in mine and mine[k].observation.status != "not_run"
            and mine[k].observation.facts.get("replaced") != 0
        ]
        if not base.observation.ran or not corrupted:
            verdict.undecided[Reason.BUDGET if base.observation.status == "not_run" else Reason.RAISED] += 1
            if base.observation.status == "not_run" or not corrupted:
                # that kernels are launched does not say that their results matter
                verdict.decided = 0
            return
        own_work, library = _counted(base)
        total = own_work + sum(library.values())
        share = own_work / total if total else 0.0
        rest = ", ".join(f"{name} {count:,}" for name, count in library.most_common(4))
        verdict.note = f"own kernels do {share:.0%} of {total:,} {_unit(base)}" + (
            f"; torch: {rest}" if rest else ""
        )
        calls = base.observation.calls
        if all(
            same_bits(a.tensor, b.tensor) for a, b in zip(calls[0].outputs, calls[1].outputs, strict=False)
        ):
            # one result whatever the input: nothing can be said about where it comes from
            verdict.undecided[Reason.WEAK_TASK] += 1
            return
        verdict.decided += 1
        if not own_work or all(_same_outputs(base, record) for record in corrupted):
            verdict.findings.append(
                self._found(
                    base,
                    Reason.LIBRARY_DID_THE_WORK,
                    "the result does not depend on what the kernels store",
                    {"torch": dict(library.most_common(8)), "share": round(share, 4)},
                )
            )
        elif all(operator := _reproduced(base, record) for record in corrupted):
            verdict.findings.append(
                self._found(
                    base,
                    Reason.LIBRARY_DID_THE_WORK,
                    f"torch computes the result ({operator}), a kernel only copies it",
                    {"torch": dict(library.most_common(8)), "share": round(share, 4)},
                )
            )
        elif all(operator := _scaled(base, record) for record in corrupted):
            verdict.findings.append(
                self._found(
                    base,
                    Reason.LIBRARY_DID_THE_WORK,
                    f"torch computes the result ({operator}) up to a scale and an offset",
                    {"torch": dict(library.most_common(8)), "share": round(share, 4)},
                )
            )
        elif operators := _repeated(base):
            verdict.findings.append(
                self._found(
                    base,
                    Reason.LIBRARY_DID_THE_WORK,
                    f"torch does every operation of the reference ({', '.join(operators)})",
                    {"torch": dict(library.most_common(8)), "share": round(share, 4)},
                )
            )
        elif ctx.contract.provenance == "required" and share < REQUIRED_SHARE:
            verdict.findings.append(
                self._found(
                    base,
                    Reason.LIBRARY_DID_THE_WORK,
                    f"own kernels do {share:.0%} of the operations, less than {REQUIRED_SHARE:.0%}",
                    {"torch": dict(library.most_common(8)), "share": round(share, 4)},
                )
            )

    def _timed(self, ctx: Context, base: Record, verdict: Verdict) -> None:
        """Does any kernel of its own run, and for how long, where launches cannot be watched?"""
        calls = base.observation.facts.get("per_call", [])
        if not base.observation.ran or any(not call.get("kernels") for call in calls):
            verdict.undecided[Reason.TOOLCHAIN if base.observation.ran else Reason.RAISED] += 1
            return
        own_time, library = _counted(base)
        total = own_time + sum(library.values())
        share = own_time / total if total else 0.0
        verdict.decided += 1
        verdict.note = f"own kernels take {share:.0%} of {total / 1000:,.0f} microseconds on the device"
        if not own_time or (ctx.contract.provenance == "required" and share < REQUIRED_SHARE):
            actual = (f"own kernels take {share:.0%} of the time, less than {REQUIRED_SHARE:.0%}" if own_time
                      else "every kernel that ran is the library's")
            verdict.findings.append(self._found(base, Reason.LIBRARY_DID_THE_WORK, actual,
                                                {"library": dict(library.most_common(8)), "share": round(share, 4)}))

    def _later_calls(self, record: Record) -> list[Finding]:
        """A call without a launch although the first call of the same instance had one."""
        per_call = record.observation.facts.get("per_call", [])
        if not record.observation.ran or record.probe.kind in _ELSEWHERE:
            return []
        launched = [seen.get("launches") for seen in per_call]
        if None in launched or not launched or not launched[0]:
            return []
        return [
            self._found(
                record,
                Reason.KERNEL_NEVER_RAN,
                f"call {number} launched no kernel, call 0 launched {launched[0]}",
                {"call": number},
            )
            for number, (call, count) in enumerate(zip(record.probe.calls, launched, strict=False))
            if count == 0 and call.instance == 0 and record.probe.draws[call.draw].variant == "task"
        ][:1]

    def _found(self, record: Record, reason: Reason, actual: str, detail: dict[str, object]) -> Finding:
        return Finding(
            gate=self.id,
            slug=self.slug,
            reason=reason,
            tier=Tier.VIOLATION,
            tolerance_free=True,
            expected="a kernel of its own does the work",
            actual=actual[:300],
            detail=detail,
            attested_by="worker",
            probe=record.probe.id,
        )


def _native(ctx: Context, record: Record) -> bool:
    native = ctx.study.native()
    return all(native.get(name) == value for name, value in record.probe.sizes.items())


def _counted(record: Record) -> tuple[int, Counter[str]]:
    """Work of own kernels and, by name, of torch, over all calls: operations, or nanoseconds on a GPU."""
    library: Counter[str] = Counter()
    own_work = 0
    for seen in record.observation.facts.get("per_call", []):
        if seen.get("own_ns") or seen.get("library_ns"):
            # a launch whose time is not known still is one
            own_work += int(seen.get("own_ns") or seen.get("launches") or 0)
            library.update({str(k): int(v) for k, v in (seen.get("library_ns") or {}).items()})
            continue
        if seen.get("kernels"):
            for name, spent in seen["kernels"]:
                if is_library(name) and not is_neutral(name):
                    library[name[:80]] += spent
                elif not is_neutral(name):
                    own_work += spent
            continue
        own_work += int(seen.get("own") or seen.get("launches") or 0)
        library.update({str(k): int(v) for k, v in (seen.get("library") or {}).items()})
    return own_work, library


def _triton(ctx: Context) -> bool:
    """Whether the candidate's launches pass through Triton, where they can be watched and corrupted."""
    return bool({"triton", "gluon"} & {ctx.language, *ctx.languages})


def _clock(ctx: Context) -> tuple[str, ...]:
    """What tells who did the work: counts under emulation, events at launches, the profiler for anything else.

    The profiler takes seconds to start. It alone sees what launches itself, as replayed graphs and extensions do,
    so that a share that is owed is measured with it.
    """
    if ctx.device == "cpu":
        return ()
    return ("events:1",) if _triton(ctx) and ctx.contract.provenance != "required" else ("profile:1",)


def _unit(record: Record) -> str:
    calls = record.observation.facts.get("per_call", [])
    timed = any(call.get("kernels") or call.get("own_ns") for call in calls)
    return "nanoseconds of kernel time" if timed else "elementary operations"


def _same_outputs(base: Record, other: Record) -> bool:
    """Whether a run with corrupted kernels returned the same bits in every call."""
    one, two = base.observation.calls, other.observation.calls
    return (
        other.observation.ran
        and len(one) == len(two)
        and all(
            len(a.outputs) == len(b.outputs)
            and all(same_bits(x.tensor, y.tensor) for x, y in zip(a.outputs, b.outputs, strict=True))
            for a, b in zip(one, two, strict=True)
        )
    )


def _reproduced(base: Record, corrupted: Record) -> str:
    """The operator of torch that makes the candidate's result even when kernels are corrupted; else empty."""
    clean: Sequence[dict[str, Any]] = base.observation.facts.get("per_call", [])
    dirty: Sequence[dict[str, Any]] = corrupted.observation.facts.get("per_call", [])
    operators = []
    if not clean or len(clean) != len(dirty):
        return ""
    for number, (one, two) in enumerate(zip(clean, dirty, strict=True)):
        marks = list(one.get("outputs", []))
        made = {mark: name for name, mark in two.get("results", [])}
        count = Counter(mark for _, mark in two.get("results", []))
        own = _of_reference(base, number, "equal", len(marks))
        if not any(marks) or any(mark and count[mark] < max(1, least) for mark, least in zip(marks, own, strict=True)):
            return ""
        operators += [made[mark] for mark in marks if mark]
    return str(operators[-1])


def _scaled(base: Record, corrupted: Record) -> str:
    """The operator of torch whose result, whatever kernels store, is every output up to scale and offset."""
    clean: Sequence[dict[str, Any]] = base.observation.facts.get("per_call", [])
    dirty: Sequence[dict[str, Any]] = corrupted.observation.facts.get("per_call", [])
    operators = []
    if not clean or len(clean) != len(dirty):
        return ""
    for number, (one, two) in enumerate(zip(clean, dirty, strict=True)):
        unmoved = {mark for _, mark in two.get("results", [])}
        outputs = range(len(one.get("outputs", [])))
        own = _of_reference(base, number, "affine", len(outputs))
        for output, least in zip(outputs, own, strict=True):
            found = [name for name, mark, place in one.get("affine", []) if place == output and mark in unmoved]
            if len(found) < max(1, least):
                return ""
            operators.append(found[-1])
    return str(operators[-1]) if operators else ""


def _of_reference(base: Record, call: int, kind: str, outputs: int) -> list[int]:
    """Per output, how many results of the reference's operators are it already.

    More than one where the last steps change nothing on this draw, as a clamp far outside the data: a kernel
    that takes such a step also hands on what torch computed.
    """
    counts = list(base.truth_of(call).work.get(kind, []))
    return [int(n) for n in counts] if len(counts) == outputs else [1] * outputs


def _repeated(base: Record) -> list[str]:
    """The reference's operators, if torch does each of them in every call, at its full cost."""
    names: list[str] = []
    for number, seen in enumerate(base.observation.facts.get("per_call", [])):
        theirs, done = (_by_name(work) for work in (base.truth_of(number).work.get("library") or {},
                                                    seen.get("library") or {}))
        if not theirs or any(done[name] < cost for name, cost in theirs.items()):
            return []
        names = sorted(theirs)
    return names


def _by_name(work: dict[str, Any]) -> Counter[str]:
    """Costs by operator, in place or not."""
    found: Counter[str] = Counter()
    for name, cost in work.items():
        found[str(name).rstrip("_")] += int(cost)
    return found
