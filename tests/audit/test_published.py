"""The published audit's figures follow from its rows, and only from the right ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from assay.audit.published import FIGURES, Outcome, check, summary
from assay.audit.published_rows import Clauses, Population, read_rows
from assay.errors import InputError

from ..cli.conftest import Said

SYNTHETIC = Path(__file__).parent / "published_rows.jsonl"
PUBLISHED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "audit_rows.jsonl.gz"


@pytest.fixture(scope="module")
def published_rows() -> Path:
    if not PUBLISHED.exists():
        pytest.skip("the published rows are not beside the project (../shared/data/audit_rows.jsonl.gz)")
    return PUBLISHED


@pytest.fixture(scope="module")
def published(published_rows: Path) -> list[Outcome]:
    return check(read_rows(published_rows))


def figures(path: Path) -> dict[str, Any]:
    return {o.figure.name: o.derived for o in check(read_rows(path))}


def test_every_published_figure_that_should_derive_does(published: list[Outcome]) -> None:
    assert [o.figure.name for o in published if o.status == "differs"] == []
    assert summary(published) == {"derived": 64, "differs": 0, "not_derivable": 12, "change_with_a_clause": 56}


def test_the_headlines_and_their_sensitivities(published: list[Outcome]) -> None:
    found = {o.figure.name: o.derived for o in published}
    assert found["audited"] == 2638
    assert found["any finding"] == (1639, 2638)
    assert found["strict floor"] == (1043, 2638)
    assert found["EXC-01: fail of pass and fail"] == (868, 2540)
    assert found["floor with shape rejection"] == (1083, 2638)
    assert found["floor with EXC-02"] == (1154, 2638)
    assert found["floor with any CMP-03"] == (1263, 2638)
    assert found["floor without EXC-01"] == (229, 2638)
    assert found["floor with NaN equal to NaN"] == (1009, 2638)


def test_the_command_agrees_and_exits_0(published_rows: Path, assay: Any) -> None:
    said: Said = assay("audit", "published", published_rows, "--json", "-")
    data = json.loads(said.out)
    assert (said.status, data["derived"], data["differs"]) == (0, 64, 0)
    assert "1,043/2,638" in said.err


def test_one_changed_row_is_noticed(published_rows: Path, tmp_path: Path, assay: Any) -> None:
    lines = gzip.decompress(published_rows.read_bytes()).decode().splitlines()
    where = next(i for i, line in enumerate(lines) if '"scattered_nan: NaN mask mismatch"' in line
                 and json.loads(line)["final_speedup"] > 0)
    row = json.loads(lines[where])
    row["gates"]["EXC-01"] = {"reason": "", "skipped": 0, "status": "pass"}
    lines[where] = json.dumps(row)
    changed = tmp_path / "rows.jsonl"
    changed.write_text("\n".join(lines))
    said: Said = assay("audit", "published", changed)
    assert said.status == 1
    assert any(line.split()[-3:] == ["868/2,540", "867/2,540", "DIFFERS"] for line in said.out.splitlines())


def test_the_funnel_of_a_small_set() -> None:
    found = figures(SYNTHETIC)
    assert [found[name] for name in ("rows", "accepted by the corpus", "reference runs and can be judged",
                                     "toolchain artefact: CompilationError", "audited", "reached the gates")] == [
        20, 19, 18, 1, 17, 15]


def test_findings_and_floors_of_a_small_set() -> None:
    found = figures(SYNTHETIC)
    # all but two clean ones and the aliasing one
    assert found["any finding"] == (14, 17)
    # two NaN, three unrepeatable, aliasing, crash, two before the gates
    assert found["strict floor"] == (9, 17)
    assert found["floor with shape rejection"] == (10, 17)
    assert found["floor with EXC-02"] == (10, 17)
    assert found["floor with any CMP-03"] == (11, 17)


def test_the_clauses_of_a_small_set() -> None:
    found = figures(SYNTHETIC)
    assert found["floor without EXC-01"] == (7, 17)
    assert found["EXC-01 failures that are NaN only"] == 1
    # the one that is wrong on random inputs stays unrepeatable
    assert found["fail ORD-02 only because NaN is not NaN"] == 1
    assert found["floor with NaN equal to NaN"] == (8, 17)
    assert found["first failure is a random input"] == 3
    assert found["of those, error of the size of TF32"] == 2
    assert found["fail only half-precision gates"] == 1
    assert found["half-precision failures that are exceptions"] == 1
    assert found["in the floor and not a finding"] == 1
    assert found["pass everything with nothing skipped"] == (2, 15)


def test_denominators_are_what_was_decided() -> None:
    found = figures(SYNTHETIC)
    assert found["CMP-03: fail of pass and fail"] == (2, 14)
    assert found["RES-01: fail of pass and fail"] == (0, 14)
    assert found["EXC-01: fail of pass and fail"] == (2, 15)


def test_each_alternative_clause_changes_what_it_names() -> None:
    rows = read_rows(SYNTHETIC)
    changed = {o.figure.name: set(o.changes) for o in check(rows)}
    assert changed["rows"] == set()
    assert changed["strict floor"] == {"toolchain artefacts kept", "EXC-01 beyond NaN only", "without EXC-01",
                                       "NaN equals NaN in ORD-02", "rejected kernels too"}
    assert "aliasing is a finding" in changed["any finding"]
    assert len(Population(rows, Clauses(accepted_only=False)).audited) == 18


def test_what_the_rows_cannot_give_is_named() -> None:
    named = {f.name: f.why_not for f in FIGURES if f.derive is None}
    assert "benchmark passes, battery fails" in named
    assert all(named.values())


def test_other_rows_are_a_disagreement(assay: Any, tmp_path: Path) -> None:
    target = tmp_path / "figures.md"
    said: Said = assay("audit", "published", SYNTHETIC, "--markdown", target)
    assert said.status == 1
    assert "| rates | strict floor | 1,043/2,638 | 9/17 | DIFFERS |" in target.read_text()


@pytest.mark.parametrize("text", ["", "no json\n", "[1]\n", '{"id": 1}\n', '{"id": 1, "op_class": "a", "status": 1}\n'])
def test_a_file_of_something_else_is_refused_in_one_line(text: str, tmp_path: Path, assay: Any) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(text)
    said: Said = assay("audit", "published", file)
    assert said.status == 2
    assert len(said.err.splitlines()) == 1
    with pytest.raises(InputError):
        read_rows(file)
