"""Sentences on a report, shared by every renderer that people read. Prose is made here and nowhere else."""

from __future__ import annotations

import math
import shlex

from assay.report.model import Finding, GateResult, Names, Report
from assay.report.words import REASONS, TIERS, UNDECIDED_REASONS, WEAKNESSES, describe_probe, shortened
from assay.vocabulary import Label, Outcome, Reason

TAIL_CHARS = 600


def verdict_text(report: Report) -> str:
    """The label with its scope, and what it rests on, in one sentence."""
    gates = report.gates
    failed = [g.slug for g in gates if g.outcome is Outcome.FAIL]
    undecided = [g.slug for g in gates if g.blocking and g.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)]
    passed = sum(1 for g in gates if g.outcome is Outcome.PASS)
    if report.label is Label.REJECTED:
        text = f"{len(failed)} of {len(gates)} gates failed ({', '.join(failed)})"
    elif report.label is Label.SCREENED:
        if undecided:
            text = f"nothing wrong found, but undecided: {', '.join(undecided)}"
        else:
            text = "nothing wrong found, but the contract asks for more than this scope decides"
    else:
        text = f"{passed} of {len(gates)} gates passed"
        rest = [g for g in gates if g.outcome is Outcome.NOT_APPLICABLE and g.reason is not Reason.NEEDS_GPU]
        if rest:
            text += f", {len(rest)} not applicable"
        if failed:
            text += f"; findings that do not block: {', '.join(failed)}"
    needing = report.coverage.gates_need_gpu
    if needing:
        count = len(needing)
        text += f"; {count} gate{'s need' if count > 1 else ' needs'} a GPU ({', '.join(needing)})"
    return f"{report.label.value} on {report.scope}: {text}"


def scope_text(report: Report) -> str:
    """The stack that the verdict is of, the effort and the seed."""
    target = report.environment.get("emulated_target")
    scope = f"{report.scope} of {target}" if target else report.scope
    return f"{scope}, tier {report.tier}, seed {report.seed}"


def candidate_text(report: Report, names: Names) -> str:
    """The candidate as given, with its language and entry point."""
    entry = f" {report.candidate.entry}" if report.candidate.entry else ""
    return f"{names.candidate} ({report.candidate.language}{entry})"


def effort_text(report: Report) -> str:
    """How many probes were run, and where the time went."""
    cover, t = report.coverage, report.timing
    earlier = f", and {cover.probes_replayed} that failed before," if cover.probes_replayed else ""
    return (f"{cover.probes_run} of {cover.probes_planned} probes{earlier} run in {t.total_s:.1f} s "
            f"(start {t.start_s:.1f}, study {t.study_s:.1f}, oracle {t.oracle_s:.1f}, "
            f"candidate {t.candidate_s:.1f}; the last two overlap)")


def cautions(report: Report) -> list[tuple[str, str]]:
    """What a reader should know beside the verdict, each with its label."""
    known = [("hint", f"{hint.rule} ({hint.severity}): {hint.evidence}; a static rule's hit, no part of the verdict")
             for hint in report.candidate.hints]
    if report.task.weak:
        what = ", or ".join(WEAKNESSES.get(str(w), str(w)) for w in report.task.weak)
        known.append(("weak task", f"returning {what} would pass the usual check at 1e-2"))
    if report.coverage.unmodelled:
        known.append(("unmodelled", "treated conservatively by the oracle: " + ", ".join(report.coverage.unmodelled)))
    return known


def names_of(report: Report) -> Names:
    """What the files were called, or names that stand for them where the verdict was not asked for by files."""
    return report.names or Names("REFERENCE", "CANDIDATE")


def gate_note(report: Report, gate: GateResult) -> str:
    """Why a gate came out as it did, in a few words."""
    parts = [] if gate.blocking else ["advisory"]
    if gate.outcome is Outcome.FAIL:
        reasons = dict.fromkeys(f.reason for f in report.findings if f.slug == gate.slug)
        parts.append("; ".join(REASONS[reason] for reason in reasons))
        return ": ".join(parts)
    if gate.outcome is Outcome.INCONCLUSIVE and gate.reason is not None:
        # a fault that another gate reports can leave this one without anything to tell apart
        parts.append(REASONS[gate.reason] if gate.reason in UNDECIDED_REASONS else "wrong already without it")
    if gate.outcome is Outcome.NOT_APPLICABLE and gate.reason is not None and not gate.note:
        parts.append(REASONS[gate.reason])
    if gate.note:
        parts.append(gate.note)
    open_probes = {Reason(k): v for k, v in gate.undecided.items()}
    if gate.outcome is Outcome.PASS and open_probes:
        parts += [f"{count} undecided: {REASONS[reason]}" for reason, count in open_probes.items()]
    return "; ".join(part for part in parts if part)


def coverage_text(gate: GateResult) -> str:
    """Probes that gave a gate something to judge, of those planned for it."""
    return f"{gate.probes_run}/{gate.probes_planned}" if gate.probes_planned else "-"


