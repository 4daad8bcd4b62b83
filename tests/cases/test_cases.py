"""The acceptance cases: small tasks, each with a right or a wrong candidate and the verdict it deserves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.contract import Contract
from assay.gates import GATES
from assay.report.model import Report
from assay.run.process import Zygote
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import EffortTier

CASES = sorted(p.parent for p in Path(__file__).parent.glob("*/expect.json"))
LABELS = {"accept": "contract", "reject": "rejected"}


def _expect(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "expect.json").read_text())
    return loaded


# a fault that shows only beyond 2^31 elements, which the deep tier alone visits
HUGE = ("r30-int32-offset-overflow",)


def _verdict(folder: Path, zygote: Zygote, device: str) -> Report:
    contract = Contract.from_data(_expect(folder)["contract"] or {})
    task, candidate = load_pair(folder / "reference.py", folder / "candidate.py")
    return verify_task(task, candidate, contract=contract, zygote=zygote,
                       options=Options(device=device, seed=20260, tier=_tier(folder)))


def _tier(folder: Path) -> EffortTier:
    return EffortTier.DEEP if folder.name in HUGE else EffortTier.STANDARD


def _check(folder: Path, report: Report) -> None:
    expect = _expect(folder)
    fired = {f.slug for f in report.findings}
    told = "\n".join(f"{f.slug} {f.reason.value} {f.probe} {f.output}{f.index}: expected {f.expected}, got {f.actual}"
                     for f in report.findings)
    undecided = [(g.slug, g.outcome.value, g.reason, g.undecided) for g in report.gates
                 if g.outcome.value in ("inconclusive", "error")]
    assert report.label.value == LABELS[expect["decision"]], f"{expect['why']}\n{told}\n{undecided}"
    assert not fired & set(expect["must_pass"]), told
    if expect["any_of"]:
        assert fired & set(expect["any_of"]), told
    if expect["decision"] == "accept":
        assert not report.findings, told


def _cases(device: str) -> list[Any]:
    marks = [pytest.mark.gpu] if device == "cuda" else []
    return [pytest.param(c, id=c.name, marks=marks) for c in CASES if _expect(c)["device"] == device]


@pytest.mark.parametrize("folder", _cases("cpu"))
def test_cpu_case_gets_its_verdict(folder: Path, zygote: Zygote) -> None:
    expect = _expect(folder)
    if expect["any_of"] and not set(expect["any_of"]) & set(GATES):
        pytest.skip(f"waits for the gates {', '.join(expect['any_of'])}")
    _check(folder, _verdict(folder, zygote, "cpu"))


@pytest.mark.parametrize("folder", _cases("cuda"))
def test_gpu_case_gets_its_verdict(folder: Path, zygote: Zygote) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    _check(folder, _verdict(folder, zygote, "cuda"))
