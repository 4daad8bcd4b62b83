"""PRC-02: the declared accumulator precision is really used."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.attribution import WORDS, attributed, effective_bits, explanation, fingerprint_of, with_bits
from assay.gates.base import Context, Verdict, distinct, fault_finding, own, single, undecided_reason
from assay.gates.numbers import Compared, compare_record, decides, finding
from assay.gates.numeric_plan import ACCUMULATES, LINEAR, admitted, lengths, right, silent_reason, uses
from assay.oracle import Fingerprint
from assay.probe import values
from assay.probe.model import Draw, Probe
from assay.probe.record import FAULTS, Record
from assay.vocabulary import Reason, Tier

COUNTING = ("ones", "constant_rows", "highest")
"""Equal terms, the first that the inputs take: a narrow accumulator stops counting them."""
ONE_SIGN = ("all_positive", "log_filled", "filled")
"""Long sums that do not cancel."""
EXACT = ("small_integers", "powers_of_two")
"""Terms whose partial sums are all representable: linear operators owe every bit."""


class Accumulation:
    """A fingerprint of the residual on ordinary data, then counting, one-signed and exact sums."""

    id = "PRC-02"
    slug = "accumulation"
    aliases = ("lethe:PRC-02", "veit:accumulation-precision")
    obligation = "declared accumulator precision is really used"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Ordinary data at two lengths and long counting data; then one-signed, exact and, in bfloat16, faint sums."""
        dtypes = {leaf.dtype for leaf in ctx.study.tensor_inputs()} | {p.dtype for p in ctx.study.parameters}
        if not any(name.startswith(("float", "bfloat", "complex")) for name in dtypes):
            return []
        moderate, long = lengths(ctx)
        plan = [
            single(
                self,
                f"plain@{moderate.name}",
                Draw(seed=ctx.draw_seed(self.slug, "fingerprint")),
                moderate.sizes,
                conditions=("modes:1",),
                kind="fingerprint",
            )
        ]
        counting = admitted(ctx, COUNTING)[:1]
        plan += [self._long(ctx, name, "counting", long.name, long.sizes) for name in counting]
        if ctx.quick:
            return plan
        if long != moderate:
            plan.append(
                single(
                    self,
                    f"plain@{long.name}",
                    Draw(seed=ctx.draw_seed(self.slug, "long")),
                    long.sizes,
                    # rounding to a narrow output hides a narrow accumulator at moderate lengths
                    conditions=("modes:1",) if dtypes & {"float16", "bfloat16"} else (),
                    kind="control",
                )
            )
        plan += [self._long(ctx, name, "exact", long.name, long.sizes) for name in admitted(ctx, EXACT)[:1]]
        plan += [
            self._long(ctx, name, "one_sign", long.name, long.sizes) for name in admitted(ctx, ONE_SIGN)[:1]
        ]
        if "bfloat16" in dtypes:
            # float16 has more bits than bfloat16, and a smaller range: only there do the two differ
            plan += [
                self._long(ctx, name, "range", moderate.name, moderate.sizes)
                for name in admitted(ctx, (values.FAINT,))
            ]
        if any(p.requires_grad for p in ctx.study.parameters):
            plan.append(
                single(
                    self,
                    f"parameters@{moderate.name}",
                    Draw(seed=ctx.draw_seed(self.slug, "parameters")),
                    moderate.sizes,
                    conditions=("modes:1",),
                    parameters=1,
                    kind="fingerprint",
                )
            )
        return plan

    def _long(self, ctx: Context, name: str, kind: str, at: str, sizes: dict[str, int]) -> Probe:
        return single(
            self, f"{name}@{at}", Draw(seed=ctx.draw_seed(self.slug, name), variant=name), sizes, kind=kind
        )

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """A residual that a lower precision explanation, or a long sum wrong where a plain one is right."""
        mine = own(self, records)
        if not mine or uses(mine, ACCUMULATES) is False:
            return Verdict(inapplicable=Reason.NOTHING_TO_VARY, note="the reference adds up nothing")
        verdict = Verdict()
        seen: list[tuple[Record, Fingerprint]] = []
        held: list[tuple[Record, list[Compared]]] = []
        for record in mine:
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif record.probe.kind == "range" and not set(record.truths[0].ops) <= LINEAR:
                # what is not linear may owe nothing that small, such as a tanh made of exponentials
                verdict.undecided[Reason.NOTHING_TO_VARY] += 1
            elif record.observation.status in FAULTS:
                if _right_on(("fingerprint", "control"), record, mine):
                    verdict.decided += 1
                    verdict.findings.append(fault_finding(self, record, Tier.VIOLATION))
                else:
                    verdict.undecided[Reason.RAISED] += 1
            else:
                self._compare(record, verdict, seen, held)
        known = ((s, explanation(s, compare_record(r))) for r, s in seen)
        explained = next(((s, mode) for s, mode in known if mode is not None), None)
        for record, wrong in held:
            self._settle(record, wrong, explained, mine, verdict)
        verdict.note = "; ".join(filter(None, (_bits(mine), _asked(mine, verdict), _unidentified(seen)))) or None
        # the fewest right bits first: they show that a narrow accumulator is no mere divergence
        verdict.findings.sort(key=lambda f: f.detail.get("effective_bits", 0.0))
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _compare(
        self,
        record: Record,
        verdict: Verdict,
        seen: list[tuple[Record, Fingerprint]],
        held: list[tuple[Record, list[Compared]]],
    ) -> None:
        """Count a record as decided, or hold it until it is known what explains its error."""
        compared = compare_record(record)
        if not decides(compared):
            verdict.undecided[silent_reason(record)] += 1
            return
        fingerprint = fingerprint_of(record)
        wrong = [c for c in compared if not c.result.ok]
        if fingerprint is not None:
            seen.append((record, fingerprint))
        if not wrong:
            verdict.decided += 1
        elif fingerprint is not None and (mode := explanation(fingerprint, compared)) is not None:
            verdict.decided += 1
            verdict.findings += [attributed(finding(self, record, c), c, fingerprint, mode) for c in wrong]
        else:
            held.append((record, wrong))

    def _settle(
        self,
        record: Record,
        wrong: list[Compared],
        explained: tuple[Fingerprint, str] | None,
        mine: Sequence[Record],
        verdict: Verdict,
    ) -> None:
        """A wrong result that no mode explains by itself.

        A finding where a sum of these sizes is right on other data: only its precision can be at fault.
        """
        if explained is not None:
            verdict.decided += 1
            verdict.findings += [attributed(finding(self, record, c), c, *explained) for c in wrong]
            return
        plain = record.probe.kind in ("fingerprint", "control")
        # whole numbers that come out right show that nothing but precision is at fault
        controls = ("exact",) if plain else ("fingerprint", "control", "exact")
        if not set(record.truths[0].ops) <= LINEAR or not _right_on(controls, record, mine):
            # not the accumulator's doing, as far as this can tell; other gates say what is wrong
            verdict.undecided[Reason.VALUE] += 1
            return
        verdict.decided += 1
        for compared in wrong:
            found = with_bits(finding(self, record, compared), compared)
            narrow = found.reason is Reason.VALUE
            verdict.findings.append(
                found.model_copy(update={"reason": Reason.NARROW_ACCUMULATOR}) if narrow else found
            )


