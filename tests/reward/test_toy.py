"""The toy loop of `examples/rl`, and what docs/reward.md says of it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from assay.task import load_candidate

ROOT = Path(__file__).resolve().parents[2]
RESULT = json.loads((ROOT / "benchmarks/results/reward-toy.cpu.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def loop() -> ModuleType:
    spec = importlib.util.spec_from_file_location("toy_loop", ROOT / "examples/rl/loop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_policy_goes_where_it_is_paid_and_nowhere_without_pay(loop: ModuleType) -> None:
    settings = {"steps": 300, "batch": 16, "rate": 1.0, "seed": 3}
    paid = loop.trained(np.array([0.1, 0.1, 0.5, 0.1]), **settings)
    assert paid.shape == (301, 4)
    assert np.allclose(paid.sum(axis=1), 1)
    assert np.allclose(paid[0], 0.25)
    assert paid[-1, 2] > 0.95
    assert np.array_equal(paid, loop.trained(np.array([0.1, 0.1, 0.5, 0.1]), **settings))
    assert np.allclose(loop.trained(np.zeros(4), **settings), 0.25)


def test_the_result_follows_from_its_own_verdicts(loop: ModuleType) -> None:
    curves = loop.study(RESULT["rows"], **RESULT["settings"])
    for name in ("screen", "contract"):
        for what in ("reward", "right", "cheat", "wrong"):
            assert RESULT["metrics"][f"{name}_{what}_end"] == pytest.approx(curves[name][what][-1])


def test_the_screen_alone_is_climbed_by_cheating_and_the_contract_is_not() -> None:
    metrics: dict[str, Any] = RESULT["metrics"]
    assert metrics["screen_reward_end"] > 0.95
    assert metrics["screen_cheat_end"] > metrics["screen_cheat_start"] > metrics["contract_cheat_end"]
    assert metrics["contract_right_end_min"] > 0.9


def test_every_candidate_is_in_the_result_and_says_what_it_is() -> None:
    paths = sorted((ROOT / "examples/rl/candidates").glob("*.py"))
    assert [row["candidate"] for row in RESULT["rows"]] == [path.stem for path in paths]
    for row, path in zip(RESULT["rows"], paths, strict=True):
        assert load_candidate(path).defect is None
        assert (row["label"] == "contract") is (row["kind"] == "right")
        assert row["screen_passed"] is (row["kind"] != "wrong")
        assert ("Cheats:" in path.read_text()) is (row["kind"] == "cheat")


def test_the_page_quotes_the_result() -> None:
    page = " ".join((ROOT / "docs/reward.md").read_text(encoding="utf-8").split())
    metrics = RESULT["metrics"]
    for words in (
        f"from {metrics['screen_reward_start']:.2f} to {metrics['screen_reward_end']:.2f} by cheating",
        f"cheats in {metrics['screen_cheat_end']:.0%} of its choices, and {metrics['screen_right_end']:.0%} are right",
        f"{metrics['contract_right_end']:.0%} are right", f"{metrics['contract_right_end_min']:.1%} right in the worst",
    ):
        assert words in page
