"""Plans of sizes around a candidate's block constants."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.probe.blocks import block_constants
from assay.probe.sizes import SizeVariant, plan_sizes, small_sizes
from assay.task import instantiate, load_task, parse_task, study
from assay.task.facts import Study

CASES = Path(__file__).parents[1] / "cases"


def learn(source: str) -> Study:
    return study(parse_task("import torch\nimport torch.nn as nn\n" + source), budget_s=60.0)


def task(sizes: str, shape: str, forward: str = "x * 2") -> Study:
    return learn(
        f"{sizes}\nclass Model(nn.Module):\n    def forward(self, x):\n        return {forward}\n"
        f"def get_inputs(): return [torch.randn({shape})]\ndef get_init_inputs(): return []\n"
    )


ROWWISE = task("ROWS, COLS = 64, 300", "ROWS, COLS", "torch.softmax(x, dim=1)")


def values(plan: list[SizeVariant], name: str) -> set[int]:
    return {variant.sizes[name] for variant in plan if variant.axes == (name,)}


def test_sizes_lie_around_the_blocks() -> None:
    plan = plan_sizes(ROWWISE, (128, 256), 1 << 20)
    assert {1, 255, 256, 257, 641, 601} <= values(plan, "COLS")


def test_the_first_variants_cross_a_block_on_every_axis() -> None:
    first = plan_sizes(ROWWISE, (32, 256))[:4]
    assert any(v.sizes.get("COLS") == 257 for v in first)
    assert any(v.sizes.get("ROWS") == 33 for v in first)
    assert any(v.name == "all=primes" for v in first)


def test_while_one_size_varies_the_others_are_small() -> None:
    for variant in plan_sizes(ROWWISE, (256,)):
        if variant.axes == ("COLS",):
            assert variant.sizes["ROWS"] <= 16


def test_names_are_unique_and_reasons_given() -> None:
    plan = plan_sizes(ROWWISE, (32, 64, 128, 256, 512), tier="deep")
    assert len({variant.name for variant in plan}) == len(plan)
    assert all(variant.reason for variant in plan)


def test_the_plan_is_the_same_again() -> None:
    assert plan_sizes(ROWWISE, (64,)) == plan_sizes(ROWWISE, (64,))


def test_tiers_plan_more_and_begin_alike() -> None:
    quick, standard, deep = (plan_sizes(ROWWISE, (64,), tier=tier) for tier in ("quick", "standard", "deep"))
    assert len(quick) == 8 < len(standard) == 24 < len(deep)
    assert [v.name for v in quick][:3] == [v.name for v in standard][:3]


def test_the_budget_is_kept_and_foretold() -> None:
    budget = 5000
    for variant in plan_sizes(ROWWISE, (1024,), budget):
        rows, cols = (variant.sizes.get(name, ROWWISE.native()[name]) for name in ("ROWS", "COLS"))
        assert variant.elements == 2 * rows * cols <= budget


def test_an_empty_row_is_left_to_the_deep_tier_and_an_empty_batch_is_not() -> None:
    assert 0 in values(plan_sizes(ROWWISE, (64,)), "ROWS")
    assert 0 not in values(plan_sizes(ROWWISE, (64,)), "COLS")
    assert 0 in values(plan_sizes(ROWWISE, (64,), tier="deep"), "COLS")


def test_zero_is_not_planned_where_the_reference_refuses_it() -> None:
    plan = plan_sizes(task("ROWS, COLS = 8, 96", "ROWS, COLS", "x.amax(dim=1)"), (64,), tier="deep")
    assert 0 not in values(plan, "COLS")


def test_sizes_keep_what_they_are_multiples_of() -> None:
    found = task("B, C = 4, 48", "B, C, 10", "x.reshape(x.shape[0], 16, -1)")
    plan = plan_sizes(found, (64,), tier="deep")
    assert len(values(plan, "C")) > 4
    assert all(value % 8 == 0 for value in values(plan, "C"))


def test_sizes_end_where_a_table_does() -> None:
    found = learn(
        "S, D = 40, 8\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.t = nn.Parameter(torch.randn(40, 1))\n"
        "    def forward(self, x):\n        return x + self.t[: x.shape[0]]\n"
        "def get_inputs(): return [torch.randn(S, D)]\ndef get_init_inputs(): return []\n"
    )
    assert max(values(plan_sizes(found, (64,), tier="deep"), "S")) <= 40


def test_tied_sizes_move_together() -> None:
    found = learn(
        "class Model(nn.Module):\n    def forward(self, a, b):\n        return a + b\n"
        "def get_inputs(): return [torch.randn(16, 48), torch.randn(16, 48)]\n"
        "def get_init_inputs(): return []\n"
    )
    native = found.native()
    plan = plan_sizes(found, (32,))
    assert plan
    for variant in plan:
        sizes = {**native, **variant.sizes}
        assert sizes["get_inputs#0"] == sizes["get_inputs#2"]
        assert sizes["get_inputs#1"] == sizes["get_inputs#3"]


def test_frozen_sizes_and_counts_are_left_alone() -> None:
    found = learn(
        "N, M, K = 16, 24, 3\nclass Model(nn.Module):\n"
        "    def __init__(self, k):\n        super().__init__()\n"
        "        self.k = k\n    def forward(self, x):\n"
        "        return torch.topk(x, self.k).values * M\n"
        "def get_inputs(): return [torch.randn(N, M)]\ndef get_init_inputs(): return [K]\n"
    )
    plan = plan_sizes(found, (8,))
    assert {name for variant in plan for name in variant.axes} == {"N"}
    assert "K" in {name for variant in plan_sizes(found, (8,), tier="deep") for name in variant.axes}


def test_a_task_without_sizes_has_no_plan() -> None:
    found = learn(
        "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2\n"
        "def get_inputs(): return [torch.tensor(1.5)]\ndef get_init_inputs(): return []\n"
    )
    assert plan_sizes(found) == []


def test_small_sizes_are_accepted_together() -> None:
    source = (
        "import torch\nimport torch.nn as nn\nB, C, S, K = 32, 64, 128, 11\nclass Model(nn.Module):\n"
        "    def __init__(self, c, k):\n        super().__init__()\n"
        "        self.conv = nn.Conv2d(c, 2 * c, k)\n"
        "        self.norm = nn.GroupNorm(8, 2 * c)\n    def forward(self, x):\n"
        "        return self.norm(self.conv(x))\n"
        "def get_inputs(): return [torch.randn(B, C, S, S)]\ndef get_init_inputs(): return [C, K]\n"
    )
    made = parse_task(source)
    sizes = small_sizes(study(made, budget_s=60.0))
    instance = instantiate(made, sizes)
    assert instance.inputs(0).call(instance.model).numel() < 1 << 16


@pytest.mark.parametrize("name", ["a02-triangular-matmul", "a05-two-pass-layernorm", "a07-embedding-lookup"])
def test_the_reference_takes_every_planned_size(name: str) -> None:
    made = load_task(CASES / name / "reference.py")
    found = study(made, budget_s=60.0)
    blocks = block_constants((CASES / name / "candidate.py").read_text())
    for variant in plan_sizes(found, blocks):
        instance = instantiate(made, variant.sizes)
        instance.inputs(0).call(instance.model)
