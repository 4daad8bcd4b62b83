"""The page of the service in headless Chromium."""

from __future__ import annotations

import shutil

import pytest

from assay.serve import Client

from .conftest import TOKEN, Service
from .test_serve import REFERENCE, RIGHT, WRONG

CHROMIUM = shutil.which("chromium")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1100, "light")])
def test_the_page_shows_verdicts_and_asks_nobody_else(service: Service, width: int, scheme: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with Client(service.url, TOKEN) as client:
        client.verify(REFERENCE, RIGHT, tier="quick")
        client.verify(REFERENCE, WRONG, tier="quick")
    troubles: list[str] = []
    asked: list[str] = []
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.on("console", lambda m: troubles.append(m.text) if m.type == "error" and "401" not in m.text else None)
        page.on("pageerror", lambda e: troubles.append(str(e)))
        page.on("request", lambda r: asked.append(r.url))
        page.goto(service.url)
        page.get_by_label("Token").fill("a-token-of-nobody")
        page.get_by_role("button", name="Show").click()
        page.get_by_role("alert").wait_for()
        assert "not known" in page.get_by_role("alert").inner_text()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Show").click()
        page.locator("#events .contract").first.wait_for(timeout=20_000)
        page.locator("#events .rejected").first.wait_for(timeout=20_000)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not page.get_by_label("Token").is_visible()
        browser.close()
    assert troubles == []
    assert all(url.startswith(service.url) for url in asked)
