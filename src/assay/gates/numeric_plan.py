"""Where sums grow long: sizes that lengthen a reduction, data that punish it, and what a control decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.gates.attribution import accounted_for, numeric_findings
from assay.gates.base import Context, Gate, Verdict, distinct, fault_finding, own, single, undecided_reason
from assay.gates.numbers import compare_record, decides, same_form
from assay.probe import values
from assay.probe.beside import legal, nearest, varying
from assay.probe.model import Draw, Probe
from assay.probe.record import FAULTS, Record
from assay.task.facts import Study, TaskSize
from assay.vocabulary import EffortTier, Reason, Tier

ACCUMULATES = frozenset(
    {
        "sum",
        "nansum",
        "mean",
        "prod",
        "cumsum",
        "cumprod",
        "logcumsumexp",
        "logsumexp",
        "var",
        "var_mean",
        "std",
        "std_mean",
        "norm",
        "linalg_vector_norm",
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "addbmm",
        "mv",
        "addmv",
        "dot",
        "vdot",
        "convolution",
        "_convolution",
        "convolution_backward",
        "_softmax",
        "_log_softmax",
        "scaled_dot_product_attention",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "_adaptive_avg_pool2d",
        "_adaptive_avg_pool3d",
        "_embedding_bag",
        "_embedding_bag_forward_only",
        "scatter_add",
        "index_add",
        "segment_reduce",
        "_cdist_forward",
        "_pdist_forward",
        "_euclidean_dist",
        "_trilinear",
        "_fft_r2c",
        "_fft_c2c",
        "_fft_c2r",
        "linalg_inv_ex",
        "linalg_lu_factor_ex",
        "linalg_cholesky_ex",
        "linalg_solve_triangular",
        "triangular_solve",
    }
)
"""Operators of a replay that add or multiply many numbers, so that an accumulator holds partial results."""
SELECTS = frozenset(
    {
        "amax",
        "amin",
        "aminmax",
        "max",
        "min",
        "argmax",
        "argmin",
        "cummax",
        "cummin",
        "topk",
        "sort",
        "median",
        "kthvalue",
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
    }
)
"""Operators that carry a running choice along an axis."""
LINEAR = frozenset(
    {"sum", "mean", "mm", "bmm", "mv", "dot", "convolution", "cumsum", "add", "neg", "_unsafe_view", "avg_pool1d",
     "avg_pool2d", "avg_pool3d"}
)
"""Operators whose result is a sum of their inputs with weights: equal terms make it a count."""

LONG, MODERATE = 8192, 1024
"""Lengths aimed at: past the 2,048 at which a float16 count stops, and short enough that nothing stops."""
ELEMENTS = 1 << 17
"""Elements of inputs, parameters and outputs that one probe may take outside the deep tier."""
SLOW_SECONDS = 2.0
"""Longest candidate call planned for, as far as the pilot foretells."""
FEW = 4
"""What the sizes beside the lengthened one are brought down to, no further."""


@dataclass(frozen=True)
class Length:
    """Sizes at which a reduction is long."""

    name: str
    """Readable, such as `K=8192`; `native` where nothing can be lengthened."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Overrides of the task's integers."""
    value: int = 0
    """The lengthened integer's value; 0 for native."""


