"""What reports show beside the numbers is taken from the tensors, and is true of them."""

from __future__ import annotations

import math

import pytest
import torch

from assay.illustration import MOST_MAPS, character, entry_line, excerpt, grid
from assay.report.exhibit import MAP_LONG, MAP_SIDE, ErrorMap
from assay.report.model import Finding, Report


def _map(values: torch.Tensor) -> ErrorMap:
    return ErrorMap(output="out", shape=tuple(values.shape), **grid(values.to(torch.float64)))


@pytest.mark.parametrize(("ratio", "expected"), [
    (-1.0, " "), (0.0, "."), (math.inf, "!"), (1.0, "a"), (0.75, "a"), (0.4, "b"), (1e-30, "z"),
    (1.0001, "A"), (2.0, "A"), (2.1, "B"), (1000.0, "J"), (1e300, "Z"),
])
def test_a_cell_doubles_with_each_letter(ratio: float, expected: str) -> None:
    assert character(ratio) == expected


def test_small_outputs_are_shown_element_by_element() -> None:
    assert _map(torch.tensor([[0.0, 0.5], [3.0, math.inf]])).rows == (".b", "B!")


def test_one_wrong_element_of_a_large_output_is_never_lost() -> None:
    for flat in (0, 12345, 999 * 1001 - 1):
        values = torch.zeros(999, 1001)
        values.view(-1)[flat] = 5.0
        shown = _map(values)
        assert shown.cell == (16, 16)
        assert [(r, c) for r, row in enumerate(shown.rows) for c, cell in enumerate(row) if cell == "C"] == [
            (flat // 1001 // 16, flat % 1001 // 16)]


@pytest.mark.parametrize("shape", [(), (1,), (7,), (100_000,), (64, 64), (65, 64), (3, 5, 700), (4000, 2), (513, 513)])
def test_a_map_covers_every_element_in_few_cells(shape: tuple[int, ...]) -> None:
    shown = _map(torch.full(shape, 2.0))
    rows, columns = shown.matrix
    assert len(shown.rows) == math.ceil(rows / shown.cell[0])
    assert {len(row) for row in shown.rows} == {math.ceil(columns / shown.cell[1])}
    assert set("".join(shown.rows)) == {"A"}
    assert len(shown.rows) * len(shown.rows[0]) <= MAP_SIDE * MAP_SIDE
    assert max(len(shown.rows), len(shown.rows[0])) <= MAP_LONG


def test_elements_that_decide_nothing_are_blank_and_hide_no_other() -> None:
    assert _map(torch.tensor([[math.nan, math.nan, 3.0]])).rows == ("  B",)
    wide = torch.full((1, 512), math.nan)
    wide[0, 1] = 3.0
    assert _map(wide).rows[0][0] == "B"


def _of(report: Report, slug: str) -> Finding:
    return next(f for f in report.findings if f.slug == slug)


def test_the_map_of_a_finding_shows_the_element_that_the_finding_names(narrow_report: Report) -> None:
    finding = _of(narrow_report, "values")
    shown = finding.error_map
    assert shown is not None
    assert finding.index is not None
    row, column = finding.index
    worst = shown.rows[row // shown.cell[0]][column // shown.cell[1]]
    assert worst == character(finding.detail["ratio"])
    assert worst == max(cell for line in shown.rows for cell in line if cell.isupper())


def test_the_precision_names_the_accumulator(narrow_report: Report) -> None:
    seen = narrow_report.precision[0]
    ratios = {mode.mode: mode.ratio for mode in seen.modes}
    assert next(iter(ratios)) == "declared"
    assert ratios["declared"] is not None
    assert ratios["declared"] > 1.0
    assert ratios["fp16_accumulate"] is not None
    assert ratios["fp16_accumulate"] < 1.0
    assert seen.mode == "fp16_accumulate"


def test_the_precision_of_a_right_kernel_is_the_declared_one(right_report: Report) -> None:
    assert right_report.precision
    assert {seen.mode for seen in right_report.precision} == {"declared"}


def test_inputs_that_hold_a_nan_are_named_with_its_place(nan_report: Report) -> None:
    finding = next(f for f in nan_report.findings if f.reason.value == "nan_swallowed")
    (given,) = finding.special_inputs
    injected = nan_report.probes[finding.probe].draws[0].injections[0]
    flat = 0
    for size, index in zip(given.shape, given.values[0].index, strict=True):
        flat = flat * size + index
    assert (given.count, given.values[0].value) == (1, "nan")
    assert flat == int(injected.position * math.prod(given.shape))
    assert finding.error_map is not None
    assert sum(row.count("!") for row in finding.error_map.rows) == 1


def test_ordinary_inputs_are_not_listed(narrow_report: Report) -> None:
    assert all(not f.special_inputs for f in narrow_report.findings)


def test_a_finding_that_names_a_line_shows_it(bounds_report: Report) -> None:
    from tests.report.conftest import EXAMPLES

    text = (EXAMPLES / "matmul/wrong_unmasked_depth.py").read_text().split("\n")
    finding = next(f for f in bounds_report.findings if f.attested_by == "worker")
    assert finding.source is not None
    assert finding.source.line == finding.detail["line"]
    assert "tl.load" in text[finding.source.line - 1]
    assert finding.source.lines[finding.source.line - finding.source.first] == text[finding.source.line - 1]


def test_lines_that_are_not_in_the_source_are_not_shown() -> None:
    assert excerpt("a\nb", 3) is None
    assert excerpt("a\nb", 0) is None
    assert excerpt("a\nb", None) is None
    shown = excerpt("x" * 500 + "\nb\n", 1)
    assert shown is not None
    assert max(map(len, shown.lines)) == 160


def test_the_entry_point_is_found_in_the_source(real_report: Report) -> None:
    from tests.report.conftest import EXAMPLES

    line = real_report.candidate.line
    assert line is not None
    assert (EXAMPLES / "row_sum/wrong_fixed_width.py").read_text().split("\n")[line - 1].startswith("class ModelNew")
    assert entry_line("# class ModelNew\n\nclass ModelNewer: ...\nasync def ModelNew(x): ...", "ModelNew") == 4
    assert entry_line("class A: ...", "") is None


def test_reports_stay_small(real_report: Report, narrow_report: Report) -> None:
    for report in (real_report, narrow_report):
        assert len(report.to_json()) < 200_000
        assert sum(f.error_map is not None for f in report.findings) <= MOST_MAPS


def test_a_report_of_version_1_is_read(real_report: Report) -> None:
    import json

    data = json.loads(real_report.to_json())
    for name in ("names", "precision"):
        del data[name]
    for finding in data["findings"]:
        for name in ("error_map", "special_inputs", "source"):
            del finding[name]
    del data["candidate"]["line"]
    read = Report.model_validate({**data, "schema_version": 1})
    assert read.schema_version == 2
    assert read.label is real_report.label
    assert [f.reason for f in read.findings] == [f.reason for f in real_report.findings]