def _right_on(kinds: Sequence[str], record: Record, mine: Sequence[Record]) -> bool:
    """Whether other probes of these kinds came out right at the sizes of a record."""
    same = (r for r in mine if r is not record and r.probe.sizes == record.probe.sizes)
    return any(right(r, declared=True) is True for r in same if r.probe.kind in kinds)


def _asked(mine: Sequence[Record], verdict: Verdict) -> str:
    """What emulated launches say of products whose TF32 was found, for whoever does not know Triton's default."""
    if all(f.reason is not Reason.PRECISION_TF32 for f in verdict.findings):
        return ""
    launches = [launch for r in mine for launch in r.observation.facts.get("launches", [])]
    asked = any(
        operands in ("fp32", "float32") and precision == "tf32"
        for launch in launches
        for operands, precision, _ in launch.get("dots", [])
    )
    return 'tl.dot multiplies float32 in TF32 unless input_precision="ieee" is asked for' if asked else ""


def _bits(mine: Sequence[Record]) -> str:
    """Bits that agree with the truth on ordinary data, at worst."""
    plain = [r for r in mine if r.probe.kind in ("fingerprint", "control") and r.comparable]
    known = [
        effective_bits(c) for r in plain for c in compare_record(r) if c.truth.kind in ("float", "complex")
    ]
    return f"effective bits {min(known):.1f}" if known else ""


def _unidentified(seen: Sequence[tuple[Record, Fingerprint]]) -> str:
    """Modes that no probe could have told from the declared precision."""
    modes = list(dict.fromkeys(m for _, s in seen for m in s.identifiable))
    blind = [WORDS[m] for m in modes if m in WORDS and not any(s.identifiable.get(m) for _, s in seen)]
    return f"could not tell {', '.join(blind)} from the declared precision" if blind else ""
