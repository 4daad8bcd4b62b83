"""What a gate leaves for others to read: one SARIF log over all verdicts, and a page for each."""

from __future__ import annotations

import hashlib
import html
import re
from pathlib import Path

from assay.errors import InputError
from assay.report.model import canonical_json
from assay.repository.model import Gated, GateReport
from assay.repository.policy import Decision
from assay.repository.render import WORDS, screen_words, summary, verdict_words

_STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.decision { font-weight: 600; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 8rem; }
ul { margin: 0; padding-left: 1rem; }
"""


def to_sarif(report: GateReport) -> str:
    """Findings of every verdict as one SARIF 2.1.0 log; one without results where there is no verdict."""
    from assay.report import sarif

    reports = [pair.report for pair in report.pairs if pair.report is not None]
    if reports:
        return sarif.to_sarif(reports)
    from assay import __version__

    driver = {"name": "Assay", "version": __version__, "semanticVersion": __version__, "rules": []}
    return canonical_json({"$schema": sarif.SCHEMA, "version": "2.1.0",
                           "runs": [{"tool": {"driver": driver}, "results": []}]})


def write_pages(report: GateReport, folder: Path) -> list[Path]:
    """A self-contained page for each verdict and `index.html`; the files written.

    Raises InputError when the file system refuses.
    """
    from assay.report import html as page

    texts = {page_name(pair): page.render(pair.report) for pair in report.pairs if pair.report is not None}
    texts["index.html"] = index(report)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
            written.append(folder / name)
    except OSError as error:
        raise InputError(f"cannot write the pages: {error.strerror or error}", str(folder),
                         "give a folder that can be written") from None
    return written


def page_name(pair: Gated) -> str:
    """File name of a pair's page: readable, and another one for every other pair."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", pair.name).strip("-")[:80]
    return f"{plain}-{hashlib.sha256(f'{pair.reference} {pair.name}'.encode()).hexdigest()[:8]}.html"


def index(report: GateReport) -> str:
    """The page that links the others. Self-contained; every text is escaped."""
    rows = []
    for pair in report.pairs:
        why = [*pair.why, *(f"waived: {words}" for words in pair.waived)]
        name = html.escape(pair.name)
        if pair.report is not None:
            name = f'<a href="{page_name(pair)}">{name}</a>'
        items = "".join(f"<li>{html.escape(words)}</li>" for words in why)
        cells = (f"<ul>{items}</ul>" if items else "", verdict_words(pair), screen_words(pair), pair.battery)
        rows.append(f'<tr><td class="name">{name}</td><td class="decision">{WORDS[pair.decision]}</td>'
                    + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in report.notes)
    blocked = report.counts[Decision.BLOCK]
    title = f"Assay gate: {blocked} blocked" if blocked else "Assay gate"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Gate</h1>
<p>{html.escape(summary(report))}.</p>
<div class="wide"><table>
<thead><tr><th>candidate</th><th>decision</th><th>why</th><th>verdict</th><th>screen</th><th>battery</th></tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody>
</table></div>
{notes}
</body>
</html>
"""
