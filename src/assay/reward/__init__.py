"""Rewards for training loops: what a verdict is worth as a number, and the functions that trainers call.

    from assay.reward import reward_of

    reward_of(assay.verify("candidate.py", "reference.py")).value

See docs/reward.md for the stages, `assay.reward.trl` and `assay.reward.verl` for the adapters.
"""

from assay.reward.extraction import code_of, text_of
from assay.reward.metrics import fast_p, mean_pass_at_k, pass_at_k
from assay.reward.scoring import Reward, Stage, Stages, reward_of, reward_of_screen

__all__ = [
    "Reward",
    "Stage",
    "Stages",
    "code_of",
    "fast_p",
    "mean_pass_at_k",
    "pass_at_k",
    "reward_of",
    "reward_of_screen",
    "text_of",
]
