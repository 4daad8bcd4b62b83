"""The reward functions as TRL and verl call them, with real verdicts.

The calls are written out as those libraries make them (TRL 1.16, verl 0.9); where a library is installed, its own
code makes them too.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from assay.errors import InputError
from assay.reward import Stage, verl
from assay.reward.judge import KernelReward
from assay.reward.trl import kernel_reward

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

ROWS = 6

def get_inputs():
    return [torch.randn(ROWS, 5)]

def get_init_inputs():
    return []
"""


def answer(body: str) -> str:
    return ("Here:\n```python\nimport torch\nimport torch.nn as nn\n\nclass ModelNew(nn.Module):\n"
            f"    def forward(self, x):\n        {body}\n```\nDone.")


RIGHT, WRONG = answer("return x + x"), answer("return x * 2 if x.shape[0] == 6 else x * 3")
RAISING, TORN, NO_CODE = answer("raise ValueError(x)"), answer("return ((x"), "I cannot."
CHEAT = answer("torch.allclose = lambda *a, **k: True; return x * 0")
STAGES = {RIGHT: Stage.RIGHT, WRONG: Stage.REJECTED, RAISING: Stage.NEVER_RAN, TORN: Stage.NEVER_RAN,
          NO_CODE: Stage.NO_CODE, CHEAT: Stage.TAMPERED}


@pytest.fixture(scope="module")
def judge() -> Iterator[KernelReward]:
    with KernelReward(device="cpu", workers=1) as found:
        yield found


def test_completions_earn_what_their_stage_says(judge: KernelReward) -> None:
    found = dict(zip(STAGES, judge.rewards([REFERENCE] * len(STAGES), list(STAGES)), strict=True))
    assert {text: reward.stage for text, reward in found.items()} == STAGES
    assert found[RIGHT].value == 0.5
    assert 0 < (found[WRONG].value or 0) <= 0.2
    assert found[RAISING].value == found[NO_CODE].value == found[CHEAT].value == 0.0
    assert found[RIGHT].gates_passed == found[RIGHT].gates > 10


def test_equal_content_is_judged_once(judge: KernelReward) -> None:
    first, again = judge.submit(REFERENCE, RIGHT), judge.submit(REFERENCE, "As before.\n" + RIGHT)
    assert again is first


def test_speed_is_measured_only_for_what_is_right(judge: KernelReward) -> None:
    timed: list[str] = []

    def speed(task: Any, candidate: Any, report: Any) -> float:
        timed.append(candidate.source)
        return 4.0

    with KernelReward(device="cpu", workers=1, speed=speed) as paying:
        assert paying.reward(REFERENCE, WRONG).stage is Stage.REJECTED
        # right, and under emulation: the time that is given is not paid for
        assert paying.reward(REFERENCE, RIGHT).value == 0.5
    assert len(timed) == 1
    assert "x + x" in timed[0]


def trl_call(function: Any, prompts: list[Any], completions: list[Any], columns: dict[str, list[Any]]) -> list[Any]:
    """The call of `GRPOTrainer._calculate_rewards`, and what it makes of the answer."""
    said: dict[str, Any] = {}
    found = function(prompts=prompts, completions=completions, completion_ids=[[1]] * len(prompts), **columns,
                     trainer_state=object(), log_extra=lambda name, values: said.setdefault(name, values),
                     log_metric=lambda name, value: said.setdefault(name, value))
    assert len(found) == len(prompts)
    assert all(value is None or isinstance(value, float) for value in found)
    assert len(said["assay_stage"]) == len(prompts)
    assert sum(value for name, value in said.items() if name.startswith("assay/")) == pytest.approx(1)
    return list(found)


def test_trl_plain_and_conversational(judge: KernelReward) -> None:
    function = kernel_reward(judge=judge)
    assert function.__name__ == "assay_reward"
    assert not inspect.iscoroutinefunction(function)
    completions = [RIGHT, WRONG, NO_CODE]
    plain = trl_call(function, ["p"] * 3, completions, {"reference": [REFERENCE] * 3})
    assert plain[0] == 0.5
    assert plain[2] == 0.0
    talk = trl_call(function, [[{"role": "user", "content": "p"}]] * 3,
                    [[{"role": "assistant", "content": text}] for text in completions],
                    {"reference": [REFERENCE] * 3, "difficulty": [1, 2, 3]})
    assert talk == plain


