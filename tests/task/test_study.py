"""What a study finds out about a task."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from assay.task import Study, Task, TaskError, load_task, study
from assay.task.facts import TaskSize

_spec = importlib.util.spec_from_file_location("study_tasks", Path(__file__).with_name("tasks.py"))
assert _spec is not None
assert _spec.loader is not None
_tasks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_tasks)
make = _tasks.make

CASES = Path(__file__).parents[1] / "cases"
# studies of slow machines must not end early: what is found may not depend on the clock
PATIENT = 60.0


def learn(task: Task) -> Study:
    return study(task, budget_s=PATIENT)


def sizes(found: Study) -> dict[str, TaskSize]:
    return {size.name: size for size in found.integers}


def case(name: str) -> Study:
    return learn(load_task(CASES / name / "reference.py"))


CONV = make(
    "B, C, O, H, W = 8, 12, 24, 32, 40\nK = 3\nG = 4",
    "c, o, k, g: self.conv = nn.Conv2d(c, o, k, stride=2, padding=1, groups=g)",
    "x: self.conv(x)",
    "[torch.randn(B, C, H, W)]",
    "[C, O, K, G]",
)


def test_a_convolution_with_groups_keeps_its_channels_divisible() -> None:
    found = sizes(learn(CONV))
    assert {name: found[name].multiple_of for name in "BCOHW"} == {"B": 1, "C": 4, "O": 4, "H": 1, "W": 1}
    assert {name: found[name].kind for name in "BCOHW"} == dict.fromkeys("BCOHW", "size")
    assert found["K"].kind == "count"
    assert found["G"].kind == "count"


def test_names_of_dimensions_follow_the_integers() -> None:
    found = learn(CONV)
    assert found.inputs[0].label == "[B, C, H, W]"
    assert [axis.label for axis in found.outputs[0].axes][:2] == ["B", "O"]
    assert found.outputs[0].shape == (8, 24, 16, 20)
    weight = next(p for p in found.parameters if p.name == "conv.weight")
    assert weight.shape == (24, 3, 3, 3)
    assert found.elements()[0] == 8 * 12 * 32 * 40


def test_an_image_smaller_than_its_kernel_is_below_the_minimum() -> None:
    found = sizes(
        learn(
            make(
                "N, L, K = 4, 64, 7",
                "k: self.pool = nn.AvgPool1d(k)",
                "x: self.pool(x)",
                "[torch.randn(N, 3, L)]",
                "[K]",
            )
        )
    )
    assert found["L"].minimum == 7
    assert found["N"].minimum == 1


def test_heads_divide_the_width() -> None:
    task = make(
        "B, S, D, HEADS = 2, 10, 32, 8",
        "d, h: self.attention = nn.MultiheadAttention(d, h, batch_first=True)",
        "x: self.attention(x, x, x, need_weights=False)[0]",
        "[torch.randn(B, S, D)]",
        "[D, HEADS]",
    )
    found = sizes(learn(task))
    assert (found["D"].multiple_of, found["D"].minimum) == (8, 8)
    assert found["S"].multiple_of == 1


def test_a_table_ends_at_its_native_length() -> None:
    task = make(
        "B, S, D = 2, 40, 8",
        "d: self.table = nn.Parameter(torch.randn(40, d))",
        "x: x + self.table[: x.shape[1]]",
        "[torch.randn(B, S, D)]",
        "[D]",
    )
    found = sizes(learn(task))
    assert (found["S"].maximum, found["S"].minimum) == (40, 1)
    assert found["D"].maximum is None


def test_literals_that_must_agree_are_tied() -> None:
    task = make("", ":", "a, b: a + b", "[torch.randn(16, 48), torch.randn(16, 48)]")
    found = sizes(learn(task))
    assert found["get_inputs#0"].tied == ("get_inputs#2",)
    assert found["get_inputs#1"].tied == ("get_inputs#3",)
    assert found["get_inputs#1"].varies


def test_equal_values_that_need_not_agree_are_not_tied() -> None:
    task = make("M, N = 16, 16", ":", "x: x.sum(dim=1)", "[torch.randn(M, N)]")
    found = sizes(learn(task))
    assert found["M"].tied == found["N"].tied == ()


def test_what_the_reference_reads_does_not_vary() -> None:
    task = make("N, SCALE = 16, 3", ":", "x: x * SCALE", "[torch.randn(N, SCALE)]")
    found = sizes(learn(task))
    assert found["SCALE"].status == "frozen"
    assert not found["SCALE"].varies
    assert found["N"].varies


def test_an_integer_that_changes_no_shape_is_no_size() -> None:
    task = make(
        "N, M, DIM = 4, 6, 1",
        "d: self.d = d",
        "x: torch.cumsum(x, dim=self.d)",
        "[torch.randn(N, M)]",
        "[DIM]",
    )
    assert sizes(learn(task))["DIM"].kind == "other"


def test_tuples_of_sizes_and_expressions_are_followed() -> None:
    task = make(
        "shape = (6, 10)\nB = 4\nF = 2 * B",
        ":",
        "x, y: (x * 2, y)",
        "[torch.randn(B, *shape), torch.randn(F)]",
    )
    found = learn(task)
    assert found.inputs[0].label == "[B, shape.0, shape.1]"
    assert found.inputs[1].label == "[2*B]"
    assert sizes(found)["F"].status == "derived"
    assert sizes(found)["F"].native == 8


def test_flattened_dimensions_are_products() -> None:
    task = make("A, B = 4, 6", ":", "x: x.reshape(-1)", "[torch.randn(A, B)]")
    axis = learn(task).outputs[0].axes[0]
    assert axis.label == "A*B"
    assert axis.at({"A": 3, "B": 5}) == 15


def test_an_index_range_is_tied_to_the_size_that_ends_it() -> None:
    found = case("a07-embedding-lookup")
    structure = found.inputs[0].structure
    assert structure is not None
    assert (structure.low, structure.high, structure.high_axis, structure.high_offset) == (
        0,
        499,
        "VOCAB",
        -1,
    )
    assert sizes(found)["VOCAB"].kind == "size"
    assert not sizes(found)["VOCAB"].zero


def test_class_targets_are_tied_to_the_classes() -> None:
    task = make(
        "B, C = 64, 10", ":", "x, t: F.cross_entropy(x, t)", "[torch.randn(B, C), torch.randint(0, C, (B,))]"
    )
    structure = learn(task).inputs[1].structure
    assert structure is not None
    assert structure.high_axis == "C"


@pytest.mark.parametrize(
    ("name", "position", "traits"),
    [
        ("a02-triangular-matmul", 0, {"upper_triangular"}),
        ("a02-triangular-matmul", 1, {"upper_triangular"}),
        ("a03-positive-geometric-mean", 0, {"positive", "bounded"}),
        ("a04-bce-probabilities", 0, {"unit_interval"}),
        ("a04-bce-probabilities", 1, {"binary"}),
        ("a06-split-k-matmul", 0, {"normal_like"}),
        ("r20-second-input-baked-in", 1, {"constant", "ascending", "positive"}),
    ],
)
def test_the_structure_of_inputs_is_found(name: str, position: int, traits: set[str]) -> None:
    structure = case(name).tensor_inputs()[position].structure
    assert structure is not None
    assert traits <= set(structure.traits)


def test_a_mask_is_boolean() -> None:
    found = case("r33-fully-masked-row-nan")
    structure = found.tensor_inputs()[3].structure
    assert structure is not None
    assert structure.kind == "boolean"
    assert 0.2 < structure.zeros < 0.4


def test_inputs_that_are_no_tensors_are_described() -> None:
    task = make(
        "N = 4", ":", "x, s, m, o: x * s", "[torch.randn(N), 2.5, None, {'k': [torch.ones(3), True]}]"
    )
    found = learn(task)
    assert [(leaf.path, leaf.kind, leaf.position) for leaf in found.inputs] == [
        ((0,), "tensor", 0),
        ((1,), "float", None),
        ((2,), "none", None),
        ((3, "k", 0), "tensor", 1),
        ((3, "k", 1), "bool", None),
    ]
    assert found.inputs[1].value == 2.5


def test_a_recurrent_layer_with_keyword_arguments() -> None:
    task = make(
        "B, S, D, H = 3, 7, 10, 12",
        "input_size, hidden_size, num_layers=1: self.gru = nn.GRU(input_size, hidden_size, num_layers)",
        "x: self.gru(x)",
        "[torch.randn(S, B, D)]",
        "[[], {'input_size': D, 'hidden_size': H, 'num_layers': 2}]",
    )
    found = learn(task)
    assert [leaf.shape for leaf in found.outputs] == [(7, 3, 12), (2, 3, 12)]
    assert sizes(found)["H"].kind == "size"
    assert sizes(found)["H"].moves[-1] == "init hidden_size"


def test_layouts_of_inputs_and_outputs_are_told() -> None:
    task = make(
        "N, C, H, W = 2, 3, 4, 5",
        ":",
        "x, e: (x * 2, x.transpose(0, 1), e)",
        "[torch.randn(N, C, H, W).to(memory_format=torch.channels_last), torch.ones(N, 1).expand(N, C)]",
    )
    found = learn(task)
    assert [leaf.layout for leaf in found.inputs] == ["channels_last", "expanded"]
    assert [leaf.layout for leaf in found.outputs] == ["channels_last", "strided", "expanded"]


def test_outputs_that_share_storage_are_told() -> None:
    task = make(
        "N = 6",
        "n: self.w = nn.Parameter(torch.ones(n))",
        "x: (x, x[1:], self.w, x * 2)",
        "[torch.randn(N)]",
        "[N]",
    )
    shares = [leaf.shares for leaf in learn(task).outputs]
    assert shares == [("input 0",), ("input 0", "output 0"), ("parameter w",), ()]


def test_changed_inputs_are_told() -> None:
    task = make("N = 6", ":", "x, y: y.add_(x)", "[torch.randn(N), torch.randn(N)]")
    assert learn(task).mutates == (1,)


def test_dropout_in_training_is_random_and_in_evaluation_is_not() -> None:
    training = learn(make("N = 64", ": self.drop = nn.Dropout(0.5)", "x: self.drop(x)", "[torch.randn(N)]"))
    assert training.random
    assert training.training
    assert training.mode_matters
    evaluated = learn(
        make("N = 64", ": self.drop = nn.Dropout(0.5); self.eval()", "x: self.drop(x)", "[torch.randn(N)]")
    )
    assert not evaluated.random
    assert not evaluated.training
    assert evaluated.outputs[0].shares == ("input 0",)


def test_batch_norm_in_training_changes_its_buffers() -> None:
    task = make(
        "B, C = 8, 5", "c: self.bn = nn.BatchNorm1d(c)", "x: self.bn(x)", "[torch.randn(B, C)]", "[C]"
    )
    found = learn(task)
    assert set(found.stateful) == {"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}
    assert not found.random
    assert sizes(found)["B"].minimum == 2


def test_a_counter_makes_equal_calls_differ() -> None:
    task = make(
        "N = 6", ": self.calls = 0", "x: x + self.calls", "[torch.randn(N)]", prepare="self.calls += 1"
    )
    assert learn(task).stateful == ("output",)


@pytest.mark.parametrize(
    ("forward", "weak"),
    [
        ("x: torch.relu(x)", set()),
        ("x: x * 1e-4", {"constant", "zero"}),
        ("x: x * 1e-4 + 3", {"constant"}),
        ("x: x * 1.001", {"identity"}),
        ("x: torch.softmax(x, dim=1)", {"constant", "zero"}),
        ("x: torch.zeros(3, dtype=torch.int64)", {"constant", "zero"}),
    ],
)
def test_a_task_that_trivial_functions_pass_is_weak(forward: str, weak: set[str]) -> None:
    task = make("N, M = 4, 4000", ":", forward, "[torch.randn(N, M)]")
    assert set(learn(task).weak) == weak


def test_the_softmax_of_the_cases_is_weak_at_its_native_width() -> None:
    assert set(case("r21-constant-small-output").weak) == {"constant", "zero"}
    assert case("a01-online-softmax").weak == ()


def test_sizes_too_large_to_make_are_studied_small_and_foretold() -> None:
    task = make(
        "B, C, H, W = 1024, 64, 512, 512",
        "c: self.conv = nn.Conv2d(c, 2 * c, 3)",
        "x: self.conv(x)",
        "[torch.rand(B, C, H, W)]",
        "[C]",
    )
    found = learn(task)
    assert found.inputs[0].shape == (1024, 64, 512, 512)
    assert found.outputs[0].shape == (1024, 128, 510, 510)
    assert found.cost is not None
    assert found.cost.inputs == 2**34
    assert found.cost.seconds is None
    assert all(size.varies for size in found.integers)


def test_an_outer_product_is_not_run_where_its_output_would_not_fit() -> None:
    task = make("N = 1 << 20", ":", "x, y: x[:, None] * y[None, :]", "[torch.rand(N), torch.rand(N)]")
    found = learn(task)
    assert found.cost is not None
    assert found.cost.outputs == 2**40


def test_sizes_that_a_deep_network_needs_are_put_back() -> None:
    task = make(
        "B, SIDE, CLASSES = 64, 128, 1000",
        "n: self.net = nn.Sequential(*[nn.Conv2d(3, 3, 3, stride=2, padding=0) for _ in range(5)]);"
        "self.fc = nn.Linear(27, n)",
        "x: self.fc(self.net(x).flatten(1))",
        "[torch.randn(B, 3, SIDE, SIDE)]",
        "[CLASSES]",
    )
    found = learn(task)
    assert found.raises is None
    assert found.small["SIDE"] == 128
    assert found.small["B"] < 64
    assert sizes(found)["CLASSES"].varies


def test_a_forward_that_raises_is_described() -> None:
    found = learn(make("N = 4", ":", "x: x @ x", "[torch.randn(N, 5)]"))
    assert found.raises is not None
    assert "reference.py:9" in found.raises
    assert found.inputs[0].shape == (4, 5)


def test_inputs_that_raise_are_an_error() -> None:
    with pytest.raises(TaskError, match="ZeroDivisionError"):
        learn(make("N = 4", ":", "x: x", "[torch.randn(N // 0)]"))


def test_nonfinite_sizes_are_marked() -> None:
    task = make("N, M = 4, 12", ":", "x: x.std(dim=1)", "[torch.randn(N, M)]")
    notes = {attempt.value: attempt.note for attempt in sizes(learn(task))["M"].tried}
    assert notes[1] == "nonfinite"


def test_a_study_is_the_same_again_and_survives_json() -> None:
    one, two = learn(CONV), learn(CONV)
    drop = {"cost": {"seconds"}}
    assert one.model_dump(exclude=drop) == two.model_dump(exclude=drop)
    assert Study.model_validate_json(one.model_dump_json()) == one


def test_a_study_leaves_no_trace_of_its_guards() -> None:
    import torch

    learn(CONV)
    assert torch.is_grad_enabled()
    assert torch.empty(3).uniform_(2.0, 3.0).min() >= 2.0


@pytest.mark.parametrize("path", sorted(CASES.glob("*/reference.py")), ids=lambda path: path.parent.name)
def test_every_case_studies_without_gaps(path: Path) -> None:
    found = learn(load_task(path))
    assert found.raises is None
    assert found.notes == ()
    assert not found.random
    assert found.mutates == ()
    assert all(size.varies for size in found.integers)
    assert all(leaf.structure is not None for leaf in found.tensor_inputs())
