"""Tasks brought to life: constructor arguments, the model, inputs by seed, and errors with their lines."""

from __future__ import annotations

import inspect

import pytest
import torch

from assay.task import Task, TaskError, instantiate, parse_task

HEAD = "import torch\nimport torch.nn as nn\n"


def task(text: str) -> Task:
    return parse_task(HEAD + text, path="dir/reference.py")


def module(body: str, inputs: str = "[torch.randn(3)]", init: str = "[]", head: str = "") -> Task:
    return task(
        f"{head}\nclass Model(nn.Module):\n{body}\n"
        f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return {init}\n"
    )


PLAIN = "    def forward(self, *args, **kwargs):\n        return args, kwargs"


def test_sizes_reach_inputs_and_weights() -> None:
    body = (
        "    def __init__(self, a, b):\n        super().__init__()\n        self.fc = nn.Linear(a, b)\n"
        "    def forward(self, x):\n        return self.fc(x)"
    )
    made = instantiate(module(body, "[torch.randn(B, D)]", "[D, H]", "B, D = 4, 8\nH = 2 * D"), {"D": 5})
    inputs = made.inputs(0)
    assert inputs.args[0].shape == (4, 5)
    assert made.init_args == (5, 10)
    assert made.model.fc.weight.shape == (10, 5)
    assert inputs.call(made.model).shape == (4, 10)
    assert (made.integers["H"], made.integers["B"]) == (10, 4)


def test_an_unknown_size_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(TaskError, match="no integer named X; there are: N"):
        instantiate(module(PLAIN, head="N = 3"), {"X": 1})


def test_seeds_are_set_as_the_usual_check_sets_them() -> None:
    body = (
        "    def __init__(self, w):\n        super().__init__()\n"
        "        self.w = nn.Parameter(torch.randn(3))\n"
        "        self.given = w\n    def forward(self, x):\n        return x"
    )
    made = instantiate(module(body, init="[torch.randn(2)]"), seed=42)
    torch.manual_seed(42)
    assert torch.equal(made.init_args[0], torch.randn(2))
    weights = made.model.w
    torch.manual_seed(42)
    assert torch.equal(weights, torch.randn(3))
    drawn = made.inputs(7).args[0]
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.randn(3))
    assert torch.equal(made.build(5).w, made.build(5).w)
    assert not torch.equal(made.build(5).w, made.build(6).w)


def test_numpy_and_random_follow_the_seed_too() -> None:
    made = instantiate(
        module(PLAIN, "[np.random.rand(), random.random()]", head="import numpy as np, random")
    )
    assert made.inputs(3).args == made.inputs(3).args
    assert made.inputs(3).args != made.inputs(4).args


@pytest.mark.parametrize(
    ("init", "args", "kwargs"),
    [
        ("[]", (), {}),
        ("[1, 2]", (1, 2), {}),
        ("[[1], {'b': 2}]", (1,), {"b": 2}),
        ("[[], {'a': 1}]", (), {"a": 1}),
        ("{'a': 1, 'b': 2}", (), {"a": 1, "b": 2}),
        ("[{'k': 1, 'b': 2}]", ({"k": 1, "b": 2},), {}),
        ("(1,)", (1,), {}),
    ],
)
def test_constructor_arguments_come_in_every_form(
    init: str, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    body = "    def __init__(self, a=0, b=0):\n        super().__init__()\n        self.seen = (a, b)"
    made = instantiate(module(body, init=init))
    assert (made.init_args, made.init_kwargs) == (args, kwargs)
    assert made.model.training


def test_a_list_and_a_dict_are_two_arguments_where_the_constructor_needs_two() -> None:
    body = "    def __init__(self, widths, options):\n        super().__init__()"
    made = instantiate(module(body, init="[[1, 2], {'p': 3}]"))
    assert made.init_args == ([1, 2], {"p": 3})


def test_inputs_may_be_nested_and_of_any_kind() -> None:
    made = instantiate(
        module(PLAIN, "[[torch.ones(1), (2, None)], {'k': torch.zeros(2), 'f': 1.5}, True, 1 + 2j, 'x']")
    )
    inputs = made.inputs(0)
    assert [path for path, _ in inputs.leaves()] == [
        (0, 0),
        (0, 1, 0),
        (0, 1, 1),
        (1, "k"),
        (1, "f"),
        (2,),
        (3,),
        (4,),
    ]
    doubled = inputs.map_tensors(lambda position, tensor: tensor + position)
    assert [float(t.sum()) for t in doubled.tensors()] == [1.0, 2.0]
    assert doubled.args[0][1] == (2, None)


def test_inputs_may_be_keywords_or_one_tensor() -> None:
    assert list(instantiate(module(PLAIN, "{'x': torch.ones(2)}")).inputs(0).kwargs) == ["x"]
    assert len(instantiate(module(PLAIN, "torch.ones(2)")).inputs(0).args) == 1


def test_the_source_can_be_read_back_from_the_live_class() -> None:
    made = instantiate(module(PLAIN))
    assert "def forward(self, *args, **kwargs)" in inspect.getsource(type(made.model))


def error_of(broken: Task) -> TaskError:
    def run() -> None:
        made = instantiate(broken)
        made.inputs(0).call(made.model)

    with pytest.raises(TaskError) as caught:
        run()
    return caught.value


def test_inputs_that_raise_are_named_with_their_line() -> None:
    error = error_of(
        task(
            "class Model(nn.Module): pass\ndef get_inputs():\n    x = torch.ones(2)\n    return x.view(3)\n"
            "def get_init_inputs():\n    return []\n"
        )
    )
    assert error.where == "dir/reference.py:6"
    assert error.what.startswith("get_inputs() raised RuntimeError")


def test_inputs_of_the_wrong_type_are_refused() -> None:
    error = error_of(module(PLAIN, "3"))
    assert "get_inputs() returned int" in error.what
    assert error.where == "dir/reference.py:7"


def test_a_constructor_that_takes_other_arguments_is_named_with_its_line() -> None:
    error = error_of(module("    def __init__(self):\n        super().__init__()", init="[1, 2]"))
    assert "does not take what get_init_inputs returns" in error.what
    assert error.where == "dir/reference.py:5"


def test_a_constructor_that_raises_is_named_with_the_line_that_did() -> None:
    error = error_of(module("    def __init__(self):\n        super().__init__()\n        self.w = 1 / 0"))
    assert error.where == "dir/reference.py:7"
    assert "ZeroDivisionError" in error.what


def test_a_module_that_cannot_be_executed_is_named_with_its_line() -> None:
    error = error_of(module(PLAIN, head="import no_such_module_anywhere"))
    assert error.where == "dir/reference.py:3"
    assert "ModuleNotFoundError" in error.what


def test_leaving_the_process_is_an_error_like_any_other() -> None:
    assert "SystemExit" in error_of(module(PLAIN, "exit(0)")).what


def test_memory_that_runs_out_is_not_the_authors_fault() -> None:
    made = instantiate(module(PLAIN, "[torch.empty(2**50)]"))
    with pytest.raises(MemoryError):
        made.inputs(0)
