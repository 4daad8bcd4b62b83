"""popcorn: tests as sizes, device literals, outputs that are given to the kernel, and the YAML they use."""

from __future__ import annotations

import pytest

from assay.errors import InputError
from assay.task.formats import detect, load, popcorn, yaml_subset
from assay.vocabulary import Label

TASK = '''# name: doubled-rows
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
lang: "py"
description: |
  Doubles: every element
tests:
  - {"rows": 8, "cols": 40, "seed": 1}
  - {"rows": 4, "cols": 30, "seed": 2}
benchmarks:
  - rows: 64
    cols: 512
    seed: 3
'''
REFERENCE = '''
import torch
from task import input_t, output_t
from utils import make_match_reference


def generate_input(rows: int, cols: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    x = torch.randn(rows, cols, device="cuda", generator=gen).contiguous()
    out = torch.empty(rows, cols, device="cuda").contiguous()
    return x, out


def ref_kernel(data: input_t) -> output_t:
    x, out = data
    out[...] = 2 * x
    return out


check_implementation = make_match_reference(ref_kernel)
'''
RIGHT = '''
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, out = data
    torch.add(x, x, out=out)
    return out
'''
WRONG = RIGHT.replace("torch.add(x, x, out=out)", "out[:, :30] = 2 * x[:, :30]")
FILES = {"task.yml": TASK, "reference.py": REFERENCE, "submission.py": RIGHT,
         "task.py": "import torch\ninput_t = tuple\noutput_t = torch.Tensor\n",
         "solutions/wrong/part.py": WRONG}


def test_the_smallest_test_gives_the_native_sizes(tree):
    root = tree(FILES)
    assert detect(root) == "popcorn"
    (loaded,) = load(root)
    assert "rows = 4" in loaded.task.source
    assert "cuda" not in loaded.task.source
    assert "check_implementation" not in loaded.task.source
    assert "rows = 64" in popcorn.load_case(root, 2).task.source


def test_submissions_may_write_to_the_outputs_they_are_given(tree, judged):
    (loaded,) = load(tree(FILES))
    right, wrong = loaded.candidates
    report = judged(loaded, right)
    assert report.label is Label.CONTRACT, [f.model_dump() for f in report.findings]
    report = judged(loaded, wrong)
    assert report.label is Label.REJECTED
    assert {f.slug for f in report.findings} == {"shapes"}


def test_memory_that_the_generator_fills_is_an_input():
    import ast

    maker = ast.parse(
        "def generate_input(n):\n    a = torch.empty(n)\n    a.uniform_(0, 1)\n    b = torch.empty_like(a)\n"
        "    c = torch.empty(n).random_(0, 2)\n    return a, b, c, torch.empty(n)\n").body[0]
    assert popcorn.uninitialised(maker) == (1, 3)


@pytest.mark.parametrize(("text", "expected"), [
    ('tests:\n  - {"m": 64, k: -1.5, s: abc, f: [1, 2], b: true, n: null}\n',
     [{"m": 64, "k": -1.5, "s": "abc", "f": [1, 2], "b": True, "n": None}]),
    ("tests:\n- size: 127  # odd\n  seed: 4242\n- size: 128\nother: 1\n",
     [{"size": 127, "seed": 4242}, {"size": 128}]),
    ('tests:\n  - {"a":1,"b":"x, y"}\n', [{"a": 1, "b": "x, y"}]),
])
def test_lists_of_arguments_are_read(text, expected):
    assert yaml_subset.lists(text, ("tests",), "task.yml")["tests"] == expected


@pytest.mark.parametrize(("text", "says"), [
    ("tests:\n  - {m: 1\n", "several lines"),
    ("tests:\n  - &anchor\n", "no `key: value`"),
    ("tests:\n  m: 1\n", "begin with `-`"),
    ("tests:\n  - m: !!python/object 1\n", "not understood"),
    ("other: 1\n", "no tests"),
])
def test_what_is_not_understood_names_its_line(tree, text, says):
    with pytest.raises(InputError, match=r"task\.yml") as caught:
        load(tree({**FILES, "task.yml": text}))
    assert says in str(caught.value)


def test_a_submission_without_the_function_is_refused(tree):
    with pytest.raises(InputError, match="no function `custom_kernel`"):
        load(tree({**FILES, "submission.py": "custom_kernel = None\n"}))
