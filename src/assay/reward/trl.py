"""Reward functions for TRL's trainers (`GRPOTrainer(reward_funcs=...)`).

TRL calls `f(prompts=..., completions=..., completion_ids=..., COLUMN=[...], trainer_state=..., log_extra=...,
log_metric=...)` and takes a list with a number or None for each completion; a row that is None in every function
moves the policy nowhere (trl/trainer/grpo_trainer.py, tried with 1.16).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from assay.errors import InputError
from assay.reward.judge import KernelReward
from assay.reward.scoring import Reward, Stage

RewardFunction = Callable[..., list[float | None]]


def kernel_reward(column: str = "reference", judge: KernelReward | None = None, **options: Any) -> RewardFunction:
    """A reward function for a data set whose column holds the source of each prompt's reference.

    Args:
        column: name of that column.
        judge: what judges; None makes one from the options.
        options: arguments of KernelReward.

    The function's own `judge` attribute is the judge, to be closed when training ends.
    """
    chosen = judge if judge is not None else KernelReward(**options)

    def assay_reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """What each completion earns as a kernel for its reference; None where it could not be decided."""
        references = columns.get(column)
        if references is None or len(references) != len(completions):
            names = sorted(k for k, v in columns.items() if isinstance(v, list) and len(v) == len(completions))
            raise InputError(f"the data set has no column `{column}` with a reference for each prompt",
                             "kernel_reward", f"name the right one of: {', '.join(names) or 'none'}")
        found = chosen.rewards(references, completions)
        _log(found, columns.get("log_extra"), columns.get("log_metric"))
        return [reward.value for reward in found]

    assay_reward.judge = chosen  # type: ignore[attr-defined]
    return assay_reward


def _log(found: Sequence[Reward], log_extra: Any, log_metric: Any) -> None:
    """Stages into the table of completions and the metrics, where the trainer takes them."""
    if callable(log_extra):
        log_extra("assay_stage", [reward.stage.value for reward in found])
    if callable(log_metric) and found:
        counts = Counter(reward.stage for reward in found)
        for stage in Stage:
            log_metric(f"assay/{stage.value}", counts[stage] / len(found))
