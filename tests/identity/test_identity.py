"""The reference as its own candidate passes every gate: whatever is found in it is a false alarm."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from assay.run.process import Zygote
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label

_spec = importlib.util.spec_from_file_location("identity_tasks", Path(__file__).with_name("generate.py"))
assert _spec is not None
assert _spec.loader is not None
generate = importlib.util.module_from_spec(_spec)
sys.modules["identity_tasks"] = generate
_spec.loader.exec_module(generate)

TASKS = {task.name: task for task in generate.tasks()}
SAMPLE = (
    ("elementwise-gelu", "compiled"), ("reduction-topk", "candidate"), ("norm-batch_train", "candidate"),
    ("matmul-upper", "candidate"), ("conv-2d_shape_tuple", "without_contiguous"),
    ("softmax-additive_mask", "candidate"), ("loss-cross_entropy", "candidate"),
    ("form-closure", "candidate"), ("recurrent-gru", "candidate"), ("form-nested", "compiled"),
    ("half-softmax", "candidate"), ("mode-dropout_train", "candidate"),
)


def test_there_are_more_than_two_hundred_different_tasks():
    assert len(TASKS) >= 200
    assert len({task.source for task in TASKS.values()}) == len(TASKS)
    assert len({task.family for task in TASKS.values()}) >= 15


@pytest.mark.parametrize(("name", "variant"), SAMPLE)
def test_a_reference_passes_its_own_contract(zygote: Zygote, name: str, variant: str):
    task = TASKS[name]
    report = verify_task(
        parse_task(task.source, id=name), parse_candidate(getattr(task, variant)),
        options=Options(device="cpu", tier=EffortTier.QUICK, seed=11, lanes=1), zygote=zygote)
    assert report.findings == ()
    assert report.label is Label.CONTRACT, [(g.slug, g.outcome, g.undecided) for g in report.gates]
