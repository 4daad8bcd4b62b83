"""An audit as one page: no scripts, no requests, no fonts of its own. Everything from a corpus is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay import __version__
from assay.audit.plots import plots
from assay.audit.report_tables import tables
from assay.audit.summary import Summary
from assay.report.words import printable

PAGE = "audit.html.j2"


@cache
def environment() -> Environment:
    """The templates; everything that they print is escaped."""
    made = Environment(loader=PackageLoader("assay.audit"), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True)
    made.filters["plain"] = lambda value: printable(str(value))
    return made


def render(summary: Summary) -> str:
    """The page of an audit's statistics. Raises InputError without matplotlib."""
    drawn = {key: Markup(svg) for key, svg in plots(summary).items()}
    return environment().get_template(PAGE).render(
        about=facts(summary), headline=headline(summary), tables=tables(summary), plots=drawn, version=__version__)


def headline(summary: Summary) -> list[dict[str, Any]]:
    """The figures that lead the page."""
    whole = summary.whole
    leads = (("rejected", whole.rejected, "bad"), ("in the strict floor", whole.strict, "open"),
             ("contract", whole.decided - whole.rejected, "good"))
    found = []
    for words, count, tone in leads:
        rate = summary.rate(count)
        low, high = rate.interval
        found.append({"words": words, "count": f"{count:,}", "total": f"{rate.total:,}", "tone": tone,
                      "rate": "–" if rate.value is None else f"{100 * rate.value:.1f} %",
                      "interval": f"{100 * low:.1f}–{100 * high:.1f} %" if rate.total else ""})
    return found


def facts(summary: Summary) -> list[tuple[str, str]]:
    """What the audit is, for its head."""
    about = summary.about
    sample = f"{about['sample']:,} rows by {about['stratify'] or 'chance'}" if about["sample"] else "all accepted rows"
    return [("corpus", str(about["source"])), ("rows", f"{summary.rows:,}"), ("audited", sample),
            ("checks", ", ".join([*(["battery"] if about["mode"] != "screen" else []),
                                  *(f"screen {v}" for v in about["screens"])]) + f" ({about['mode']})"),
            ("effort", str(about["effort"])), ("seed", str(about["seed"])),
            ("decided on", ", ".join(f"{n} ({c:,})" for n, c in summary.scopes.most_common()) or "–"),
            ("time on kernels", f"{summary.seconds / 3600:.2f} h")]
