"""Files that travel with the package: the pages of the gates and the examples."""

from __future__ import annotations

import re
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


def _folder(installed: str, checkout: str) -> Path:
    """The folder in the wheel, or in the checkout that an editable install runs from."""
    packaged = _PACKAGE / installed
    return packaged if packaged.is_dir() else _CHECKOUT / checkout


def examples() -> Path:
    """Folder of the examples, one folder per task."""
    return _folder("_examples", "examples")


def gate_pages() -> dict[str, Path]:
    """Page of each gate, by slug."""
    return {path.stem: path for path in sorted(_folder("_gates", "docs/gates").glob("*.md"))}


def gate_page(slug: str) -> str | None:
    """Text of a gate's page; None when it has none."""
    path = gate_pages().get(slug)
    return None if path is None else path.read_text(encoding="utf-8")


def page_names(text: str) -> tuple[str, ...]:
    """Every name that a page gives its gate: slug, id and aliases."""
    section = text.partition("## Names")[2].partition(". Names")[0]
    return tuple(re.findall(r"`([^`]+)`", section))


def needs_tolerance(text: str) -> str:
    """`no` when no failure that the gate reports needs a tolerance, `yes` when all do, else `partly`."""
    found = re.search(r"\*\*A failure needs a tolerance:\*\*(.*?)\n\n", text, re.DOTALL)
    words = " ".join(found.group(1).split()) if found else ""
    if words.startswith("no") and not re.search(r"\byes\b|\bbounded\b|\btolerance\b", words):
        return "no"
    if words.startswith("yes") and not re.search(r"\bno\b|\bnone\b|\bneed(s)? none\b", words):
        return "yes"
    return "partly" if words else "-"
