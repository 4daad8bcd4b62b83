"""Pages in a real browser: no request, no error, no script, readable on a phone, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.report.html import render
from assay.report.model import Report

CHROMIUM = Path("/usr/bin/chromium")
REPORTS = ("real_report", "narrow_report", "nan_report", "bounds_report", "right_report", "hostile_report")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        started.close()


def test_pages_are_quiet_and_fit(browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for name in REPORTS:
        report: Report = request.getfixturevalue(name)
        path = tmp_path / f"{name}.html"
        path.write_text(render(report), encoding="utf-8")
        colours = {}
        for scheme in ("light", "dark"):
            for width in (390, 1200):
                context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
                page = context.new_page()
                trouble: list[str] = []
                page.on("console", lambda message, seen=trouble: seen.append(message.text))
                page.on("pageerror", lambda error, seen=trouble: seen.append(str(error)))
                page.on("dialog", lambda dialog, seen=trouble: seen.append(dialog.message))
                requests: list[str] = []
                page.on("request", lambda asked, seen=requests: seen.append(asked.url))
                page.goto(path.as_uri())
                assert trouble == [], name
                assert requests == [path.as_uri()]
                assert page.title() != "owned"
                assert page.evaluate("document.scripts.length + document.images.length") == 0
                wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wide <= 0, f"{name} is {wide} pixels wider than {width}"
                small = page.evaluate(
                    "Math.min(...[...document.querySelectorAll('dd, td, p, h1, h2, h3, li, figcaption')]"
                    ".map(e => parseFloat(getComputedStyle(e).fontSize)))")
                assert small >= 12
                colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
                context.close()
        assert colours["light"] != colours["dark"]


def test_colours_can_be_chosen_and_paper_is_white(browser: Any, tmp_path: Path, narrow_report: Report) -> None:
    path = tmp_path / "page.html"
    path.write_text(render(narrow_report), encoding="utf-8")
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(path.as_uri())

    def colour() -> str:
        found: str = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--scheme').trim()")
        return found

    assert colour() == "dark"
    page.click("text=Light")
    assert colour() == "light"
    page.click("text=Dark")
    assert colour() == "dark"
    page.click("text=Auto")
    assert colour() == "dark"
    page.emulate_media(media="print")
    assert colour() == "light"
    context.close()
