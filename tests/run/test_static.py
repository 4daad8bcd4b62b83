"""The static layer only hints: a hit never changes a verdict, and its absence proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.report.terminal import Names, to_text
from assay.run.process import Zygote
from assay.run.static import Scan
from assay.verify import Options, load_pair, verify_task

pytest.importorskip("kernelguard", reason="the static layer is an extra")

CASES = Path(__file__).parent.parent / "cases"


def test_a_walk_through_frames_is_a_hint() -> None:
    scan = Scan((CASES / "r25-reference-lookup" / "candidate.py").read_text())
    rules = {hint.rule for hint in scan.hints()}
    scan.close()
    assert "SYS_MODULES_ACCESS" in rules


def test_an_ordinary_kernel_gives_no_hint() -> None:
    scan = Scan((CASES / "a05-two-pass-layernorm" / "candidate.py").read_text())
    assert scan.hints() == ()
    scan.close()


def test_a_source_that_does_not_parse_gives_no_hint_and_no_error() -> None:
    scan = Scan("def (" + "(" * 100_000)
    scan.hints()
    scan.close()


def test_a_hit_leaves_the_verdict_as_it_is(zygote: Zygote) -> None:
    folder = CASES / "a09-nan-propagating-max"
    task, candidate = load_pair(folder / "reference.py", folder / "candidate.py")
    noisy = candidate.model_copy(update={"source": candidate.source + "\n\nimport sys\nNAMES = list(sys.modules)\n"})
    options = Options(device="cpu", seed=5, only=("residency", "values"))
    report = verify_task(task, noisy, options=options, zygote=zygote)
    assert report.candidate.hints
    assert report.label.value == "contract"
    assert "no part of the verdict" in " ".join(to_text(report, Names("r.py", "c.py")).split())
