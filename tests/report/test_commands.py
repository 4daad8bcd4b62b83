"""`assay render`, `assay diff`, and the formats that `assay verify` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from assay import cli
from assay.report.model import Report
from assay.report.renderers import RENDERERS, render

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli._status([str(a) for a in arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def saved(tmp_path: Path, real_report: Report) -> Path:
    path = tmp_path / "report.json"
    path.write_text(real_report.to_json(), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", RENDERERS)
def test_a_saved_report_is_written_in_every_format(assay: Run, saved: Path, real_report: Report, name: str) -> None:
    target = saved.with_name("out")
    assert assay("render", saved, "--to", name, "-o", target)[:2] == (0, "")
    assert target.read_text(encoding="utf-8") == render(real_report, name)
    status, out, _ = assay("render", saved, "--to", name)
    assert (status, out) == (0, render(real_report, name))


@pytest.mark.parametrize(("arguments", "said"), [
    (("{missing}",), "cannot read the report: No such file or directory (check the path)"),
    (("{folder}",), "cannot read the report: Is a directory"),
    (("{source}",), "no report: Invalid JSON"),
    (("{empty}",), "no report: Field required at label"),
    (("{saved}", "--to", "pdf"), "--to: unknown format `pdf` (one of html, junit, sarif, markdown, terminal)"),
    (("{saved}", "--to", "htm"), "did you mean `html`?"),
    (("{saved}", "-o", "{folder}/no/such"), "--output"),
])
def test_what_cannot_be_done_is_said_in_a_line(assay: Run, saved: Path, arguments: tuple[str, ...], said: str) -> None:
    (saved.parent / "empty.json").write_text("{}")
    names = {"missing": saved.parent / "gone.json", "folder": saved.parent, "saved": saved, "source": __file__,
             "empty": saved.parent / "empty.json"}
    status, out, err = assay("render", *(a.format(**names) for a in arguments))
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_two_verdicts_are_compared(assay: Run, saved: Path, right_report: Report) -> None:
    other = saved.with_name("right.json")
    other.write_text(right_report.to_json(), encoding="utf-8")
    status, out, _ = assay("diff", saved, saved)
    assert status == 0
    assert out.splitlines()[-1].startswith("same decision: rejected with the same")
    status, out, _ = assay("diff", saved, other)
    assert status == 1
    assert out.splitlines()[0] == "before  report.json: rejected on cpu-emulation, seed 5"
    status, out, err = assay("diff", saved, other, "--json", "-")
    assert status == 1
    assert json.loads(out)["same_decision"] is False
    assert "another decision" in err
    assert assay("diff", "-", "-")[0] == 2


def test_verify_writes_every_format_asked_for(assay: Run, tmp_path: Path) -> None:
    names = ("json", "html", "junit", "sarif", "markdown")
    files = {name: tmp_path / f"report.{name}" for name in names}
    options = [word for name, path in files.items() if name != "markdown" for word in (f"--{name}", path)]
    status, out, err = assay("verify", EXAMPLES / "row_sum/reference.py", EXAMPLES / "row_sum/wrong_fixed_width.py",
                             "--tier", "quick", "--seed", 5, "--only", "shapes", *options, "--markdown", "-")
    assert status == 1
    assert out.startswith("## ❌ Assay: rejected")
    assert "rejected on cpu-emulation" in err
    report = Report.model_validate_json(files["json"].read_text(encoding="utf-8"))
    assert report.names is not None
    assert report.names.options == ("--tier", "quick")
    for name in ("html", "junit", "sarif"):
        assert files[name].read_text(encoding="utf-8") == render(report, name)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for name, path in files.items() if name != "markdown")


@pytest.mark.parametrize(("options", "said"), [
    (("--html", "-", "--json", "-"), "--json and --html: two reports for standard output (give each its own)"),
    (("--html", "{folder}/a", "--sarif", "{folder}/a"), "two reports for one file"),
    (("--junit", "{folder}/no/such.xml"), "--junit "),
])
def test_targets_are_checked_before_any_work(assay: Run, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    pair = (EXAMPLES / "row_sum/reference.py", EXAMPLES / "row_sum/right.py")
    status, _, err = assay("verify", *pair, *(o.format(folder=tmp_path) for o in options))
    assert status == 2
    assert said in err
    assert not list(tmp_path.iterdir())
