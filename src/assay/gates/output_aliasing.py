"""ALS-01: an output shares no storage with an input or with an earlier output."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct, own, undecided_reason
from assay.gates.numbers import first_difference, same_bits, shown
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Output, Record, Truth
from assay.report.model import Finding
from assay.vocabulary import EffortTier, Reason, Tier

CALLS = {EffortTier.QUICK: 4, EffortTier.STANDARD: 6, EffortTier.DEEP: 12}


class OutputAliasing:
    """Several calls whose results are kept; each must stay what it was, in a storage of its own."""

    id = "ALS-01"
    slug = "output_aliasing"
    aliases: tuple[str, ...] = ("lethe:output_aliasing", "veit:aliasing")
    obligation = "output shares no storage with an input or with an earlier output"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Calls on two draws in turn, all results kept: more calls than a ring of buffers has places."""
        draws = tuple(Draw(seed=ctx.draw_seed(self.slug, i)) for i in range(2))
        return [
            Probe(
                id=f"{self.slug}/keep",
                gate=self.slug,
                kind="alias",
                sizes=ctx.small,
                draws=draws,
                calls=tuple(Call(draw=i % 2) for i in range(CALLS[ctx.tier])),
            )
        ]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Storages are compared as the worker reports them; changed results are found by their bytes."""
        if ctx.contract.memory.aliasing == "allow":
            return Verdict(inapplicable=Reason.BY_CONTRACT)
        verdict = Verdict()
        for record in own(self, records):
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif len(record.observation.calls) < 2:
                verdict.undecided[Reason.RAISED] += 1
            else:
                verdict.decided += 1
                verdict.findings += self._earlier(record)
                verdict.findings += self._inputs(ctx, record)
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _earlier(self, record: Record) -> list[Finding]:
        found = []
        calls = record.observation.calls
        for number, late in enumerate(record.observation.late or ()):
            for then, now in zip(calls[number].outputs, late, strict=True):
                if not same_bits(then.tensor, now):
                    index = first_difference(then.tensor, now)
                    found.append(
                        self._finding(
                            record,
                            Reason.EARLIER_OUTPUT_CHANGED,
                            then,
                            shown(then.tensor[index].item()),
                            shown(now[index].item()),
                            index,
                        )
                    )
        if found:
            return found
        for number, call in enumerate(calls):
            for output in call.outputs:
                earlier = next(
                    (n for n in range(number) if any(_overlap(output, o) for o in calls[n].outputs)), None
                )
                if earlier is not None:
                    found.append(
                        self._finding(
                            record,
                            Reason.ALIASES_EARLIER_OUTPUT,
                            output,
                            "a storage of its own",
                            f"the storage of call {earlier}",
                            None,
                        )
                    )
        return found

    def _inputs(self, ctx: Context, record: Record) -> list[Finding]:
        """Outputs in the storage of an input or parameter, less what the reference or the contract allows."""
        facts = record.observation.facts
        found = []
        for number, call in enumerate(record.observation.calls):
            allowed = self._allowed(ctx, record.truth_of(number))
            ranges = [
                r
                for leaf, r in enumerate(facts.get("inputs", {}).get(str(number), ()))
                if leaf not in allowed
            ]
            for output in call.outputs:
                if output.storage_bytes and _inside(output, ranges):
                    found.append(
                        self._finding(
                            record,
                            Reason.ALIASES_INPUT,
                            output,
                            "a storage of its own",
                            "the storage of an input",
                            None,
                        )
                    )
                elif (
                    output.storage_bytes
                    and not self._shares_parameters(ctx)
                    and _inside(output, facts.get("parameters", ()))
                ):
                    found.append(
                        self._finding(
                            record,
                            Reason.ALIASES_INPUT,
                            output,
                            "a storage of its own",
                            "the storage of a parameter",
                            None,
                        )
                    )
        return found

    def _allowed(self, ctx: Context, truth: Truth) -> set[int]:
        """Inputs whose storage an output may share."""
        named = ctx.contract.memory.inplace
        leaves = ctx.study.tensor_inputs()
        allowed = {
            i
            for i, leaf in enumerate(leaves)
            if str(i) in named or ".".join(str(p) for p in leaf.path) in named
        }
        return allowed | (set(truth.aliases) if ctx.contract.memory.aliasing == "reference" else set())

    def _shares_parameters(self, ctx: Context) -> bool:
        return ctx.contract.memory.aliasing == "reference" and any(
            share.startswith("parameter ") for leaf in ctx.study.outputs for share in leaf.shares
        )

    def _finding(
        self,
        record: Record,
        reason: Reason,
        output: Output,
        expected: str,
        actual: str,
        index: tuple[int, ...] | None,
    ) -> Finding:
        return Finding(
            gate=self.id,
            slug=self.slug,
            reason=reason,
            tier=Tier.VIOLATION,
            tolerance_free=True,
            output=output.path,
            index=index,
            expected=expected,
            actual=actual,
            probe=record.probe.id,
            attested_by="judge" if reason is Reason.EARLIER_OUTPUT_CHANGED else "worker",
        )


def _inside(output: Output, ranges: Sequence[Sequence[int]]) -> bool:
    return any(start <= output.storage_ptr < end for start, end in ranges)


def _overlap(a: Output, b: Output) -> bool:
    return bool(a.storage_bytes and b.storage_bytes and a.storage_ptr and a.storage_ptr == b.storage_ptr)