def headline(finding: Finding) -> str:
    """The gate and what is wrong, in one line."""
    return f"{finding.slug} ({finding.gate}): {REASONS[finding.reason]} [{finding.reason.value}]"


def values(finding: Finding) -> tuple[str, str]:
    """Expected and actual as texts, cut to the digits that matter where they still differ then."""
    expected, actual = shortened(finding.expected or "-"), shortened(finding.actual or "-")
    return (finding.expected or "-", finding.actual or "-") if expected == actual else (expected, actual)


def facts(report: Report, finding: Finding) -> list[tuple[str, str]]:
    """What is known of a finding, each fact with its label; the replay command aside."""
    expected, actual = values(finding)
    probe = report.probes.get(finding.probe)
    known = [
        ("expected", expected),
        ("got", actual),
        ("where", where(finding)),
        ("why", why(finding)),
        ("printed", " ".join(str(finding.detail.get("printed") or "").split())[-TAIL_CHARS:]),
        ("probe", f"{finding.probe}: {describe_probe(probe)}" if probe else finding.probe),
        ("smallest", smallest(report, finding)),
        ("attested", "by the candidate's own process alone" if finding.attested_by == "worker" else ""),
    ]
    return [(label, text) for label, text in known if text]


def smallest(report: Report, finding: Finding) -> str:
    """The smallest input that shows a finding, and what comes of it; empty where none was looked for."""
    small = finding.minimal
    if small is None:
        return ""
    probe = report.probes.get(small.probe)
    parts = [describe_probe(probe) if probe else small.probe]
    if small.elements is not None:
        parts.append(f"{small.elements:,} input elements")
    parts.append(f"expected {shortened(small.expected or '-')}, got {shortened(small.actual or '-')}")
    return "; ".join(parts)


def where(finding: Finding) -> str:
    """Output, element and place."""
    parts = []
    if finding.output is not None:
        index = f"[{', '.join(map(str, finding.index))}]" if finding.index is not None else ""
        named = finding.output == "out" or finding.output.startswith("input")
        parts.append(f"{'' if named else 'output '}{finding.output}{index}")
    elif finding.index is not None:
        parts.append(f"[{', '.join(map(str, finding.index))}]")
    wrong, total = finding.detail.get("wrong_elements"), finding.detail.get("elements")
    if wrong is not None and total is not None:
        parts.append(f"{wrong:,} of {total:,} elements wrong")
    if finding.detail.get("call") is not None:
        parts.append(f"call {finding.detail['call']}")
    if finding.detail.get("place"):
        parts.append(str(finding.detail["place"]))
    return ", ".join(parts)


def why(finding: Finding) -> str:
    """How it weighs, and the error against the tolerance."""
    parts = [TIERS[finding.tier]]
    if finding.error is not None and finding.tolerance is not None and not finding.tolerance_free:
        ratio = finding.error / finding.tolerance if finding.tolerance else math.inf
        times = f", {ratio:.3g} times" if math.isfinite(ratio) else ", above"
        parts.append(f"error {finding.error:.3g}{times} the tolerance {finding.tolerance:.3g}")
        contributions = finding.detail.get("tolerance_parts")
        if isinstance(contributions, dict):
            parts_of = [(name, value) for name, value in contributions.items()
                        if isinstance(value, (int, float)) and value > 0.01 * finding.tolerance]
            shown = [f"{name} {value:.2g}" for name, value in sorted(parts_of, key=lambda part: (-part[1], part[0]))]
            if shown:
                parts.append("tolerance from " + " + ".join(shown))
        if finding.detail.get("dominant_operation"):
            parts.append(f"mostly {finding.detail['dominant_operation']}")
    elif finding.tolerance_free:
        parts.append("no tolerance involved")
    return "; ".join(parts)


def command(report: Report, names: Names) -> str:
    """The command that asks for the same verdict again."""
    return shlex.join(["assay", "verify", names.reference, names.candidate, "--seed", str(report.seed), *names.options])


def replay_command(report: Report, finding: Finding, names: Names) -> str:
    """The command that shows a finding again: from the store, or by the same seed and the gates that are needed."""
    if finding.id:
        return shlex.join(["assay", "replay", finding.id, *(["--store", names.store] if names.store else [])])
    return repeat_command(report, finding, names)


def repeat_command(report: Report, finding: Finding, names: Names) -> str:
    """The command that shows a finding again without a store: the same seed, and the gates that are needed."""
    probe = report.probes.get(finding.probe)
    wanted = [finding.slug]
    known = {gate.slug for gate in report.gates}
    if probe is not None and probe.gate != finding.slug and probe.gate in known:
        wanted.append(probe.gate)
    words = ["assay", "verify", names.reference, names.candidate, "--seed", str(report.seed)]
    for slug in wanted:
        words += ["--only", slug]
    return shlex.join([*words, *names.options])
