"""A benchmark as text for a terminal, a pipe or a log file: what counts first, then what it rests on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from assay.bench.model import BenchFinding, BenchReport, Concern, Interval
from assay.report.words import printable

WORDS = {
    Concern.WRONG_OUTPUT: "a timed call returned a wrong result",
    Concern.LATE_OUTPUT: "a result was not there when the call returned",
    Concern.LAZY_OUTPUT: "returned a tensor that computes when it is read",
    Concern.CLOCK_DISAGREES: "the judge's clock saw more time pass",
    Concern.WORK_LEFT_BEHIND: "left work on streams that nobody waits for",
    Concern.PATCHED: "replaced functions that others rely on",
    Concern.BACKGROUND: "threads went on in the background",
    Concern.IMPOSSIBLE_SPEED: "faster than this device can be",
    Concern.STOPPED: "did not get through the timing",
    Concern.FORGED: "answered what nobody asked",
}


def print_bench(console: Console, report: BenchReport) -> None:
    """Write the whole report to a console."""
    for line in lines(report, width=console.width):
        console.print(line, soft_wrap=True, highlight=False)


def to_text(report: BenchReport, *, width: int = 80) -> str:
    """The report as plain text of at most `width` columns."""
    return "\n".join(line.plain.rstrip() for line in lines(report, width=width)) + "\n"


def lines(report: BenchReport, *, width: int = 80) -> Iterator[Text]:
    """Every line of the report."""
    yield from _headline(report, width)
    if report.times:
        yield Text("")
        yield Text(f"{'':12}{'cold':>12}{'':>8}{'warm':>12}{'':>8}{'memory':>11}", style="dim")
    for times in report.times:
        peak = "" if times.peak_bytes is None else f"{times.peak_bytes / 2**20:.1f} MiB"
        yield Text(f"{times.name:<12}{seconds(times.cold.value):>12}{_percent(times.cold):>8}"
                   f"{seconds(times.warm.value):>12}{_percent(times.warm):>8}{peak:>11}")
    for name, why in sorted(report.left_out.items()):
        yield from _wrapped(f"{name:<12}left out: {printable(why)[:300]}", width, indent=12)
    if report.baselines:
        yield Text("")
    for base in report.baselines:
        yield Text(f"over {base.name:<10}{_ratio(base.speedup)} cold   {_ratio(base.speedup_warm)} warm")
    yield from _light(report, width)
    yield Text("")
    yield from _wrapped(_conditions(report), width)


def _headline(report: BenchReport, width: int) -> Iterator[Text]:
    speedup, mark = report.speedup, "" if report.standing == "contract" else " (unverified)"
    if report.findings:
        yield Text(f"No speedup{mark}: the times do not count", style="bold red")
        for finding in report.findings:
            yield from _wrapped(f"  {finding_text(finding)}", width, indent=4)
    elif speedup is None:
        yield Text(f"No speedup{mark}: there is nothing to compare with", style="bold yellow")
    else:
        word = ("faster than the fastest baseline" if speedup.low > 1 else "slower than the fastest baseline"
                if speedup.high < 1 else "as fast as the fastest baseline, within the interval")
        yield Text(f"{_ratio(speedup)}: {word}{mark}", style="bold")


def finding_text(finding: BenchFinding) -> str:
    """One finding in words."""
    text = f"{finding.concern.value}: {WORDS[finding.concern]}"
    if finding.expected is not None:
        place = f"{finding.output}: " if finding.output else ""
        within = f" ± {finding.tolerance:.3g}" if finding.tolerance else ""
        text += f" ({place}expected {finding.expected}{within}, got {finding.actual}; seen {finding.count} times)"
    detail = finding.detail
    if finding.concern is Concern.CLOCK_DISAGREES:
        text += f" ({seconds(detail['judge_s'])} a call where the worker says {seconds(detail['worker_s'])})"
    elif finding.concern is Concern.IMPOSSIBLE_SPEED:
        text += f" ({seconds(detail['seconds'])} a call; {seconds(detail['floor_s'])} at the ceilings)"
    elif finding.concern is Concern.WORK_LEFT_BEHIND:
        text += f" ({100 * detail['share']:.0f}% of the time of a batch)"
    else:
        words = [", ".join(map(str, v)) if isinstance(v, list) else str(v) for v in detail.values() if v]
        text += f" ({'; '.join(words)})" if words else ""
    return printable(text)[:600]


def _light(report: BenchReport, width: int) -> Iterator[Text]:
    light, most = report.speed_of_light, report.ceilings
    if light is None or most is None:
        return
    by = (f"{(light.read_bytes + light.written_bytes) / 2**20:.1f} MiB at {most.copy_bytes_per_s / 1e12:.2f} TB/s"
          if light.limited_by == "memory"
          else f"{light.flops / 1e9:.1f} GFLOP at {light.flops / light.bound_s / 1e12:.1f} TFLOP/s in {light.mode}")
    yield from _wrapped(f"{100 * light.share:.0f}% of the speed of light ({seconds(light.bound_s)}: {by})", width)


def _conditions(report: BenchReport) -> str:
    parts = [f"{report.device}, {report.rounds} rounds of {report.calls} calls, {report.checked} timed outputs checked"]
    if report.sizes:
        parts.append(" ".join(f"{k}={v}" for k, v in sorted(report.sizes.items())))
    if report.tf32:
        parts.append("baselines in TF32")
    if report.steadiness is not None and report.ceilings is not None:
        word = "steady" if report.steadiness.steady else "unsteady: measure again"
        parts.append(f"drift {100 * report.steadiness.drift:.1f}% ({word})")
    if report.verdict:
        parts.append(f"verdict: {report.verdict['label']} on {report.verdict['scope']}")
    return "; ".join(parts) + "."


def seconds(value: float) -> str:
    """A time with a unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _percent(interval: Interval) -> str:
    return f"±{100 * interval.spread:.1f}%"


def _ratio(interval: Interval) -> str:
    return f"{interval.value:.3g}x ({interval.low:.3g} to {interval.high:.3g})"


def _wrapped(text: str, width: int, indent: int = 0) -> Iterator[Text]:
    for line in textwrap.wrap(text, max(40, width), subsequent_indent=" " * indent, drop_whitespace=True,
                              break_long_words=True, replace_whitespace=True) or [""]:
        yield Text(line)
