"""The plots of an audit's page, as SVG that takes the page's own colours."""

from __future__ import annotations

import io
import re
from typing import Any

from assay.audit.floors import COMPOSITIONS, POLICIES
from assay.audit.statistics import Rate
from assay.audit.summary import THRESHOLDS, Class, Summary
from assay.errors import InputError

_INK, _LINE = "#010203", "#040506"
_BAD, _GOOD, _OPEN, _NONE, _SECOND = "#070809", "#0a0b0c", "#0d0e0f", "#101112", "#131415"
_PAGE_COLOURS = {_INK: "currentColor", _LINE: "var(--line)", _BAD: "var(--bad)", _GOOD: "var(--good)",
                 _OPEN: "var(--open)", _NONE: "var(--undecided)", _SECOND: "var(--link)"}
"""Colours that stand for the page's, put in their place once the drawing is text."""
_WIDTH = 8.2
MOST = 24
"""Bars of one plot."""


def plots(summary: Summary) -> dict[str, str]:
    """SVG by the key of the table that it goes with. Raises InputError without matplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("plots need matplotlib", "", "pip install 'assay[audit]'") from None
    settings = {"svg.hashsalt": "assay", "svg.fonttype": "none", "font.size": 10, "axes.edgecolor": _LINE,
                "axes.labelcolor": _INK, "text.color": _INK, "xtick.color": _INK, "ytick.color": _INK,
                "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
                "font.family": "sans-serif", "grid.color": _LINE}
    drawn: dict[str, str] = {}
    with matplotlib.rc_context(settings):
        if summary.whole.decided:
            drawn["gates"] = _svg(_gates(Figure, summary), "Outcome of each gate")
            drawn["floors"] = _svg(_floors(Figure, summary), "Strict floor by composition and NaN policy")
            if len(summary.classes) > 1:
                drawn["classes"] = _svg(_rates(Figure, summary.classes), "Rates by class of operation")
        if summary.speedups:
            drawn["fast"] = _svg(_fast(Figure, summary), "fast_p")
        if len(summary.groups["month"]) > 1:
            drawn["month"] = _svg(_drift(Figure, summary.groups["month"]), "Rejected by month")
    return drawn


def _svg(figure: Any, title: str) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None, "Creator": None})
    body = text.getvalue()
    body = body[body.index("<svg"):]
    for stands, colour in _PAGE_COLOURS.items():
        body = body.replace(stands, colour)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    return body.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def _axes(kind: Any, rows: int, height: float = 0.27) -> tuple[Any, Any]:
    figure = kind(figsize=(_WIDTH, max(1.6, 0.8 + height * rows)))
    return figure, figure.subplots()


def _gates(kind: Any, summary: Summary) -> Any:
    """Stacked shares of what became of each gate."""
    slugs = list(summary.gates)
    figure, axes = _axes(kind, len(slugs))
    left = [0.0] * len(slugs)
    parts = (("fail", ("fail",), _BAD), ("pass", ("pass",), _GOOD),
             ("not decided", ("inconclusive", "error"), _OPEN), ("not applicable", ("not_applicable",), _NONE))
    for label, outcomes, colour in parts:
        shares = []
        for slug in slugs:
            counts = summary.gates[slug]
            shares.append(100 * sum(counts[o] for o in outcomes) / max(1, sum(counts.values())))
        axes.barh(slugs, shares, left=left, color=colour, height=0.72, label=label)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of decided kernels")
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=4)
    axes.tick_params(length=0)
    return figure


def _errors(rates: list[Rate]) -> list[list[float]]:
    low = [100 * ((r.value or 0.0) - r.interval[0]) if r.total else 0.0 for r in rates]
    high = [100 * (r.interval[1] - (r.value or 0.0)) if r.total else 0.0 for r in rates]
    return [[max(0.0, x) for x in low], [max(0.0, x) for x in high]]


def _values(rates: list[Rate]) -> list[float]:
    return [100 * (r.value or 0.0) for r in rates]


def _floors(kind: Any, summary: Summary) -> Any:
    figure, axes = _axes(kind, len(COMPOSITIONS), 0.5)
    for turn, (policy, colour) in enumerate(zip(POLICIES, (_BAD, _OPEN, _SECOND), strict=True)):
        rates = [summary.rate(summary.floors[name, policy]) for name in COMPOSITIONS]
        places = [i + 0.25 * (turn - 1) for i in range(len(rates))]
        axes.barh(places, _values(rates), height=0.22, color=colour, label=policy, xerr=_errors(rates),
                  error_kw={"ecolor": _INK, "elinewidth": 0.8, "capsize": 2})
    axes.set_yticks(range(len(COMPOSITIONS)), list(COMPOSITIONS))
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("% of decided kernels, 95% interval")
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3)
    return figure


def _rates(kind: Any, groups: dict[str, Class]) -> Any:
    names = sorted(groups, key=lambda n: -groups[n].decided)[:MOST]
    figure, axes = _axes(kind, len(names), 0.4)
    for shift, colour, label in ((-0.19, _BAD, "rejected"), (0.19, _OPEN, "strict floor")):
        rates = [Rate(groups[n].rejected if shift < 0 else groups[n].strict, groups[n].decided) for n in names]
        axes.barh([i + shift for i in range(len(names))], _values(rates), height=0.34, color=colour, label=label,
                  xerr=_errors(rates), error_kw={"ecolor": _INK, "elinewidth": 0.8, "capsize": 2})
    axes.set_yticks(range(len(names)), [f"{n} ({groups[n].decided})" for n in names])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of decided kernels, 95% interval")
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)
    return figure


def _fast(kind: Any, summary: Summary) -> Any:
    figure, axes = _axes(kind, 8)
    lines = [("claimed", "as claimed", _NONE, summary.speedups),
             ("contract", "contract in front", _GOOD, summary.speedups)]
    if summary.screened:
        lines.insert(1, ("screened", "screen in front", _SECOND, summary.screened))
    for key, label, colour, total in lines:
        rates = [Rate(summary.fast[t][key], total) for t in THRESHOLDS]
        places = range(len(THRESHOLDS))
        axes.plot(places, _values(rates), color=colour, label=label, marker="o", markersize=3.5)
        low, high = _errors(rates)
        axes.fill_between(places, [v - e for v, e in zip(_values(rates), low, strict=True)],
                          [v + e for v, e in zip(_values(rates), high, strict=True)], color=colour, alpha=0.15)
    axes.set_xticks(range(len(THRESHOLDS)), [f"{t:g}×" for t in THRESHOLDS])
    axes.set_xlabel("faster than")
    axes.set_ylabel("% of kernels with a speedup")
    axes.set_ylim(0, 102)
    axes.grid(axis="y", linewidth=0.6)
    axes.legend()
    return figure


def _drift(kind: Any, months: dict[str, Class]) -> Any:
    names = sorted(months)
    figure, axes = _axes(kind, 8)
    rates = [Rate(months[n].rejected, months[n].decided) for n in names]
    axes.errorbar(range(len(names)), _values(rates), yerr=_errors(rates), color=_BAD, marker="o", markersize=4,
                  ecolor=_INK, elinewidth=0.8, capsize=2)
    step = max(1, len(names) // 12)
    axes.set_xticks(range(0, len(names), step), names[::step])
    axes.set_ylabel("% rejected of decided")
    axes.set_ylim(0, 102)
    axes.grid(axis="y", linewidth=0.6)
    return figure
