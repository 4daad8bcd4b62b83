"""A benchmark as one page of HTML that needs nothing else."""

from __future__ import annotations

import html

from assay.bench.model import BenchReport
from assay.bench.render import to_text

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ overflow-x: auto; padding: 1rem; border: 1px solid #8884; border-radius: .4rem }}
svg {{ width: 100%; height: auto }} .grid {{ stroke: #8884 }} text {{ font: 12px sans-serif; fill: currentColor }}
.candidate {{ fill: #0b6; stroke: #0b6 }} .eager {{ fill: #36c; stroke: #36c }} .compiled {{ fill: #c60; stroke: #c60 }}
</style></head><body><h1>{title}</h1><pre>{text}</pre>{plot}
<details><summary>JSON</summary><pre>{json}</pre></details></body></html>
"""
WIDTH, HEIGHT, LEFT, BOTTOM = 720, 240, 70, 30


def to_html(report: BenchReport) -> str:
    """The page: the report in words, cold times by round, and the data."""
    title = f"Benchmark of {report.task}"
    return _PAGE.format(title=html.escape(title), text=html.escape(to_text(report, width=100)), plot=_plot(report),
                        json=html.escape(report.to_json()))


def _plot(report: BenchReport) -> str:
    """Cold times of every contender by round, as SVG; nothing where there are none."""
    if not report.times:
        return ""
    most = max(max(t.cold_rounds) for t in report.times)
    count = max(len(t.cold_rounds) for t in report.times)

    def at(number: int, value: float) -> tuple[float, float]:
        across = (WIDTH - LEFT - 20) * (number + 0.5) / count
        return LEFT + across, (HEIGHT - BOTTOM) * (1 - 0.9 * value / most)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Cold times by round">']
    for share in (0.0, 0.5, 1.0):
        y = at(0, share * most)[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
                     f'<text x="4" y="{y + 4:.1f}">{share * most * 1e6:.1f} µs</text>')
    for place, times in enumerate(report.times):
        points = [at(i, v) for i, v in enumerate(times.cold_rounds)]
        parts += [f'<circle class="{times.name}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in points]
        parts.append(f'<text x="{LEFT + 110 * place}" y="{HEIGHT - 6}">● {html.escape(times.name)}</text>'
                     f'<circle class="{times.name}" cx="{LEFT + 110 * place + 4}" cy="{HEIGHT - 10}" r="5"/>')
    return "".join([*parts, "</svg>"])
