"""The page and the notebook display, as text; tests/report/test_page.py opens them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from assay.report import drawing
from assay.report.exhibit import ErrorMap
from assay.report.html import render
from assay.report.model import Report
from assay.report.words import REASONS

TAGS = {"html", "head", "meta", "title", "style", "body", "div", "span", "input", "label", "main", "section", "h1",
        "h2", "h3", "p", "dl", "dt", "dd", "ol", "ul", "li", "a", "b", "table", "thead", "tbody", "tr", "th", "td", "i",
        "article", "header", "code", "figure", "figcaption", "br", "sup", "details", "summary", "pre", "footer", "svg",
        "g", "path", "rect", "text", "circle", "line"}


class Reader(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.mark.parametrize("fixture", ["real_report", "right_report", "narrow_report", "nan_report", "bounds_report",
                                     "made_report", "hostile_report"])
def test_a_page_is_made_of_what_it_should_be(fixture: str, request: pytest.FixtureRequest) -> None:
    report: Report = request.getfixturevalue(fixture)
    page = Reader(render(report))
    assert set(page.tags) - {"title"} <= TAGS
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    links = [value for _, name, value in page.attributes if name in ("href", "src", "action", "xlink:href")]
    assert all(link.removeprefix("#") in ids for link in links)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    policy = [value for tag, name, value in page.attributes if (tag, name) == ("meta", "content")]
    assert policy[0].startswith("default-src 'none'")
    assert "url(" not in render(report)
    assert "@import" not in render(report)


def test_everything_of_a_verdict_is_on_its_page(narrow_report: Report) -> None:
    text = Reader(render(narrow_report)).text
    for gate in narrow_report.gates:
        assert gate.slug in text
        assert f"{gate.probes_run}/{gate.probes_planned}" in text
    for words in ("rejected", "cpu-emulation of sm_90", "tier quick", "seed 5", "examples/matmul/reference.py",
                  "explained by a float16 accumulator", "the declared precision", "12,288 elements wrong",
                  narrow_report.seed_commitment, narrow_report.candidate.sha256, "torch", "triton",
                  "assay verify examples/matmul/reference.py examples/matmul/wrong_half_accumulator.py --seed 5"):
        assert words in text
    assert render(narrow_report).count('class="map"') == sum(f.error_map is not None for f in narrow_report.findings)


def test_the_line_concerned_is_marked(bounds_report: Report) -> None:
    page = render(bounds_report)
    (line,) = {f.source.line for f in bounds_report.findings if f.source}
    assert re.search(rf'<span class="line at"><span class="no">{line}</span>\s*a = tl\.load', page)


def test_special_inputs_are_drawn_and_named(nan_report: Report) -> None:
    page = render(nan_report)
    given = nan_report.findings[0].special_inputs[0]
    place = ", ".join(map(str, given.values[0].index))
    assert f"nan at [{place}]" in page
    assert '<circle class="dot"' in page


def test_a_right_kernel_has_no_findings_section(right_report: Report) -> None:
    page = Reader(render(right_report))
    assert "findings" not in [value for _, name, value in page.attributes if name == "id"]
    assert "gates passed" in page.text


def test_hostile_text_is_shown_and_not_obeyed(hostile_report: Report) -> None:
    page = render(hostile_report)
    assert "49" not in re.findall(r"\{\{ 7 \* 7 \}\}|49", Reader(page).text)
    assert "</script>" in Reader(page).text
    assert not any(c in page for c in "\x00\x07\x1b\u202e")
    assert page.count("<style>") == page.count("</style>") == 1


def test_a_notebook_shows_the_same_without_ids_or_styles(narrow_report: Report, hostile_report: Report) -> None:
    for report in (narrow_report, hostile_report):
        shown = report._repr_html_()
        page = Reader(shown)
        assert not [value for _, name, value in page.attributes if name == "id"]
        assert not {"style", "script", "img", "link"} & set(page.tags)
        assert not any(c in shown for c in "\x00\x07\x1b\u202e")
        assert "class=" not in shown.replace('class="map', "")
    text = Reader(narrow_report._repr_html_()).text
    assert "rejected on cpu-emulation" in text
    finding = narrow_report.findings[0]
    assert f"{finding.slug} : {REASONS[finding.reason]}" in Reader(finding._repr_html_()).text


def test_a_map_uses_all_colours_for_what_is_outside_the_tolerance() -> None:
    def bands(*rows: str) -> dict[str, str]:
        shown = ErrorMap(output="out", shape=(len(rows), len(rows[0])), cell=(1, 1), rows=rows)
        return dict(drawing.scale(shown).legend)

    assert bands("..", "..") == {"exact": "no difference"}
    assert bands("aH") == {"within": "within tolerance", "over4": "128–256×"}
    assert bands("GHI") == {"over1": "64–128×", "over3": "128–256×", "over6": "256–512×"}
    assert list(bands("AZ! ")) == ["over1", "over6", "certain", "undecided"]
    assert bands("AZ")["over6"].startswith("over ")


def test_drawings_draw_every_cell_once() -> None:
    shown = ErrorMap(output="out", shape=(2, 3), cell=(1, 1), rows=("A.B", "!!."))
    svg = drawing.error_map_svg(shown, (1, 0))
    cell = drawing.LARGEST_CELL
    area = sum(float(w) * float(h) for w, h in re.findall(r"h([\d.]+)v([\d.]+)h-", svg))
    assert area == pytest.approx(6 * cell * cell)
    assert svg.count('class="mark"') == 1
    assert drawing.error_map_svg(shown, (1,)).count('class="mark"') == 0
