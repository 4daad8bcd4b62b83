"""A script alone shows a finding: it exits with 1 for the candidate it was found in, and with 0 for a right one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.evidence.kinds import KINDS, RIGHT, TASK, Kind

from assay.contract import Contract
from assay.evidence import Bundle, Store
from assay.evidence.replay import Outcome, replay
from assay.evidence.script import NoScript, check_of, script_of
from assay.probe.model import Draw, Probe
from assay.report.model import Finding
from assay.run.process import Zygote
from assay.task import load_task, parse_candidate, parse_task
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import EffortTier, Reason, Tier

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CASES = Path(__file__).resolve().parents[1] / "cases"
DEFAULT = ("special values",)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every installed package but this one can be imported."""
    folder = tmp_path_factory.mktemp("packages")
    for each in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not each.name.lower().startswith(("assay", "__editable__")) and not each.name.endswith(".pth"):
            (folder / each.name).symlink_to(each)
    return folder


def run(script: Path, packages: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script where Assay cannot be imported."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME") if name in os.environ}
    return subprocess.run([sys.executable, "-S", str(script), *map(str, arguments)], text=True, capture_output=True,
                          env={**kept, "PYTHONPATH": str(packages), "HOME": str(script.parent)}, check=False)


def test_assay_cannot_be_imported_there(tmp_path: Path, packages: Path) -> None:
    (tmp_path / "s.py").write_text("import torch\nimport assay\n")
    assert "No module named 'assay'" in run(tmp_path / "s.py", packages).stderr


@pytest.mark.parametrize(
    "kind", [pytest.param(k, id=k.name.replace(" ", "-"), marks=[] if k.name in DEFAULT else [pytest.mark.slow])
             for k in KINDS])
def test_a_script_shows_its_finding_and_passes_a_right_candidate(kind: Kind, tmp_path: Path, packages: Path,
                                                                  zygote: Zygote) -> None:
    task = parse_task(TASK, path="reference.py", id="scaled tanh")
    candidate = parse_candidate(kind.source, path="candidate.py")
    report = verify_task(task, candidate, zygote=zygote, options=Options(
        device="cpu", seed=7, tier=EffortTier.QUICK, only=kind.gates, store=str(tmp_path / "s")))
    finding = next(f for f in report.findings if (f.slug, f.reason.value) == (kind.gate, kind.reason))
    with Store.open(tmp_path / "s") as store:
        text = script_of(store, finding.id, zygote)
        assert replay(store, finding.id, zygote).outcome is Outcome.REPRODUCED
    script, right = tmp_path / "shown.py", tmp_path / "right.py"
    script.write_text(text)
    right.write_text(RIGHT)
    assert "import assay" not in text
    shown = run(script, packages)
    assert shown.returncode == 1, shown.stdout + shown.stderr
    assert "DISAGREES" in shown.stdout
    fine = run(script, packages, "--candidate", right)
    assert fine.returncode == 0, fine.stdout + fine.stderr
    assert fine.stdout.strip().endswith("AGREES")


@pytest.mark.parametrize(
    ("example", "wrong", "gate"),
    [
        ("row_sum", "wrong_fixed_width", "bounds"),
        pytest.param("row_max", "wrong_swallowed_nan", "nonfinite", marks=pytest.mark.slow),
        pytest.param("cumsum", "wrong_shared_output", "output_aliasing", marks=pytest.mark.slow),
        pytest.param("row_argmax", "wrong_last_tie", "values", marks=pytest.mark.slow),
        pytest.param("linear_gelu", "wrong_frozen_weight", "statelessness", marks=pytest.mark.slow),
    ],
)
def test_a_kernel_for_cuda_is_shown_on_a_cpu(example: str, wrong: str, gate: str, tmp_path: Path, packages: Path,
                                             zygote: Zygote) -> None:
    task, candidate = load_pair(EXAMPLES / example / "reference.py", EXAMPLES / example / f"{wrong}.py")
    tier = EffortTier.STANDARD if gate == "values" else EffortTier.QUICK
    report = verify_task(task, candidate, zygote=zygote, options=Options(
        device="cpu", seed=7, tier=tier, only=(gate,), store=str(tmp_path / "s")))
    finding = next(f for f in report.findings if f.slug == gate)
    script = tmp_path / "shown.py"
    with Store.open(tmp_path / "s") as store:
        script.write_text(script_of(store, finding.id, zygote))
    shown = run(script, packages)
    assert shown.returncode == 1, shown.stdout + shown.stderr
    fine = run(script, packages, "--candidate", EXAMPLES / example / "right.py")
    assert fine.returncode == 0, fine.stdout + fine.stderr


