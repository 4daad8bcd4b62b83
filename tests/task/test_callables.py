"""Tasks from live Python callables."""

from __future__ import annotations

import os

import pytest
import torch

from assay.task import TaskError, instantiate, study, task_from_callables


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


def make(rows: int = 6, cols: int = 40) -> list[torch.Tensor]:
    return [torch.randn(rows, cols)]


def test_integer_parameters_of_the_maker_are_the_sizes() -> None:
    task = task_from_callables(softmax, make)
    made = instantiate(task, {"cols": 5})
    assert made.inputs(0).args[0].shape == (6, 5)
    found = study(task)
    assert {size.name: (size.kind, size.varies) for size in found.integers} == {
        "rows": ("size", True),
        "cols": ("size", True),
    }
    assert [axis.label for axis in found.outputs[0].axes] == ["rows", "cols"]


def test_an_unknown_size_is_an_error() -> None:
    with pytest.raises(TaskError, match="no size named depth; there are: rows, cols"):
        instantiate(task_from_callables(softmax, make), {"depth": 1})


def test_example_inputs_are_given_first_and_shuffled_after() -> None:
    example = torch.arange(12.0).reshape(3, 4)
    made = instantiate(task_from_callables(softmax, [example, 3]))
    assert torch.equal(made.inputs(0).args[0], example)
    drawn = made.inputs(1).args[0]
    assert not torch.equal(drawn, example)
    assert torch.equal(drawn.flatten().sort().values, example.flatten())
    assert torch.equal(drawn, made.inputs(1).args[0])
    assert made.inputs(1).args[1] == 3


def test_examples_may_be_keywords() -> None:
    made = instantiate(task_from_callables(softmax, {"x": torch.ones(2)}))
    assert made.inputs(0).call(made.model).tolist() == [0.5, 0.5]


def test_a_module_class_is_constructed_and_an_instance_is_used_as_it_is() -> None:
    made = instantiate(task_from_callables(torch.nn.Linear, [torch.ones(2, 3)], init=[3, 5]))
    assert made.inputs(0).call(made.model).shape == (2, 5)
    layer = torch.nn.Linear(3, 5)
    assert instantiate(task_from_callables(layer, [torch.ones(2, 3)])).model is layer


def test_a_closure_lives_on_in_a_fork() -> None:
    factor = 3.0
    task = task_from_callables(lambda x: x * factor, [torch.ones(2)], id="triple")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        made = instantiate(task)
        os.write(writing, str(made.inputs(0).call(made.model).tolist()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"[3.0, 3.0]"


def test_a_task_of_another_process_is_refused() -> None:
    task = task_from_callables(softmax, make).model_copy(update={"handle": "live-elsewhere"})
    with pytest.raises(TaskError, match="not in this process"):
        instantiate(task)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TaskError, match="cannot be called"):
        task_from_callables(3, make)  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="example arguments"):
        task_from_callables(softmax, 3)  # type: ignore[arg-type]


def test_a_maker_that_raises_is_named() -> None:
    def broken(n: int = 2) -> list[torch.Tensor]:
        raise ValueError("no data")

    with pytest.raises(TaskError, match="no data"):
        instantiate(task_from_callables(softmax, broken)).inputs(0)
