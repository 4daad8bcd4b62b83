"""Tasks studied once, and verdicts on small kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.contract import Contract
from assay.report.model import Report
from assay.run.process import Zygote
from assay.task import parse_candidate, parse_task
from assay.task.facts import Study
from assay.task.study import study
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"


def task_source(sizes: str, forward: str, inputs: str, *, parameters: str = "x", init: str = "") -> str:
    """Text of a reference; `forward` and `init` are single statements."""
    constructor = f"    def __init__(self):\n        super().__init__()\n        {init}\n\n" if init else ""
    return (f"{HEAD}{sizes}\n\n\nclass Model(nn.Module):\n{constructor}    def forward(self, {parameters}):\n"
            f"        {forward}\n\n\ndef get_inputs():\n    return {inputs}\n\n\n"
            "def get_init_inputs():\n    return []\n")


@pytest.fixture
def studied() -> Callable[..., Study]:
    def make(*args: str, **kwargs: str) -> Study:
        return study(parse_task(task_source(*args, **kwargs)), budget_s=20.0)

    return make


@pytest.fixture
def judged(zygote: Zygote) -> Callable[..., Report]:
    """Verdict on a candidate of a task under a contract given as data."""

    def judge(task: str, candidate: str, only: tuple[str, ...],
              contract: dict[str, Any] | None = None, tier: str = "standard") -> Report:
        options = Options(device="cpu", tier=EffortTier(tier), only=only, seed=5, lanes=1)
        return verify_task(parse_task(task), parse_candidate(candidate),
                           contract=Contract.from_data(contract or {}), options=options, zygote=zygote)

    return judge
