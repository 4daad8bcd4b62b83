"""ATen folders: overloads by name, serialised arguments, and samples of the operator database."""

from __future__ import annotations

import pytest

from assay.errors import InputError
from assay.task.formats import aten, detect, load
from assay.task.formats.aten import Arguments, TensorSpec
from assay.vocabulary import Label

RIGHT = "import torch\n\n\ndef add__Tensor_kernel_impl(*args, **kwargs):\n" \
        "    a, b = args[:2]\n    return a + kwargs.get('alpha', 1) * b\n"
WRONG = RIGHT.replace("kwargs.get('alpha', 1) * ", "")
LINES = "Operator: aten.mul.Tensor\n((T([2], f32), 2), {})\nOperator: aten.add.Tensor\n" \
        "cnt: 3, ((T([4, 1, 6], f32), T([5, 6], f32)), {'alpha': 2})\n"


def test_serialised_arguments_give_sizes_and_keywords(tree, judged):
    root = tree({"add__Tensor/right.py": RIGHT, "add__Tensor/wrong.py": WRONG, "inputs.txt": LINES})
    assert detect(root) == "aten"
    (loaded,) = load(root)
    assert loaded.task.id == "add__Tensor"
    assert "S0_0 = 4" in loaded.task.source
    assert dict(loaded.details)["cases"] == (
        Arguments((TensorSpec((4, 1, 6), "float32"), TensorSpec((5, 6), "float32")), {"alpha": 2}),)
    right, wrong = loaded.candidates
    report = judged(loaded, right)
    assert report.label is Label.CONTRACT, [f.model_dump() for f in report.findings]
    assert judged(loaded, wrong).label is Label.REJECTED


def test_sizes_that_broadcast_are_found_to_be_tied(tree, judged):
    root = tree({"add__Tensor/right.py": RIGHT, "inputs.txt": LINES})
    (loaded,) = load(root)
    shapes = next(g for g in judged(loaded, loaded.candidates[0]).gates if g.slug == "shapes")
    assert shapes.probes_run > 0


def test_the_operator_database_gives_inputs_as_the_overload_gets_them(tree, judged):
    source = "import torch\n\n\ndef _log_softmax_kernel_impl(*args, **kwargs):\n" \
             "    return args[0] - torch.logsumexp(args[0], args[1], keepdim=True)\n"
    (loaded,) = load(tree({"_log_softmax/first.py": source}))
    assert dict(loaded.details)["operator"] == "aten._log_softmax.default"
    assert any("operator database" in note for note in loaded.notes)
    report = judged(loaded, loaded.candidates[0])
    assert report.label is Label.CONTRACT, [f.model_dump() for f in report.findings]


@pytest.mark.parametrize(("text", "expected"), [
    ("((T([1, 512], f16),), {})", Arguments((TensorSpec((1, 512), "float16"),), {})),
    ("((T([2], i64), [1, -1], 1e-06, None, True), {'dim': -1})",
     Arguments((TensorSpec((2,), "int64"), [1, -1], 1e-06, None, True), {"dim": -1})),
    ("(([T([2], b8), T([], c64)], inf), {'dtype': torch.float16})",
     Arguments(([TensorSpec((2,), "bool"), TensorSpec((), "complex64")], float("inf")),
               {"dtype": "float16"})),
])
def test_lines_are_parsed(text, expected):
    assert aten.parse_arguments(text) == expected


@pytest.mark.parametrize("text", [
    "((__import__('os').system('true'),), {})", "((T([2], f32).shape,), {})", "((T([2], f31),), {})",
    "((lambda: 0,), {})", "((T('x', f32),), {})", "(1, 2)", "((T([2], f32)", "(([n for n in (1, 2)],), {})",
])
def test_lines_are_never_evaluated(text):
    with pytest.raises(InputError, match="line 7"):
        aten.parse_arguments(text, "line 7")


def test_an_unknown_operator_is_refused(tree):
    source = "def nosuch__Thing_kernel_impl(*args):\n    return args[0]\n"
    with pytest.raises(InputError, match=r"no operator aten\.nosuch\.Thing"):
        load(tree({"nosuch__Thing/first.py": source}))
