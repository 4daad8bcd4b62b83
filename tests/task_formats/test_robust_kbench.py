"""robust-kbench: configurations become tasks, integers of `get_inputs` become sizes."""

from __future__ import annotations

import json

import pytest

from assay.errors import InputError
from assay.task.formats import detect, load
from assay.task.model import parse_candidate
from assay.vocabulary import Label

FORWARD = '''
import torch
import torch.nn as nn
import torch.nn.functional as F


def forward_fn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight, bias)


class Model(nn.Module):
    def __init__(self, num_input_features: int = 16, num_output_features: int = 8):
        super().__init__()
        self.fc = nn.Linear(num_input_features, num_output_features)

    def forward(self, x: torch.Tensor, fn=forward_fn) -> torch.Tensor:
        return fn(x, self.fc.weight, self.fc.bias)


def get_inputs(batch_size: int = 4, num_input_features: int = 16):
    return [torch.randn(batch_size, num_input_features)]


input_names = ["x"]
'''
CONFIG = {
    "single_input_configs": [{"batch_size": 4}],
    "single_init_configs": [{"num_output_features": 8}],
    "single_shared_configs": [{"num_input_features": 16}],
    "multi_input_configs": [{"batch_size": 4}, {"batch_size": 6}],
    "multi_init_configs": [{"num_output_features": 8}, {"num_output_features": 12}],
    "multi_shared_configs": [{"num_input_features": 16}],
}
KERNEL = """#include <torch/extension.h>
__global__ void k() {}
torch::Tensor forward(torch::Tensor x) { return x; }
"""
FILES = {"func_forward.py": FORWARD, "config_forward.json": json.dumps(CONFIG), "forward.cu": KERNEL}


def test_each_combination_of_configurations_is_a_task(tree):
    root = tree(FILES)
    assert detect(root) == "robust-kbench"
    loaded = load(root)
    assert len(loaded) == 4
    assert "batch_size = 6" in loaded[2].task.source
    assert [dict(one.details)["init_config"]["num_output_features"] for one in loaded] == [8, 12, 8, 12]


def test_a_cuda_file_is_called_in_the_place_of_the_reference_function(tree):
    (candidate,) = load(tree(FILES))[0].candidates
    assert candidate.language == "cuda"
    assert "fn=_built.forward" in candidate.source


def test_sizes_that_input_and_constructor_share_move_together(tree, judged):
    loaded = load(tree(FILES))[0]
    right = parse_candidate(loaded.task.source + "\n\nclass ModelNew(Model):\n    pass\n")
    report = judged(loaded, right)
    assert report.label is Label.CONTRACT, [f.model_dump() for f in report.findings]
    shapes = next(g for g in report.gates if g.slug == "shapes")
    assert shapes.probes_run > 0


def test_without_configurations_defaults_are_the_native_sizes(tree):
    root = tree({"func_forward.py": FORWARD})
    (loaded,) = load(root)
    assert "batch_size = 4" in loaded.task.source
    assert any("config_forward.json" in note for note in loaded.notes)


@pytest.mark.parametrize(("files", "says"), [
    ({"func_forward.py": "def get_inputs(): return []"}, "no `Model`"),
    ({"func_forward.py": FORWARD, "config_forward.json": "{"}, "not valid JSON"),
    ({"func_forward.py": FORWARD, "config_forward.json": '{"multi_input_configs": 3}'}, "list of tables"),
])
def test_faults_are_told_in_one_line(tree, files, says):
    with pytest.raises(InputError) as caught:
        load(tree(files))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