def lengths(ctx: Context) -> tuple[Length, Length]:
    """Sizes with a moderate and with a long reduction; those of other gates where nothing can be longer.

    Moderate is 1,024, or four of the candidate's blocks: long enough for several tiles, and short enough
    that the bound is not all summation.

    The integer that is lengthened moves an input but no output, so that it is summed over; where there is
    none, one that moves an inner dimension of both, as in a softmax. Values are powers of two wherever
    the task allows, so that missing tail masks, which are another gate's matter, do not show. The other
    sizes are halved until the probe is within budget. An integer at whose length the device lacked the
    resources is lengthened last, and less: a kernel that holds whole rows in shared memory is no wrong kernel.
    """
    native = Length("native", dict(ctx.sizes))
    wanted = LONG
    if ctx.blocks and ctx.blocks[-1] * 2 > LONG:
        wanted = 4 * ctx.blocks[-1]
    between = max([MODERATE, *(4 * block for block in ctx.blocks if block <= MODERATE)])
    for group, ceiling in sorted(_candidates(ctx.study), key=lambda item: item[0][0] in ctx.refused):
        most = min(wanted, ceiling)
        if group[0] in ctx.refused:
            most = min(most, ctx.refused[group[0]] // 4)
        found = [
            length
            for goal in _halves(most, 256)
            if (length := _at(ctx, group, goal)) is not None
        ]
        if found:
            moderate = next((length for length in found if length.value <= between), found[-1])
            return moderate, found[0]
    return native, native


def _halves(start: int, end: int) -> list[int]:
    values = []
    while start >= end:
        values.append(start)
        start //= 2
    return values


def _candidates(study: Study) -> list[tuple[tuple[str, ...], int]]:
    """Integers worth lengthening with the length that each may have, the most telling first."""
    contracted, shared = [], []
    sizes = {size.name: size for size in study.integers}
    for group in varying(study, ("size",)):
        names = set(group)
        places = [
            (d, len(leaf.axes))
            for leaf in study.inputs
            for d, axis in enumerate(leaf.axes)
            if names & set(axis.integers)
        ]
        weights = any(names & set(axis.integers) for leaf in study.parameters for axis in leaf.axes)
        kept = any(names & set(axis.integers) for leaf in study.outputs for axis in leaf.axes)
        last = any(d == dims - 1 for d, dims in places)
        order = (not last, -sizes[group[0]].native)
        if not kept and (places or weights):
            contracted.append((order, group, LONG * 4))
        elif any(d > 0 for d, _ in places):
            # what lies between may grow with the square of an inner size, as scores of attention do
            shared.append((order, group, LONG * 4 if last else 512))
    return [(group, ceiling) for _, group, ceiling in [*sorted(contracted), *sorted(shared)]]


def _at(ctx: Context, group: tuple[str, ...], goal: int) -> Length | None:
    """Sizes with one group at a length and the others small; None where that is no gain or too dear."""
    study = ctx.study
    by_name = {size.name: size for size in study.integers}
    head = by_name[group[0]]
    current = ctx.sizes.get(head.name, head.native)
    value = nearest(head, goal)
    if not legal(head, value) or not (value > current or value >= 4096):
        return None
    sizes = {**ctx.sizes, **dict.fromkeys(group, value)}
    budget = ctx.element_limit if ctx.deep else min(ctx.element_limit, ELEMENTS)
    others = [g for g in varying(study, ("size",)) if g != group]
    while sum(study.elements(sizes)) > budget:
        shrinkable = [
            (sizes.get(g[0], by_name[g[0]].native), g) for g in others if _half(by_name[g[0]], sizes)
        ]
        if not shrinkable:
            return None
        _, largest = max(shrinkable)
        sizes.update(dict.fromkeys(largest, _half(by_name[largest[0]], sizes)))
    before = max(1, sum(study.elements(ctx.sizes)))
    # a loop that takes the lengthened size step by step grows with it, however few elements there are
    growth = max(sum(study.elements(sizes)) / before, value / max(1, current))
    if ctx.call_seconds * growth > SLOW_SECONDS:
        return None
    return Length(f"{head.name}={value}", sizes, value)


def _half(size: TaskSize, sizes: dict[str, int]) -> int:
    """Half of a size, or 0 where it should not be smaller."""
    current = sizes.get(size.name, size.native)
    value = nearest(size, current // 2)
    return value if FEW <= value < current and legal(size, value) else 0


def admitted(ctx: Context, wanted: Sequence[str]) -> list[str]:
    """Those of the wanted variations that some floating input takes, in the order wanted."""
    structures = [
        leaf.structure
        for leaf in ctx.study.tensor_inputs()
        if leaf.structure is not None and leaf.dtype.startswith(("float", "bfloat"))
    ]
    return [name for name in wanted if any(values.takes(name, structure) for structure in structures)]


def probes_on(gate: Gate, ctx: Context, length: Length, variants: Sequence[str]) -> list[Probe]:
    """A control on the task's own data and one probe for each variation, all at one length."""
    if not any(leaf.dtype.startswith(("float", "bfloat", "complex")) for leaf in ctx.study.tensor_inputs()):
        return []
    plan = [
        single(
            gate,
            f"plain@{length.name}",
            Draw(seed=ctx.draw_seed(gate.slug, "plain")),
            length.sizes,
            kind="control",
        )
    ]
    most = {EffortTier.QUICK: 1, EffortTier.STANDARD: 5, EffortTier.DEEP: 12}[ctx.tier]
    # a real device may have no room for a kernel at the longer size: then the ordinary size has to tell
    shorter = []
    if ctx.device == "cuda" and length.name != "native":
        shorter = probes_on(gate, ctx, Length("native", dict(ctx.sizes)), variants[:2])
    return plan + [
        single(
            gate,
            f"{name}@{length.name}",
            Draw(seed=ctx.draw_seed(gate.slug, name), variant=name),
            length.sizes,
            kind=name,
        )
        for name in variants[:most]
    ] + shorter


def silent_reason(record: Record) -> Reason:
    """Why outputs decide nothing: another form than the reference's, or an unstable reference."""
    same = all(same_form(record.truth_of(i), call) for i, call in enumerate(record.observation.calls))
    return Reason.UNSTABLE_REFERENCE if same else Reason.SHAPE


def right(record: Record, *, declared: bool = False) -> bool | None:
    """Whether the candidate is right on a record; None where it decides nothing.

    Args:
        record: what it did.
        declared: only in the declared precision; otherwise a lower one that accounts for its errors will do.
    """
    if undecided_reason(record) is not None:
        return None
    if record.observation.status in FAULTS:
        return False
    compared = compare_record(record)
    if not decides(compared):
        return None
    return all(c.result.ok for c in compared) or (not declared and accounted_for(record, compared))


def uses(records: Sequence[Record], operators: frozenset[str]) -> bool | None:
    """Whether the reference uses any of the operators; None where no truth tells."""
    known = [truth for record in records for truth in record.truths if truth.ok]
    return any(operators & set(truth.ops) for truth in known) if known else None


def judge_long(gate: Gate, records: Sequence[Record], operators: frozenset[str], nothing: str) -> Verdict:
    """Judge one control and its variations: wrong on a variation and right on the control is a finding.

    Args:
        operators: what the reference must use for the gate to apply.
        nothing: the note where it uses none.
    """
    mine = own(gate, records)
    if not mine or uses(mine, operators) is False:
        return Verdict(inapplicable=Reason.NOTHING_TO_VARY, note=nothing)
    verdict = Verdict()
    lengths_tried: dict[str, list[Record]] = {}
    for record in mine:
        lengths_tried.setdefault(record.probe.id.partition("@")[2], []).append(record)
    # the first length at which the candidate is right on ordinary data
    mine = next((group for group in lengths_tried.values()
                 if any(r.probe.kind == "control" and right(r) is True for r in group)), mine)
    control = next((r for r in mine if r.probe.kind == "control"), None)
    if control is None or right(control) is not True:
        # wrong on ordinary data of this length: that is no matter of how the data are ordered
        for record in mine:
            reason = undecided_reason(record)
            verdict.undecided[reason if reason is not None else Reason.VALUE] += 1
        verdict.note = (
            "wrong on the task's own data at this length: nothing to tell apart" if control else None
        )
        return verdict
    for record in mine:
        if (reason := undecided_reason(record)) is not None:
            verdict.undecided[reason] += 1
        elif record.observation.status in FAULTS:
            verdict.decided += 1
            verdict.findings.append(fault_finding(gate, record, Tier.VIOLATION))
        else:
            compared = compare_record(record)
            if not decides(compared):
                verdict.undecided[silent_reason(record)] += 1
                continue
            verdict.decided += 1
            verdict.findings += numeric_findings(gate, record, compared)
    tried = ", ".join(r.probe.kind for r in mine if r is not control)
    verdict.note = f"at {control.probe.id.partition('@')[2]}: {tried}" if tried else None
    verdict.findings = distinct(verdict.findings)
    return verdict
