"""Tasks whose tensors have gigabytes: a few rows are evaluated, and as many copies run as the task has rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay import corpus
from assay.contract import Contract
from assay.gates import GATES, Context
from assay.probe import huge
from assay.run.process import Zygote
from assay.run.reference import ReferenceSession
from assay.task import load_candidate, load_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier

ROWS, COLS = 4096, 393_216
DEVICE_BYTES = 140 << 30


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A task whose input has 6.4 GB, and a kernel for it, in a folder."""
    entry = corpus.entry("relu", "float32")
    lines = [f"ROWS = {ROWS}" if line.startswith("ROWS =") else f"COLS = {COLS}" if line.startswith("COLS =") else line
             for line in entry.reference.splitlines()]
    (tmp_path / "reference.py").write_text("\n".join(lines) + "\n")
    (tmp_path / "candidate.py").write_text(entry.kernel)
    return tmp_path


def test_the_native_batch_is_repeated_from_rows_of_native_length(zygote: Zygote, large: Path) -> None:
    session = ReferenceSession(zygote, load_task(large / "reference.py"), {})
    try:
        study = session.study()
    finally:
        session.close()
    sizes = dict(study.sizes)
    assert sizes["ROWS"] < ROWS, "values are probed at fewer rows"
    control, native = huge.at_native(study, sizes, DEVICE_BYTES)
    assert (control.name, control.copies) == ("control", 2)
    assert native.sizes.get("COLS", COLS) == COLS
    assert ROWS <= native.rows * native.copies < ROWS + native.rows
    assert huge.at_native(study, sizes, 8 << 30) == [], "it has to fit on the device"
    assert huge.at_native(study, {}, DEVICE_BYTES) == [], "the native batch is probed anyway"
    ctx = Context(study=study, contract=Contract(), tier=EffortTier.STANDARD, seed=3, device="cuda", language="triton",
                  sizes=sizes, device_bytes=DEVICE_BYTES, element_limit=1 << 22)
    kinds = [p.kind for p in GATES["shapes"].plan(ctx)]
    assert kinds.count("huge") == 1
    assert "huge" not in [p.kind for p in GATES["shapes"].plan(replace(ctx, device="cpu"))]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("old", "new", "label"), [
    ("", "", "pass"),
    # right on any small batch: programs past a million do the work of earlier ones, and the last rows stay unwritten
    ("tl.program_id(0)", "(tl.program_id(0) & 0xFFFFF)", "fail"),
])
def test_a_tensor_of_six_gigabytes_is_judged_at_its_native_batch(large: Path, old: str, new: str, label: str) -> None:
    candidate = large / "candidate.py"
    if old:
        source = candidate.read_text()
        assert old in source
        candidate.write_text(source.replace(old, new, 1))
    report = verify_task(load_task(large / "reference.py"), load_candidate(candidate),
                         options=Options(device="cuda", seed=3, only=("values", "shapes")))
    gate = next(g for g in report.gates if g.slug == "shapes")
    assert gate.outcome.value == label, (gate, report.findings)
    if label == "fail":
        assert any("native-batch" in f.probe for f in report.findings)
