"""Tables as data, and the three ways they are written: terminal, Markdown, HTML (by the page's template)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.audit.statistics import Rate
from assay.report.words import printable

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Table:
    """One table of a report. Control characters in its cells, which a corpus may hold, are written out.

    Attributes:
        title: what it shows.
        columns: headings; those that start with `#` hold numbers and are set to the right.
        rows: cells as text.
        note: one line below it.
        key: short name, for links.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        """Make every text harmless to a terminal."""
        object.__setattr__(self, "rows", tuple(tuple(printable(c) for c in row) for row in self.rows))
        for name in ("title", "note"):
            object.__setattr__(self, name, printable(getattr(self, name)))

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings as people read them."""
        return tuple(c.removeprefix("#") for c in self.columns)

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers."""
        return tuple(c.startswith("#") for c in self.columns)


def percent(rate: Rate) -> str:
    """`39.5 %`, or a dash for an empty denominator."""
    return "–" if rate.value is None else f"{100 * rate.value:.1f} %"


def interval(rate: Rate) -> str:
    """`37.7–41.4 %`: the 95% interval, or a dash for an empty denominator."""
    low, high = rate.interval
    return "–" if rate.value is None else f"{100 * low:.1f}–{100 * high:.1f} %"


def rate_cells(rate: Rate) -> tuple[str, str, str]:
    """Count of total, proportion, interval."""
    return f"{rate.count:,}/{rate.total:,}", percent(rate), interval(rate)


RATE_COLUMNS = ("#count", "#rate", "#95%")


def markdown(table: Table, level: int = 2) -> str:
    """A table as GitHub-flavoured Markdown, heading first."""
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |"

    rule = "|" + "|".join("---:" if n else "---" for n in table.numeric) + "|"
    lines = [f"{'#' * level} {table.title}", ""]
    if table.rows:
        lines += [line(table.headings), rule, *map(line, table.rows), ""]
    else:
        lines += ["Nothing.", ""]
    if table.note:
        lines += [table.note, ""]
    return "\n".join(lines)


def plain(table: Table) -> str:
    """A table as lines of text, columns aligned, with an empty line behind it."""
    lines = [table.title]
    cells = [table.headings, *table.rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    for row in cells if table.rows else []:
        line = "  ".join(cell.rjust(width) if number else cell.ljust(width)
                         for cell, width, number in zip(row, widths, table.numeric, strict=True))
        lines.append(line.rstrip())
    if not table.rows:
        lines.append("nothing")
    return "\n".join([*lines, *([table.note] if table.note else []), ""])


def print_table(out: Console, table: Table) -> None:
    """A table on a terminal; in a pipe or a file a line for each row, neither wrapped nor cut."""
    if not out.is_terminal:
        out.print(plain(table), soft_wrap=True)
        return
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    out.print(Text(table.title, style="bold"), soft_wrap=True)
    if not table.rows:
        out.print("  nothing")
    else:
        shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading, number in zip(table.headings, table.numeric, strict=True):
            shown.add_column(heading, justify="right" if number else "left", overflow="fold", no_wrap=number)
        for row in table.rows:
            shown.add_row(*(Text(cell) for cell in row))
        out.print(shown)
    if table.note:
        out.print(Text(table.note, style="dim"), soft_wrap=True)
    out.print()
