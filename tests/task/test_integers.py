"""The integers of a task file: which there are, which may vary, and how they are rewritten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.task.integers import find, override

TAIL = """
class Model:
    def __init__(self, n=3): self.n = n
    def forward(self, x): return x

def get_inputs():
    return [torch.randn({uses})]

def get_init_inputs():
    return []
"""


def statuses(head: str, uses: str = "N") -> dict[str, str]:
    return {i.name: i.status for i in find(head + TAIL.format(uses=uses))}


def values(head: str, uses: str = "N") -> dict[str, int | None]:
    return {i.name: i.value for i in find(head + TAIL.format(uses=uses))}


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("N = 4", {"N": 4}),
        ("N: int = 4", {"N": 4}),
        ("N = 2 * 2 ** 10", {"N": 2048}),
        ("N = int(1e3)", {"N": 1000}),
        ("N = -3", {"N": -3}),
        ("N = M = 7", {"N": 7}),
        ("N, M = 3, 5", {"N": 3, "M": 5}),
        ("N = (64, 28)", {"N.0": 64, "N.1": 28}),
        ("N = [[1, 2], (3,)]", {"N.0.0": 1, "N.0.1": 2, "N.1.0": 3}),
        ("N = [1024] * 16", {"N.0": 1024}),
        ("N = {'dim': 64, 'p': 0.1}", {"N.dim": 64}),
        ("N = dict(dim=64)", {"N.dim": 64}),
    ],
)
def test_integers_are_found_wherever_a_file_keeps_them(head: str, expected: dict[str, int]) -> None:
    assert values(head, "*shape") == expected


@pytest.mark.parametrize("head", ["N = True", "N = 1.5", "N = 'four'", "N = None", "N = f(3)"])
def test_what_is_no_integer_is_not_found(head: str) -> None:
    assert statuses(head) == {}


def test_what_is_computed_from_others_is_derived() -> None:
    found = {i.name: i for i in find("D = 8\nH = 4 * D\nN = H // 2" + TAIL.format(uses="N"))}
    assert [found[name].status for name in ("D", "H", "N")] == ["free", "derived", "derived"]
    assert found["N"].value == 16
    assert found["H"].reads == ("D",)


def test_what_reaches_no_input_is_unused() -> None:
    assert statuses("N = 4\nM = 5") == {"N": "free", "M": "unused"}


READS = {
    "in forward": "class Model:\n    def forward(self, x): return x[:N]\n",
    "as a default": "class Model:\n    def __init__(self, n=N): pass\n",
    "in the class body": "class Model:\n    width = N\n",
    "shadowed in the class body": "class Model:\n    N = N\n",
    "through a function": "def f(x): return x[:N]\nclass Model:\n    def forward(self, x): return f(x)\n",
    "as a function's default": "def f(x, n=N): return x\nclass Model:\n    def run(self, x): return f(x)\n",
    "through a derived value": "H = 2 * N\nclass Model:\n    def forward(self, x): return x[:H]\n",
    "through an object": "shape = (N, 3)\nclass Model:\n    def forward(self, x): return x.view(shape)\n",
    "through a base class": "class Base:\n    size = N\nclass Model(Base):\n    pass\n",
    "in a comprehension": "class Model:\n    def forward(self, x): return [x for _ in range(N)]\n",
    "by its name": "class Model:\n    def forward(self, x): return x[:globals()['N']]\n",
    "in a lambda": "act = lambda x: x * N\nclass Model:\n    def forward(self, x): return act(x)\n",
}


@pytest.mark.parametrize("model", READS.values(), ids=READS.keys())
def test_what_the_reference_reads_is_frozen(model: str) -> None:
    source = (
        "N = 4\n" + model + "def get_inputs(): return [torch.randn(N)]\ndef get_init_inputs(): return []\n"
    )
    assert {i.name: i.status for i in find(source)}["N"] == "frozen"


def test_a_parameter_of_the_same_name_hides_the_global() -> None:
    source = (
        "N = 4\nclass Model:\n    def __init__(self, N): self.w = N\n"
        "    def forward(self, x):\n        N = x.shape[0]\n"
        "        return x[:N]\ndef get_inputs(): return [torch.randn(N)]\ndef get_init_inputs(): return [N]\n"
    )
    assert find(source)[0].status == "free"


def test_a_name_bound_twice_is_frozen() -> None:
    assert set(statuses("N = 4\nN += 1").values()) == {"frozen"}


def test_constants_of_the_makers_of_inputs_are_found() -> None:
    source = """
class Model: pass
def get_inputs():
    batch = 16
    x = torch.rand(batch, 256)
    return [x, torch.randint(0, 10, (batch, 8))]
def get_init_inputs():
    return [256, [3, 5], {"groups": 2}, 0.5, True]
"""
    assert {i.name: i.value for i in find(source)} == {
        "get_inputs.batch": 16,
        "get_inputs#0": 256,
        "get_inputs#1": 8,
        "get_init_inputs#0": 256,
        "get_init_inputs#1": 3,
        "get_init_inputs#2": 5,
        "get_init_inputs#3": 2,
    }


def run(source: str) -> dict[str, object]:
    scope: dict[str, object] = {}
    exec(source, scope)
    return scope


def test_overriding_changes_the_value_and_what_follows_from_it() -> None:
    source = "D = 8  # width\nH = 4 * D\nshape = (64, 28)\n"
    scope = run(override(source, {"D": 5, "shape.1": 3}))
    assert (scope["D"], scope["H"], scope["shape"]) == (5, 20, (64, 3))


def test_overriding_keeps_comments_and_unicode_beside_it() -> None:
    assert override("s = 'é'; N = 4  # größe", {"N": 12}) == "s = 'é'; N = 12  # größe"


def test_overriding_a_value_of_many_lines_keeps_the_line_numbers() -> None:
    source = "N = (2\n     *\n     8)\nM = 1\n"
    changed = override(source, {"N": 7})
    assert changed.count("\n") == source.count("\n")
    assert run(changed)["N"] == 7
    assert changed.split("\n")[3] == "M = 1"


def test_overriding_what_is_derived_or_unknown_is_an_error() -> None:
    with pytest.raises(KeyError, match="no integer named H"):
        override("D = 8\nH = 4 * D\n", {"H": 3})
    with pytest.raises(KeyError, match="there are: D"):
        override("D = 8\n", {"X": 3})


@given(st.dictionaries(st.sampled_from(["A", "B.0", "B.1", "C.k"]), st.integers(-(10**6), 10**6)))
def test_any_values_can_be_written(changes: dict[str, int]) -> None:
    source = "A = 1 + 1; B = (3,\n  4)\nC = {'k': 5}\nlast = 0\n"
    changed = override(source, changes)
    scope = run(changed)
    found = {"A": scope["A"], "B.0": scope["B"][0], "B.1": scope["B"][1], "C.k": scope["C"]["k"]}  # type: ignore[index]
    assert found == {"A": 2, "B.0": 3, "B.1": 4, "C.k": 5} | changes
    assert changed.split("\n")[3] == "last = 0"