def test_a_kernel_that_never_ran_is_shown_by_its_launches(tmp_path: Path, packages: Path, zygote: Zygote) -> None:
    right = EXAMPLES / "row_sum" / "right.py"
    wrong = right.read_text() + textwrap.dedent("""

    class Kept(ModelNew):
        def forward(self, x):
            # the kernel is there, and never launched
            return x.sum(dim=-1)

    ModelNew = Kept
    """)
    task, candidate = load_task(EXAMPLES / "row_sum" / "reference.py"), parse_candidate(wrong, path="candidate.py")
    report = verify_task(task, candidate, zygote=zygote, options=Options(
        device="cpu", seed=7, tier=EffortTier.QUICK, only=("values", "provenance"), store=str(tmp_path / "s")))
    finding = next(f for f in report.findings if f.reason is Reason.KERNEL_NEVER_RAN)
    script = tmp_path / "shown.py"
    with Store.open(tmp_path / "s") as store:
        script.write_text(script_of(store, finding.id, zygote))
    shown = run(script, packages)
    assert shown.returncode == 1, shown.stdout + shown.stderr
    assert "no launch of a kernel ran to its end" in shown.stdout
    fine = run(script, packages, "--candidate", right)
    assert fine.returncode == 0, fine.stdout + fine.stderr


@pytest.mark.parametrize(
    ("case", "gate", "reason", "right", "said"),
    [
        ("r31-too-much-shared-memory", "resources", Reason.SHARED_MEMORY,
         lambda reference, wrong: wrong.replace("BM=128, BN=256, BK=128", "BM=64, BN=64, BK=32"),
         "shared memory bytes, where there are 232,448"),
        pytest.param("r31b-too-much-tensor-memory", "resources", Reason.TENSOR_MEMORY,
                     lambda reference, wrong: wrong.replace("BN=256", "BN=64"),
                     "tensor-memory columns, where there are 512",
                     marks=pytest.mark.slow),
        ("r25-reference-lookup", "integrity", Reason.REFERENCE_SOUGHT,
         lambda reference, wrong: reference.replace("class Model(", "class ModelNew("), "searched the process"),
    ],
)
def test_what_a_target_refuses_and_what_looks_for_the_answer_are_shown(
        case: str, gate: str, reason: Reason, right: Callable[[str, str], str], said: str, tmp_path: Path,
        packages: Path, zygote: Zygote) -> None:
    folder = CASES / case
    task, candidate = load_pair(folder / "reference.py", folder / "candidate.py")
    contract = Contract.from_data(json.loads((folder / "expect.json").read_text())["contract"] or {})
    report = verify_task(task, candidate, zygote=zygote, contract=contract, options=Options(
        device="cpu", seed=7, tier=EffortTier.QUICK, only=("values", gate), store=str(tmp_path / "s")))
    finding = next(f for f in report.findings if f.reason is reason)
    script, fixed = tmp_path / "shown.py", tmp_path / "fixed.py"
    with Store.open(tmp_path / "s") as store:
        script.write_text(script_of(store, finding.id, zygote))
    shown = run(script, packages)
    assert shown.returncode == 1, shown.stdout + shown.stderr
    assert said in shown.stdout
    text = right((folder / "reference.py").read_text(), candidate.source)
    assert text != candidate.source
    fixed.write_text(text)
    fine = run(script, packages, "--candidate", fixed)
    assert fine.returncode == 0, fine.stdout + fine.stderr


@pytest.mark.parametrize(
    ("gate", "reason", "conditions"),
    [
        ("faults", Reason.LEFTOVER_THREAD, ()),
        ("provenance", Reason.LIBRARY_DID_THE_WORK, ("corrupt:1",)),
        ("resources", Reason.SCRATCH_MEMORY, ("scratch:1",)),
        ("gradients", Reason.GRADIENT_VALUE, ("follow:train",)),
        ("statelessness", Reason.STALE_RESULT, ("work:1",)),
    ],
)
def test_what_no_script_can_show_is_said(gate: str, reason: Reason, conditions: tuple[str, ...]) -> None:
    probe = Probe(id="p", gate=gate, draws=(Draw(seed=1),), conditions=conditions)
    finding = Finding(gate="X", slug=gate, reason=reason, tier=Tier.WRONG, tolerance_free=True, probe="p")
    with pytest.raises(NoScript, match="no script on its own can show this finding"):
        check_of(finding, Bundle(gate=gate, reason=reason.value, probes=(probe,), seed=1))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("example", "wrong", "gate"),
    [("row_max", "wrong_swallowed_nan", "nonfinite"), ("cumsum", "wrong_shared_output", "output_aliasing")],
)
def test_a_finding_on_a_gpu_replays_there_and_in_a_script(example: str, wrong: str, gate: str, tmp_path: Path,
                                                         packages: Path, zygote: Zygote) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    task, candidate = load_pair(EXAMPLES / example / "reference.py", EXAMPLES / example / f"{wrong}.py")
    report = verify_task(task, candidate, zygote=zygote, options=Options(
        device="cuda", seed=7, tier=EffortTier.QUICK, only=(gate,), store=str(tmp_path / "s")))
    finding = next(f for f in report.findings if f.slug == gate)
    script = tmp_path / "shown.py"
    with Store.open(tmp_path / "s") as store:
        assert replay(store, finding.id, zygote).outcome is Outcome.REPRODUCED
        text = script_of(store, finding.id, zygote)
    # on a GPU nothing is emulated
    assert 'SUPPORT = ""' in text
    script.write_text(text)
    shown = run(script, packages)
    assert shown.returncode == 1, shown.stdout + shown.stderr
    fine = run(script, packages, "--candidate", EXAMPLES / example / "right.py")
    assert fine.returncode == 0, fine.stdout + fine.stderr
