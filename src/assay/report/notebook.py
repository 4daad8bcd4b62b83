"""How reports and findings look in a notebook: compact, in the notebook's own colours, without ids or styles of
their own that could reach other cells.
"""

from __future__ import annotations

from html import escape

from assay.report import drawing, phrases
from assay.report.model import Finding, Report
from assay.report.words import OUTCOMES, REASONS, printable
from assay.vocabulary import UNDECIDED, Label, Outcome, Tier

MOST_FINDINGS = 12
_TONES = {Label.REJECTED: "#d1453b", Label.SCREENED: "#b7791f", Label.CONTRACT: "#2f8f5b"}
_TIER_TONES = {Tier.WRONG: "#d1453b", Tier.VIOLATION: "#b7791f", Tier.DIVERGENCE: "#2b7fb8"}
_LINE = "rgb(128 128 128 / 30%)"
_FILLS = {
    "exact": "rgb(128 128 128 / 12%)", "within": "rgb(47 143 91 / 35%)", "over1": "#fde9b0", "over2": "#fcc766",
    "over3": "#f79a3e", "over4": "#e8612c", "over5": "#c22f2b", "over6": "#7f1330", "certain": "#8a55d6",
    "undecided": "rgb(128 128 128 / 45%)",
}
"""Colours that can be seen on a light and on a dark page."""


def report_html(report: Report) -> str:
    """The label, the gates that did not pass and the findings."""
    tone = _TONES[report.label]
    label, told = report.label.value, phrases.verdict_text(report).partition(": ")[2]
    rows = []
    for gate in report.gates:
        if gate.outcome is Outcome.FAIL or gate.outcome in UNDECIDED:
            cells = (gate.slug, OUTCOMES[gate.outcome], phrases.coverage_text(gate), phrases.gate_note(report, gate))
            rows.append("<tr>" + "".join(f'<td style="text-align:left;padding:1px 14px 1px 0">{_text(cell)}</td>'
                                         for cell in cells) + "</tr>")
    gates = f'<table style="border:0;margin:6px 0 0">{"".join(rows)}</table>' if rows else ""
    found = "".join(finding_html(f, number) for number, f in enumerate(report.findings[:MOST_FINDINGS], 1))
    left = len(report.findings) - MOST_FINDINGS
    more = f'<div style="opacity:.7">and {left} more</div>' if left > 0 else ""
    return (f'<div style="border-left:4px solid {tone};padding:2px 0 2px 12px;line-height:1.45">'
            f'<div><b style="color:{tone};font-size:1.15em">{label}</b> on {_text(report.scope)}: {_text(told)}</div>'
            f'<div style="opacity:.7">{_text(phrases.scope_text(report))}; {_text(phrases.effort_text(report))}</div>'
            f"{gates}{found}{more}</div>")


def finding_html(finding: Finding, number: int | None = None) -> str:
    """What was expected, what came and where, with the error map folded away."""
    tone = _TIER_TONES[finding.tier]
    expected, actual = phrases.values(finding)
    known = [("expected", expected), ("got", actual), ("where", phrases.where(finding)), ("why", phrases.why(finding)),
             ("probe", finding.probe)]
    rows = "".join(f'<tr><td style="text-align:left;opacity:.7;padding:0 12px 0 0;vertical-align:top">{label}</td>'
                   f'<td style="text-align:left;padding:0;overflow-wrap:anywhere">{_text(text)}</td></tr>'
                   for label, text in known if text)
    count = "" if number is None else f"{number}. "
    shown = ""
    if finding.error_map is not None:
        svg = drawing.error_map_svg(finding.error_map, finding.index)
        shape = " × ".join(map(str, finding.error_map.shape)) or "scalar"
        shown = (f'<details><summary style="cursor:pointer">error map of {_text(finding.error_map.output)}, '
                 f"{shape}</summary>{_coloured(svg)}{_legend(finding)}</details>")
    return (f'<div style="border:1px solid {_LINE};border-radius:6px;padding:6px 12px;margin:8px 0 0;line-height:1.4">'
            f"<div><b>{count}{_text(finding.slug)}</b>: {REASONS[finding.reason]} "
            f'<span style="color:{tone}">{finding.tier.value}</span> <code>{finding.reason.value}</code></div>'
            f'<table style="border:0;margin:2px 0">{rows}</table>{shown}</div>')


def _coloured(svg: str) -> str:
    """The drawing with its colours written into it, because a notebook has no style sheet for it."""
    for name, fill in _FILLS.items():
        svg = svg.replace(f'class="band-{name}"', f'fill="{fill}"')
    return (svg.replace('class="frame"', f'fill="none" stroke="{_LINE}"')
            .replace('class="mark"', 'fill="none" stroke="#3b82f6" stroke-width="2" vector-effect="non-scaling-stroke"')
            .replace('class="tick"', 'fill="currentColor" font-size="10" font-family="monospace"'))


def _legend(finding: Finding) -> str:
    assert finding.error_map is not None
    items = "".join(
        f'<span style="margin-right:12px"><span style="display:inline-block;width:10px;height:10px;margin-right:4px;'
        f'background:{_FILLS[name]}"></span>{words}</span>' for name, words in drawing.scale(finding.error_map).legend)
    return f'<div style="font-size:.88em;opacity:.85">{items}</div>'


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
