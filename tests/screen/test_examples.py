"""The wrong kernels of the examples are wrong in ways that the usual screen does not see."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from assay.run.process import Zygote
from assay.screen import screen_task
from assay.verify import load_pair

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _examples() -> list[tuple[str, str, str]]:
    cases = []
    for path in sorted(EXAMPLES.glob("*/example.toml")):
        data = tomllib.loads(path.read_text())
        cases.append((path.parent.name, data["right"], "pass"))
        cases += [(path.parent.name, wrong["file"], wrong["screen"]) for wrong in data["wrong"]]
    return cases


@pytest.mark.parametrize(("task", "kernel", "says"), _examples())
def test_the_usual_screen_says_of_each_example_what_its_description_says(
    zygote: Zygote,
    task: str,
    kernel: str,
    says: str,
) -> None:
    loaded, found = load_pair(EXAMPLES / task / "reference.py", EXAMPLES / task / kernel)
    report = screen_task(loaded, found, device="cpu", zygote=zygote)
    assert (report.outcome.value, report.text) == (says, None)
