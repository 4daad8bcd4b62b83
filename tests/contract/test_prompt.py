"""Instructions for writers of kernels, and feedback that names no probe unless it may."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from assay.contract import Contract, infer
from assay.contract.cli import app, prompt
from assay.contract.prompt import feedback, instructions
from assay.errors import InputError
from assay.probe.model import Draw, Injection, Probe
from assay.report.model import CandidateInfo, Coverage, Finding, GateResult, Report, TaskInfo, Timing
from assay.vocabulary import Label, Outcome, Reason, Tier


@pytest.fixture
def verdict() -> Report:
    injected = Injection(leaf=0, position=0.41, value="nan")
    draw = Draw(seed=99887766, variant="cancelling", injections=(injected,))
    probe = Probe(id="shapes/COLS=12345", gate="shapes", sizes={"COLS": 12345}, draws=(draw,))
    found = Finding(
        gate="CMP-03", slug="shapes", reason=Reason.VALUE, tier=Tier.WRONG, tolerance_free=False,
        output="out", index=(3, 771), expected="1.2345678", actual="8.7654321", error=7.5, tolerance=1e-6,
        probe=probe.id)
    gate = GateResult(id="CMP-03", slug="shapes", outcome=Outcome.FAIL, blocking=True,
                      note="24 sizes: COLS=12345", findings=1)
    return Report(
        label=Label.REJECTED, scope="cpu-emulation", tier="standard",
        task=TaskInfo(id="t", format="kernelbench", sha256="0" * 64),
        candidate=CandidateInfo(language="triton", entry="ModelNew", sha256="1" * 64), gates=(gate,),
        findings=(found,), probes={probe.id: probe}, contract={}, environment={}, seed=31337,
        coverage=Coverage(probes_planned=1, probes_run=1, probes_undecided=0, gates_passed=0,
                          gates_undecided=0),
        timing=Timing(total_s=1, start_s=0, study_s=0, oracle_s=0, candidate_s=0))


def test_nothing_of_a_probe_is_in_redacted_feedback(verdict):
    for redaction in ("kinds", "full"):
        text = feedback(verdict, redaction)
        assert not re.search(r"\d", text), text
        for secret in ("COLS", "cancelling", "nan", "out`"):
            assert secret not in text
    assert "shapes" in feedback(verdict, "kinds")
    assert "shapes" not in feedback(verdict, "full")
    assert "Rejected" in feedback(verdict, "full")


def test_unredacted_feedback_tells_what_shows_the_fault(verdict):
    text = feedback(verdict, "none")
    for fact in ("COLS=12345", "[3, 771]", "1.2345678", "8.7654321", "cancelling", "nan in input 0", "7.5"):
        assert fact in text


def test_instructions_follow_the_clauses(studied):
    found = infer(studied("B = 8\nC = 12", "return F.cross_entropy(x, y)",
                          "[torch.randn(B, C), torch.randint(0, C, (B,))]", parameters="x, y"))
    text = instructions(found.contract, reference="REFERENCE", inferred=found)
    assert "Size `B` (native 8)" in text
    assert "int64 [B], integral" not in text
    assert "values from 0 to 11" in text
    assert "no TF32" in text
    waived = Contract.from_data({"exceptional": {"nan": "ignore"}, "numerics": {"matmul": "tf32"},
                                 "policy": {"advisory": ["layouts"]}, "determinism": "none"})
    changed = instructions(waived, reference="REFERENCE")
    assert "A NaN in an input: anything goes." in changed
    assert "may use TF32" in changed
    assert "stride 0" not in changed
    assert "no atomics" not in changed


RUN = CliRunner()
REFERENCE = ("import torch\nimport torch.nn as nn\n\nROWS = 4\nCOLS = 30\n\n\nclass Model(nn.Module):\n"
             "    def forward(self, x):\n        return x * 0\n\n\ndef get_inputs():\n"
             "    return [torch.randn(ROWS, COLS)]\n\n\ndef get_init_inputs():\n    return []\n")


def test_the_commands_infer_check_and_describe(tmp_path, capsys):
    reference, file = tmp_path / "reference.py", tmp_path / "contract.toml"
    reference.write_text(REFERENCE)
    result = RUN.invoke(app, ["infer", str(reference), "-o", str(file)])
    assert result.exit_code == 0, result.output
    assert "weak task" in result.output
    first = file.read_bytes()
    assert RUN.invoke(app, ["infer", str(reference), "-o", str(file)]).exit_code == 0
    assert file.read_bytes() == first
    file.write_text(first.decode().replace('nan = "propagate"', 'nan = "ignore"'))
    result = RUN.invoke(app, ["check", str(file), "--reference", str(reference)])
    assert "exceptional.nan: 'ignore' in place of 'propagate'" in result.output
    prompt(reference, contract=file)
    assert "A NaN in an input: anything goes." in capsys.readouterr().out


def test_the_schema_is_printed():
    result = RUN.invoke(app, ["schema"])
    assert json.loads(result.output)["title"] == "Assay contract"


def test_a_report_on_another_reference_is_refused(tmp_path, verdict):
    reference, report = tmp_path / "reference.py", tmp_path / "report.json"
    reference.write_text(REFERENCE)
    report.write_text(verdict.to_json())
    with pytest.raises(InputError, match="another reference"):
        prompt(reference, report=report)
    report.write_text("{}")
    with pytest.raises(InputError, match="not a report"):
        prompt(reference, report=report)
