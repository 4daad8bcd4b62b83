"""A reward function for verl (`custom_reward_function.path: pkg://assay.reward.verl`, `name: compute_score`).

verl calls `compute_score(data_source=..., solution_str=..., ground_truth=..., extra_info=...)` from several threads,
with `reward_kwargs` of its configuration on top, and takes a number or a dict with `score` and the same further
keys for every sample. A score of None does not exist there (verl/experimental/reward_loop, tried with 0.9).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from assay.errors import InputError
from assay.reward.judge import KernelReward
from assay.reward.scoring import Reward

_lock = threading.Lock()
_judges: dict[tuple[tuple[str, str], ...], KernelReward] = {}
_means: dict[str, tuple[int, float]] = {}
OPTIONS = ("tier", "device", "contract", "workers", "timeout", "entry", "speed")
"""Keys of `reward_kwargs` that go to KernelReward."""
START = 0.25
"""What an undecided sample scores before any of its task was decided."""


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None,
                  **kwargs: Any) -> dict[str, Any]:
    """What one response earns as a kernel.

    Args:
        data_source: name of the data set; not used.
        solution_str: the response.
        ground_truth: source of the reference, or a dict with it under `reference`.
        extra_info: looked at for `reference` where `ground_truth` has none.
        kwargs: `tier`, `device`, `contract`, `workers`, `timeout`, `entry`, `speed` of KernelReward, or a `judge`;
            other arguments of the trainer are left alone.

    Returns `score`, `decided` (1 or 0), `stage`, `contract` (1 or 0) and `gates_passed` (a share). An undecided
    sample scores the mean of what was decided for its task before, so that it pulls neither up nor down; mask it
    by `decided` where the algorithm can.

    Raises:
        InputError: there is no reference, or it is at fault.
    """
    reference = _reference(ground_truth, extra_info)
    judge = kwargs.get("judge") or _judge(kwargs)
    reward: Reward = judge.reward(reference, solution_str)
    return {
        "score": _scored(reference, reward.value), "decided": int(reward.decided), "stage": reward.stage.value,
        "contract": int(reward.stage in ("right", "faster")),
        "gates_passed": reward.gates_passed / reward.gates if reward.gates else 0.0,
    }


def _reference(ground_truth: Any, extra_info: Mapping[str, Any] | None) -> str:
    if isinstance(ground_truth, Mapping):
        ground_truth = ground_truth.get("reference")
    if isinstance(ground_truth, str) and "\n" in ground_truth:
        return ground_truth
    named = (extra_info or {}).get("reference")
    if isinstance(named, str) and "\n" in named:
        return named
    raise InputError("no source of a reference", "ground_truth",
                     "put it there, or into extra_info under `reference`")


def _judge(kwargs: Mapping[str, Any]) -> KernelReward:
    """The judge of these options; all calls of a process share it."""
    chosen = {name: kwargs[name] for name in OPTIONS if kwargs.get(name) is not None}
    key = tuple(sorted((name, repr(value)) for name, value in chosen.items()))
    with _lock:
        if key not in _judges:
            _judges[key] = KernelReward(**chosen)
        return _judges[key]


def close() -> None:
    """End the judges of this process."""
    with _lock:
        judges = list(_judges.values())
        _judges.clear()
    for judge in judges:
        judge.close()


def _scored(reference: str, value: float | None) -> float:
    with _lock:
        count, mean = _means.get(reference, (0, START))
        if value is None:
            return mean
        count += 1
        _means[reference] = count, mean + (value - mean) / count
        return value
