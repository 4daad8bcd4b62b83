"""A self-contained page: one file without scripts, requests or fonts of its own.

The candidate chose part of the text. It is escaped by the template engine, control and direction characters
are written out, and the page forbids itself scripts and requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay import __version__
from assay.report import drawing, phrases
from assay.report.exhibit import ErrorMap, PrecisionFingerprint, SourceExcerpt, SpecialInput
from assay.report.identity import fingerprints
from assay.report.model import Finding, GateResult, Report, canonical_json
from assay.report.words import MODES, OUTCOMES, REASONS, TIERS, printable
from assay.vocabulary import UNDECIDED, Outcome

PAGE = "report.html.j2"
MOST_SOURCE_LINES = 40


def render(report: Report) -> str:
    """The page of one report."""
    names = phrases.names_of(report)
    return environment().get_template(PAGE).render(
        report=report, label=report.label.value, names=names,
        verdict=phrases.verdict_text(report).partition(": ")[2], scope=phrases.scope_text(report),
        candidate=phrases.candidate_text(report, names), effort=phrases.effort_text(report),
        cautions=phrases.cautions(report), gates=[_gate(report, gate) for gate in report.gates],
        findings=[_finding(report, f, n, key) for n, (f, key) in
                  enumerate(zip(report.findings, fingerprints(report), strict=True), 1)],
        precision=[precision(seen) for seen in report.precision], conditions=list(_conditions(report)),
        exclusions=list(_exclusions(report)), contract=canonical_json(report.contract).strip(),
        command=phrases.command(report, names), version=__version__,
    )


@cache
def environment() -> Environment:
    """The templates; everything that they print is escaped."""
    return Environment(loader=PackageLoader("assay.report"), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True, finalize=_shown)


def _shown(value: Any) -> Any:
    """What a template prints, with control and direction characters written out; markup of ours as it is."""
    return value if isinstance(value, Markup) else "\n".join(map(printable, str(value).split("\n")))


def _gate(report: Report, gate: GateResult) -> dict[str, Any]:
    share = gate.probes_run / gate.probes_planned if gate.probes_planned else 0.0
    return {
        "slug": gate.slug, "id": gate.id, "outcome": gate.outcome.value, "word": OUTCOMES[gate.outcome],
        "coverage": phrases.coverage_text(gate), "percent": f"{100 * share:.1f}", "planned": gate.probes_planned,
        "note": phrases.gate_note(report, gate), "advisory": not gate.blocking,
        "first": next((n for n, f in enumerate(report.findings, 1) if f.slug == gate.slug), None),
    }


def _finding(report: Report, finding: Finding, number: int, key: str) -> dict[str, Any]:
    expected, actual = phrases.values(finding)
    return {
        "number": number, "slug": finding.slug, "gate": finding.gate, "reason": finding.reason.value,
        "words": REASONS[finding.reason], "tier": finding.tier.value, "tier_words": TIERS[finding.tier],
        "expected": expected, "actual": actual, "fingerprint": key,
        "facts": [fact for fact in phrases.facts(report, finding) if fact[0] not in ("expected", "got")],
        "map": error_map(finding.error_map, finding.index), "source": source(finding.source),
        "inputs": [special_input(given) for given in finding.special_inputs],
        "replay": phrases.replay_command(report, finding, phrases.names_of(report)),
        "repeat": phrases.repeat_command(report, finding, phrases.names_of(report)),
    }


def error_map(shown: ErrorMap | None, index: tuple[int, ...] | None) -> dict[str, Any] | None:
    """A map, its legend and its caption."""
    if shown is None:
        return None
    one = shown.cell == (1, 1)
    cell = "one cell per element" if one else f"each cell the worst of {shown.cell[0]} × {shown.cell[1]}"
    shape = " × ".join(map(str, shown.shape)) or "scalar"
    rows = f", the first {len(shown.shape) - 1} dimensions down" if len(shown.shape) > 2 else ""
    call = f" of call {shown.call}" if shown.call else ""
    return {"svg": Markup(drawing.error_map_svg(shown, index)), "bands": drawing.scale(shown).legend,
            "caption": f"{shown.output}{call}, {shape}{rows}; {cell}", "marked": index is not None,
            "wide": drawing.is_wide(shown), "ends": shown.matrix[1] - 1}


def special_input(given: SpecialInput) -> dict[str, Any]:
    """An input, its picture and its special values in words."""
    named = [f"{v.value} at [{', '.join(map(str, v.index))}]" for v in given.values]
    more = given.count - len(named)
    return {"svg": Markup(drawing.special_input_svg(given)),
            "name": f"input {given.input}, {' × '.join(map(str, given.shape)) or 'scalar'}",
            "values": ", ".join(named) + (f" and {more:,} more" if more > 0 else "")}


def source(excerpt: SourceExcerpt | None) -> list[tuple[int, str, bool]]:
    """Number and text of each line, and whether it is the one concerned."""
    if excerpt is None:
        return []
    return [(n, text, n == excerpt.line) for n, text in enumerate(excerpt.lines[:MOST_SOURCE_LINES], excerpt.first)]


def precision(seen: PrecisionFingerprint) -> dict[str, Any]:
    """The rows of the precision plot."""
    low, high = drawing.decades(seen)
    rows = []
    for mode in seen.modes:
        allowed = mode.ratio is not None and mode.ratio <= 1.0
        notes = [] if mode.correlation is None else [f"follows its prediction by {mode.correlation:.2f}"]
        if mode.identifiable is False:
            notes.append("cannot be told apart here")
        rows.append({
            "name": MODES.get(mode.mode, mode.mode), "chosen": mode.mode == seen.mode,
            "value": "not finite" if mode.ratio is None else f"{mode.ratio:.3g}×", "notes": "; ".join(notes),
            "svg": Markup(drawing.precision_svg(mode.ratio, low, high, allowed=allowed,
                                                blind=mode.identifiable is False)),
        })
    told = ("no arithmetic explains it" if seen.mode is None else
            f"explained by {MODES.get(seen.mode, seen.mode)}" + ("" if seen.recognised else ", by size alone"))
    return {"probe": seen.probe, "rows": rows, "told": told, "bits": f"{seen.effective_bits:g}",
            "low": low, "high": high, "one": round(drawing.place(1.0, low, high), 2)}


def _conditions(report: Report) -> Iterator[tuple[str, str]]:
    """What the verdict was decided on."""
    yield "reference", f"{report.task.id} ({report.task.format}), SHA-256 {report.task.sha256}"
    yield "candidate", f"SHA-256 {report.candidate.sha256}"
    if report.candidate.kernels:
        yield "kernels", ", ".join(report.candidate.kernels)
    if report.candidate.weights:
        yield "parameters", report.candidate.weights
    for name, value in sorted(report.environment.items()):
        if isinstance(value, dict):
            told = ", ".join(f"{k} {_listed(v)}" for k, v in sorted(value.items()) if v not in ("", [], None))
            yield name.replace("_", " "), told
        elif value is not None:
            yield name.replace("_", " "), str(value)
    yield "seed", str(report.seed)
    if report.seed_commitment:
        told = "announced before the candidate first ran" if report.seed_nonce else "of a seed that was given"
        yield "seed commitment", f"{report.seed_commitment} ({told})"
    if report.seed_nonce:
        yield "seed nonce", report.seed_nonce


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _exclusions(report: Report) -> Iterator[tuple[str, str]]:
    """What the verdict does not rest on, gate by gate and over all."""
    for gate in report.gates:
        if gate.outcome is Outcome.NOT_APPLICABLE or gate.outcome in UNDECIDED:
            yield gate.slug, f"{OUTCOMES[gate.outcome]}: {phrases.gate_note(report, gate) or 'no reason given'}"
        elif gate.undecided:
            told = ", ".join(f"{count} {REASONS_BY_VALUE.get(name, name)}" for name, count in gate.undecided.items())
            yield gate.slug, f"probes that decided nothing: {told}"
    cover = report.coverage
    if cover.unmodelled:
        yield "oracle", f"treated conservatively: {', '.join(cover.unmodelled)}"
    if cover.attested_by_worker:
        yield "attested", f"by the candidate's own process alone: {', '.join(cover.attested_by_worker)}"


REASONS_BY_VALUE = {reason.value: words for reason, words in REASONS.items()}