def test_trl_without_the_column_is_told_which_there_are(judge: KernelReward) -> None:
    with pytest.raises(InputError, match="difficulty"):
        kernel_reward(judge=judge)(prompts=["p"], completions=[RIGHT], difficulty=[1], trainer_state=object())


@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="trl is not installed")
def test_trl_s_own_code_calls_it(judge: KernelReward) -> None:
    import torch
    from trl import GRPOTrainer

    calculate = inspect.unwrap(GRPOTrainer._calculate_rewards)
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cpu"), is_main_process=True),
        reward_funcs=[kernel_reward(judge=judge)], reward_processing_classes=[None],
        reward_func_names=["assay_reward"], state=SimpleNamespace(global_step=0), environments=None,
        args=SimpleNamespace(report_to=[]), _log_completion_extra=lambda *a: None, _log_metric=lambda *a: None)
    inputs = [{"prompt": "p", "reference": REFERENCE}] * 2
    found = calculate(trainer, inputs, ["p"] * 2, [RIGHT, NO_CODE], [[1], [1]])
    assert found.tolist() == [[0.5], [0.0]]


def verl_call(judge: KernelReward, solution: str, ground_truth: Any, **extra: Any) -> dict[str, Any]:
    """The call of verl's `NaiveRewardManager.run_single`, with the judge as one of its `reward_kwargs`."""
    found = verl.compute_score(data_source="kernels", solution_str=solution, ground_truth=ground_truth,
                               extra_info={"num_turns": None, "rollout_reward_scores": {}, **extra}, judge=judge)
    assert isinstance(found["score"], float)
    return found


def test_verl_gets_a_number_and_the_same_keys_for_every_sample(judge: KernelReward) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda text: verl_call(judge, text, REFERENCE), STAGES))
    assert len({tuple(sample) for sample in found}) == 1
    assert {text: sample["stage"] for text, sample in zip(STAGES, found, strict=True)} == STAGES
    assert [sample["contract"] for sample in found] == [1, 0, 0, 0, 0, 0]
    assert verl_call(judge, RIGHT, {"reference": REFERENCE})["score"] == 0.5
    assert verl_call(judge, RIGHT, "", reference=REFERENCE)["score"] == 0.5
    with pytest.raises(InputError, match="no source of a reference"):
        verl_call(judge, RIGHT, "42")


def test_verl_scores_the_undecided_with_the_mean_of_their_task() -> None:
    def undecided(reference: str) -> float:
        return verl._scored(reference, None)

    task = "a task of this test alone\n"
    assert undecided(task) == verl.START
    for value in (0.5, 0.1):
        assert verl._scored(task, value) == value
    assert undecided(task) == pytest.approx(0.3)
    assert undecided(task) == pytest.approx(0.3)


@pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl is not installed")
def test_verl_s_own_code_calls_it(judge: KernelReward) -> None:
    import torch
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

    class Tokenizer:
        def decode(self, ids: Any, skip_special_tokens: bool) -> str:
            return [RIGHT, NO_CODE][int(ids[0])]

    async def score(which: int) -> dict[str, Any]:
        manager = NaiveRewardManager(
            None, Tokenizer(), lambda **call: verl.compute_score(**call, judge=judge))
        item = SimpleNamespace(
            batch={"responses": torch.tensor([which]), "attention_mask": torch.tensor([1])},
            non_tensor_batch={"data_source": "kernels", "reward_model": {"ground_truth": REFERENCE}, "extra_info": {}})
        result = await manager.run_single([item])
        return dict(result)

    for which, wanted in ((0, 0.5), (1, 0.0)):
        result = asyncio.run(score(which))
        assert result["reward_score"] == wanted
        assert result["reward_extra_info"]["decided"] == 1


def test_a_reference_at_fault_is_an_error_and_not_a_reward(judge: KernelReward) -> None:
    with pytest.raises(InputError, match="no class Model"):
        judge.reward("import torch\n", RIGHT)
    with pytest.raises(InputError, match="not today"):
        judge.reward(REFERENCE.replace("return x * 2", "raise ValueError('not today')"), RIGHT)
