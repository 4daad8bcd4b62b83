"""STA-01: the result is independent of call history, of object identity and of addresses."""

from __future__ import annotations

import pytest

REFERENCE = """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0

ROWS = 6
COLS = 10

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""

LINEAR = """
class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.fc(x)

INPUTS = 8
OUTPUTS = 6

def get_inputs():
    return [torch.randn(4, INPUTS)]

def get_init_inputs():
    return [INPUTS, OUTPUTS]
"""


def cached(key: str, result: str = "self.kept[key]") -> str:
    return f"""
    class ModelNew(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = {{}}

        def forward(self, x):
            key = {key}
            if key not in self.kept:
                self.kept[key] = torch.relu(x) * 2.0
            return {result}.clone()
    """


@pytest.mark.parametrize(
    "key",
    [
        "id(x)",
        "x.data_ptr()",
        "x.shape",
        "(x.data_ptr(), x._version)",
        "x.untyped_storage().data_ptr()",
        "(x.shape, x.stride(), x.dtype)",
        "min(len(self.kept), 2)",
    ],
)
def test_a_result_found_again_by_anything_but_its_values_is_found(judge, key):
    assert judge("statelessness", REFERENCE, cached(key)).outcome == "fail"


def test_a_result_found_again_by_its_values_does_no_work(judge):
    seen = judge("statelessness", REFERENCE, cached("x.numpy().tobytes()"))
    assert seen.reasons == {"stale_result"}
    assert "ran no kernel and no operation" in seen.findings[0].actual


def test_a_table_that_does_not_depend_on_values_may_be_kept(judge):
    seen = judge(
        "statelessness",
        REFERENCE,
        """
    class ModelNew(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = {}

        def forward(self, x):
            if x.shape not in self.tables:
                self.tables[x.shape] = torch.full(x.shape, 2.0, device=x.device)
            return torch.relu(x) * self.tables[x.shape]
    """,
    )
    assert (seen.outcome, seen.findings) == ("pass", [])


def linear(constructor: str, weight: str, methods: str = "") -> str:
    return f"""
    KEPT = {{}}

    class ModelNew(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.fc = nn.Linear(inputs, outputs)
            {constructor}
        {methods}
        def forward(self, x):
            return torch.nn.functional.linear(x, {weight}, self.fc.bias)
    """


def test_a_weight_kept_from_the_first_call_is_stale_after_another_is_loaded(judge):
    source = linear(
        "self.kept = []", "(self.kept or self.kept.append(self.fc.weight.detach().clone()) or self.kept)[0]"
    )
    seen = judge("statelessness", LINEAR, source)
    assert "stale_result" in seen.reasons
    assert {f.probe for f in seen.findings} == {"statelessness/weights"}


def test_a_weight_shared_between_instances_is_found(judge):
    source = linear("pass", "KEPT.setdefault(self.fc.weight.shape, self.fc.weight.detach())")
    seen = judge("statelessness", LINEAR, source)
    assert "statelessness/instances" in {f.probe for f in seen.findings}


def test_a_weight_packed_again_by_a_hook_of_load_state_dict_passes(judge):
    source = linear(
        "self.pack(); self.register_load_state_dict_post_hook(lambda module, keys: module.pack())",
        "self.packed",
        """
        def pack(self):
            self.packed = self.fc.weight.detach().clone()
    """,
    )
    assert judge("statelessness", LINEAR, source, beside=("values",)).report.label == "contract"


def test_a_weight_packed_again_when_its_version_changes_passes(judge):
    source = linear(
        "self.key, self.packed = None, None",
        "self.fresh()",
        """
        def fresh(self):
            key = (self.fc.weight.data_ptr(), self.fc.weight._version)
            if self.key != key:
                self.key, self.packed = key, self.fc.weight.detach().clone()
            return self.packed
    """,
    )
    assert judge("statelessness", LINEAR, source).outcome == "pass"


def test_a_candidate_that_is_wrong_from_the_first_call_is_undecided(judge):
    seen = judge(
        "statelessness",
        REFERENCE,
        """
    class ModelNew(nn.Module):
        def forward(self, x):
            return torch.relu(x) * 3.0
    """,
    )
    assert (seen.outcome, seen.findings) == ("inconclusive", [])


def test_a_reference_with_state_of_its_own_is_not_applicable(judge):
    reference = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(6)

        def forward(self, x):
            return self.norm(x)

    def get_inputs():
        return [torch.randn(8, 6)]

    def get_init_inputs():
        return []
    """
    seen = judge("statelessness", reference, reference.replace("class Model", "class ModelNew"))
    assert seen.outcome == "not_applicable"
