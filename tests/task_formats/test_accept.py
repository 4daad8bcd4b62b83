"""Folders of other formats given where a reference file is: a right and a wrong candidate of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay import accept
from assay.contract.cli import infer_command
from assay.errors import InputError
from assay.run.process import Zygote
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label

TRITON = '''
import torch
import triton
import triton.language as tl


@triton.jit
def _halves(x, y, n, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * width + at, mask=at < width, other=0.0)
    tl.store(y + row * width + at, v * FACTOR, mask=at < width)


def halves(x, y):
    width = x.shape[-1] if x.dim() else 1
    if x.numel():
        _halves[(x.numel() // width,)](x, y, x.numel(), width, BLOCK=triton.next_power_of_2(width))
    return y
'''
DEFINITION = {
    "name": "halved_rows", "op_type": "rows",
    "axes": {"batch": {"type": "var"}, "width": {"type": "const", "value": 24}},
    "inputs": {"x": {"shape": ["batch", "width"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["batch", "width"], "dtype": "float32"}},
    "reference": "def run(x):\n    return x * 0.5\n",
}
SOLUTION = TRITON + "\n\ndef run(x, y):\n    halves(x.contiguous(), y)\n"
FORWARD = '''
import torch
import torch.nn as nn


def forward_fn(x, weight):
    return 0.5 * x * weight


class Model(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight)


def get_inputs(rows=4, width=20):
    return [torch.randn(rows, width)]
'''
POPCORN = '''
import torch


def generate_input(rows: int, seed: int):
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    return torch.randn(rows, 18, device="cuda", generator=gen), torch.empty(rows, 18, device="cuda")


def ref_kernel(data):
    x, out = data
    out[...] = x / 2
    return out
'''


def solution(text: str) -> str:
    return json.dumps({"name": "one", "definition": "halved_rows", "author": "someone",
                       "spec": {"language": "triton", "entry_point": "main.py::run"},
                       "sources": [{"path": "main.py", "content": text}]})


def both(text: str) -> tuple[str, str]:
    """The text with the right factor, and with a wrong one."""
    return text.replace("FACTOR", "0.5"), text.replace("FACTOR", "0.501")


PLAIN = "def run(x):\n    return x * FACTOR\n"
MODEL_NEW = FORWARD.replace("class Model(", "class ModelNew(").replace("0.5", "FACTOR")
SUBMISSION = TRITON + "\n\ndef custom_kernel(data):\n    x, out = data\n    return halves(x.contiguous(), out)\n"
OVERLOAD = TRITON + "\n\ndef div__Tensor_kernel_impl(*args, **kwargs):\n" \
                    "    return halves(args[0].contiguous(), torch.empty(args[0].shape))\n"
FORMATS = {
    "a solution": ({"definitions/rows/halved_rows.json": json.dumps(DEFINITION)}, "", "solutions/s.json",
                   tuple(map(solution, both(SOLUTION)))),
    "a file with run": ({"definitions/rows/halved_rows.json": json.dumps(DEFINITION)},
                        "definitions/rows/halved_rows.json", "mine.py", both(PLAIN)),
    "a file with forward_fn": ({"func_forward.py": FORWARD}, "func_forward.py", "mine.py",
                               both("def forward_fn(x, weight):\n    return FACTOR * x * weight\n")),
    "a file with ModelNew": ({"func_forward.py": FORWARD}, "", "mine.py", both(MODEL_NEW)),
    "a submission": ({"task.yml": 'tests:\n  - {"rows": 5, "seed": 1}\n', "reference.py": POPCORN}, "",
                     "mine.py", both(SUBMISSION)),
    "an overload": ({"div__Tensor/first.py": "def div__Tensor_kernel_impl(a, b):\n    return a / b\n",
                     "div__Tensor/inputs.txt": "((T([4, 12], f32), 2), {})\n"}, "div__Tensor", "mine.py",
                    both(OVERLOAD)),
}


@pytest.mark.parametrize(("name", "which"), [(name, which) for name in FORMATS for which in ("right", "wrong")])
def test_a_candidate_of_another_format_gets_its_verdict(tree, zygote: Zygote, name: str, which: str):
    files, place, candidate, texts = FORMATS[name]
    root: Path = tree({**files, candidate: texts[which == "wrong"]})
    task, found = accept.pair(root / place, root / candidate)
    report = verify_task(task, found, zygote=zygote,
                         options=Options(device="cpu", tier=EffortTier.QUICK, seed=5, lanes=1))
    told = [f.model_dump() for f in report.findings] or [(g.slug, g.note) for g in report.gates]
    assert report.label is (Label.CONTRACT if which == "right" else Label.REJECTED), told
    if which == "wrong":
        assert "values" in {f.slug for f in report.findings}


def test_what_a_format_states_is_part_of_the_contract(tree, zygote: Zygote):
    files, place, candidate, texts = FORMATS["a file with run"]
    root = tree({**files, candidate: texts[0]})
    task, found = accept.pair(root / place, root / candidate)
    report = verify_task(task, found, zygote=zygote,
                         options=Options(device="cpu", tier=EffortTier.QUICK, only=("shapes",), seed=5, lanes=1))
    assert report.contract["domain"]["sizes"]["width"]["fixed"]
    note = next(g.note for g in report.gates if g.slug == "shapes")
    assert note is not None
    assert "batch=" in note
    assert "width=" not in note
    assert any("no workload" in text for text in task.notes)


def test_one_of_several_tasks_is_named(tree):
    second = json.dumps({**DEFINITION, "name": "other"})
    root = tree({"definitions/rows/halved_rows.json": json.dumps(DEFINITION), "definitions/other.json": second})
    with pytest.raises(InputError, match="2 tasks") as caught:
        accept.task(root)
    assert f"{root}::other" in str(caught.value)
    assert accept.task(f"{root}::other").id == "other"
    assert accept.task(root / "definitions/other.json").id == "other"
    with pytest.raises(InputError, match="no task `third`"):
        accept.task(f"{root}::third")


def test_a_plain_folder_is_no_task(tmp_path):
    with pytest.raises(InputError, match="directory"):
        accept.task(tmp_path)
    (tmp_path / "reference.py").write_text("x = 1\n")
    with pytest.raises(InputError, match="this is none"):
        accept.task(f"{tmp_path / 'reference.py'}::name")


def test_an_inferred_contract_says_which_clauses_the_format_states(tree, capsys):
    files, place, _, _ = FORMATS["a file with run"]
    infer_command(tree(files) / place)
    text = capsys.readouterr().out
    assert 'gradients = "none"  # stated by the task\'s own format' in text
    table = text.partition("[domain.sizes.width]")[2].partition("\n\n")[0]
    assert "fixed = true  # stated by the task's own format" in table


def test_a_telling_file_stands_for_its_folder(tree):
    files, _, _, _ = FORMATS["a submission"]
    root = tree(files)
    assert accept.task(root / "reference.py").id == accept.task(root / "task.yml").id == accept.task(root).id
    (root / "task.yml").unlink()
    with pytest.raises(InputError, match="no class Model"):
        accept.task(root / "reference.py")
