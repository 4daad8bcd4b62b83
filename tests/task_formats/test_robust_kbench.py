"""robust-kbench: configurations become tasks, integers of `get_inputs` become sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.report.model import Report
from assay.run.process import Zygote
from assay.task.formats import Loaded, detect, load
from assay.task.formats.loaded import parse
from assay.task.formats.robust_kbench_backward import candidate as backward_candidate
from assay.task.model import Candidate, parse_candidate
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label, Reason

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


BACKWARD = FORWARD + """

class AutogradFunction(torch.autograd.Function):
    backward_fn = None

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return AutogradFunction.backward_fn(grad_output, x, weight)
"""
KERNEL_BACKWARD = """#include <torch/extension.h>
std::vector<torch::Tensor> backward(torch::Tensor g, torch::Tensor x, torch::Tensor w) { return {g, x, w}; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("backward", &backward); }
"""
RIGHT = """
import torch
import triton
import triton.language as tl


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0)
    tl.store(y_ptr + col, total, mask=col < cols)


def backward_fn(grad_output, x, weight):
    g = grad_output.contiguous()
    rows, cols = g.shape
    db = torch.empty(cols, dtype=g.dtype, device=g.device)
    column_sum_kernel[(triton.cdiv(cols, 32),)](g, db, rows, cols, BLOCK=32)
    return g @ weight, g.t() @ x, db
"""


def trained(zygote: Zygote, loaded: Loaded, source: str) -> Report:
    candidate = written(loaded, source)
    return verify_task(loaded.task, candidate, contract=loaded.contract, zygote=zygote,
                       options=Options(device="cpu", tier=EffortTier.QUICK, only=("values", "gradients"), seed=3))


def written(loaded: Loaded, source: str) -> Candidate:
    assert loaded.task.path is not None
    file = Path(loaded.task.path).with_name("kernel.py")
    file.write_text(source, encoding="utf-8")
    return backward_candidate(file, parse(BACKWARD, "func_backward.py"))


def test_a_backward_is_a_task_of_its_own_whose_gradients_a_kernel_owes(tree, zygote):
    forward, backward = load(tree({"func_forward.py": FORWARD, "func_backward.py": BACKWARD,
                                   "forward.cu": KERNEL, "backward.cu": KERNEL_BACKWARD}))
    assert [c.id for c in forward.candidates] == ["forward"]
    assert [c.id for c in backward.candidates] == ["backward"]
    assert backward.task.id.endswith("-backward")
    assert (backward.contract.gradients, backward.contract.provenance) == ("training", "none")
    assert not trained(zygote, backward, RIGHT).findings
    mean = trained(zygote, backward, RIGHT.replace("@ weight, g.t() @ x, db", "@ weight, g.t() @ x, db / rows"))
    assert {(f.reason, f.output) for f in mean.findings} == {(Reason.GRADIENT_VALUE, "grad parameter:fc.bias")}
    short = trained(zygote, backward, RIGHT.replace("@ x, db", "@ x, None"))
    assert {(f.reason, f.output) for f in short.findings} == {(Reason.GRADIENT_MISSING, "parameter:fc.bias")}


def test_a_backward_may_come_alone(tree):
    root = tree({"func_backward.py": BACKWARD})
    assert detect(root) == "robust-kbench"
    (loaded,) = load(root)
    assert any("config_backward.json" in note for note in loaded.notes)


@pytest.mark.parametrize(("files", "says"), [
    ({"func_backward.py": FORWARD}, "no `AutogradFunction`"),
    ({"func_forward.py": "def get_inputs(): return []"}, "no `Model`"),
    ({"func_forward.py": FORWARD, "config_forward.json": "{"}, "not valid JSON"),
    ({"func_forward.py": FORWARD, "config_forward.json": '{"multi_input_configs": 3}'}, "list of tables"),
])
def test_faults_are_told_in_one_line(tree, files, says):
    with pytest.raises(InputError) as caught:
        load(tree(files))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
