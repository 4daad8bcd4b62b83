"""A scoreboard for a terminal, as Markdown, as JSON and as plots."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.audit.statistics import Rate
from assay.errors import InputError
from assay.scoreboard.score import Score

if TYPE_CHECKING:
    from rich.console import Console

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def shown(rate: Rate) -> str:
    """`98.5% (97.1-99.2)`; a dash for an empty denominator."""
    if rate.value is None:
        return "-"
    low, high = rate.interval
    return f"{100 * rate.value:.1f}% ({100 * low:.1f}-{100 * high:.1f})"


def _rates(rates: dict[str, Rate]) -> list[tuple[str, ...]]:
    return [(name, f"{rate.count}/{rate.total}", shown(rate)) for name, rate in rates.items()]


def tables(found: Score) -> list[Table]:
    """Title, head and lines of each table."""
    result: list[Table] = [
        ("Mutants killed, by tier", ("tier", "killed", "rate, Wilson 95%"), _rates(found.killed)),
        ("Mutants killed at the standard tier, by kind of fault", ("kind", "killed", "rate, Wilson 95%"),
         _rates(found.by_kind)),
        ("Mutants that a screen passes", ("screen", "missed", "rate, Wilson 95%"), _rates(found.missed)),
        ("Faults of precision that a screen passes", ("screen", "missed", "rate, Wilson 95%"),
         _rates({v: kinds.get("precision", Rate(0, 0)) for v, kinds in found.missed_by_kind.items()})),
        ("Right candidates rejected, by kind", ("control", "rejected", "rate, Wilson 95%"), _rates(found.alarms)),
        ("Right candidates rejected, by dtype", ("dtype", "rejected", "rate, Wilson 95%"),
         _rates(found.alarms_by_dtype)),
        ("Published sets, remade", ("set", "as expected", "rate, Wilson 95%"), _rates(found.published)),
        ("Gates", ("gate", "exercised", "found", "alone", "shared", "alarms", "undecided", ""),
         [(g.slug, str(g.exercised), str(g.fired), str(g.sole),
           "-" if g.redundancy is None else f"{100 * g.redundancy:.0f}%", str(g.alarms), str(g.undecided),
           "VACUOUS" if g.vacuous else g.elsewhere.replace("_", " ")) for g in found.gates]),
        ("Under other policies", ("policy", "killed", "rate, Wilson 95%", "false alarms"),
         [(name, f"{kill.count}/{kill.total}", shown(kill), f"{alarm.count}/{alarm.total}")
          for name, (kill, alarm) in found.policies.items()]),
        ("Mutants killed, by operator", ("operator", "killed", "rate, Wilson 95%"), _rates(found.by_operator)),
    ]
    return [t for t in result if t[2]]


def summary(found: Score) -> str:
    """The scoreboard in a few lines."""
    m = found.metrics
    lines = [
        f"{m['killed']:.0f} of {m['mutants']:.0f} mutants killed, of {m['subjects']:.0f} operators and "
        f"{m['operators']:.0f} mutation operators; precision faults {m['precision_killed']:.0f} of "
        f"{m['precision_mutants']:.0f}",
        f"not counted: {found.equivalent} without a witness, {found.stillborn} that never run",
        f"the usual screen passes {m['screen_missed']:.0f} of {m['screen_judged']:.0f} of these mutants",
        f"{m['false_alarms']:.0f} of {m['controls']:.0f} right candidates rejected, {found.undecided} undecided",
    ]
    if found.vacuous:
        lines.append(f"vacuous gates: {', '.join(found.vacuous)}")
    if found.alarmed:
        lines.append(f"rejected although right: {', '.join(found.alarmed)}")
    return "\n".join(lines)


def terminal(found: Score, out: Console) -> None:
    """Print tables and summary."""
    from rich.table import Table as Rich

    for title, head, lines in tables(found):
        table = Rich(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=title, title_justify="left")
        for name in head:
            table.add_column(name, justify="left" if name == head[0] else "right")
        for line in lines:
            table.add_row(*line)
        out.print(table)
        out.print()
    out.print(summary(found), soft_wrap=True)


def markdown(found: Score) -> str:
    """Tables, summary, and every survivor by name."""
    parts = ["# Scoreboard\n", summary(found).replace("\n", "\n\n"), ""]
    for title, head, lines in tables(found):
        parts += [f"## {title}\n", _line(head), _line("---" for _ in head), *map(_line, lines), ""]
    if found.survivors:
        parts += ["## Survivors\n", *(f"- `{name}`" for name in found.survivors), ""]
    return "\n".join(parts)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def to_json(found: Score) -> str:
    """The scoreboard as canonical JSON."""
    from dataclasses import fields

    def plain(value: Any) -> Any:
        if isinstance(value, Rate):
            return value.to_json()
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        if hasattr(value, "__dataclass_fields__"):
            return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
        return value

    data = {**plain(found), "metrics": found.metrics, "vacuous": list(found.vacuous)}
    return json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n"


def plots(found: Score, folder: Path) -> list[Path]:
    """Kill rate by kind of fault beside the screen's, and kill rate against the tolerances, as SVG.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        raise InputError("plots need matplotlib", "-o", "pip install 'assay[audit]', or leave -o out") from None
    matplotlib.rcParams["svg.hashsalt"] = "assay"
    kinds = list(found.by_kind)
    figure, axes = pyplot.subplots(figsize=(8, 4))
    screens = found.missed_by_kind
    width = 0.8 / (1 + len(screens))
    series = {"assay standard": [found.by_kind[k].value or 0.0 for k in kinds]}
    for variant, rates in screens.items():
        series[variant] = [1 - (rates[k].value or 0.0) if k in rates and rates[k].total else 0.0 for k in kinds]
    for i, (name, values) in enumerate(series.items()):
        axes.bar([x + i * width for x in range(len(kinds))], [100 * v for v in values], width, label=name)
    axes.set_xticks([x + 0.4 - width / 2 for x in range(len(kinds))], kinds)
    axes.set_ylabel("mutants rejected, %")
    axes.legend(fontsize="small", loc="lower left")
    paths = [folder / "kinds.svg"]
    figure.tight_layout()
    figure.savefig(paths[0], metadata={"Date": None})
    pyplot.close(figure)
    figure, axes = pyplot.subplots(figsize=(8, 4))
    for name, curve in found.curves.items():
        right = name == "controls"
        axes.plot([f for f, _ in curve], [100 * r for _, r in curve], label="right candidates" if right else name,
                  linewidth=2.5 if name in ("all", "controls") else 1.2, linestyle="--" if right else "-")
    axes.set_xscale("log")
    axes.set_xlabel("multiple of every tolerance")
    axes.set_ylabel("rejected, %")
    axes.legend(fontsize="small")
    figure.tight_layout()
    paths.append(folder / "tolerance.svg")
    figure.savefig(paths[1], metadata={"Date": None})
    pyplot.close(figure)
    return paths
