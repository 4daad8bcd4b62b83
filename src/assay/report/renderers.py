"""The formats that a report can be written in: one module each, a function from Report to text."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.report.model import Report


@dataclass(frozen=True)
class Renderer:
    """One format.

    Attributes:
        module: module of `assay.report` with `render(report) -> str`, imported when first asked for.
        about: what it is, for the help of options.
    """

    module: str
    about: str


RENDERERS = {
    "html": Renderer("html", "a self-contained page"),
    "junit": Renderer("junit", "JUnit XML"),
    "sarif": Renderer("sarif", "SARIF 2.1.0"),
    "markdown": Renderer("markdown", "a summary in GitHub's Markdown"),
    "terminal": Renderer("terminal", "text of 80 columns"),
}
"""By the name that `assay render --to` takes."""


def render(report: Report, to: str) -> str:
    """A report in one of `RENDERERS`. Raises KeyError for another name, ImportError without its module."""
    text = importlib.import_module(f"assay.report.{RENDERERS[to].module}").render(report)
    assert isinstance(text, str)
    return text
