"""ALS-01: an output shares no storage with an input, a parameter or an earlier output."""

from __future__ import annotations

REFERENCE = """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(6, 10)]

def get_init_inputs():
    return []
"""

VIEW = """
class Model(nn.Module):
    def forward(self, x):
        return x.reshape(10, 6)

def get_inputs():
    return [torch.randn(6, 10)]

def get_init_inputs():
    return []
"""


def module(*lines: str, constructor: str = "self.kept = None") -> str:
    body = "\n            ".join(lines)
    return f"""
    class ModelNew(nn.Module):
        def __init__(self):
            super().__init__()
            {constructor}

        def forward(self, x):
            {body}
    """


def test_a_buffer_that_every_call_returns_changes_earlier_results(judge):
    seen = judge(
        "output_aliasing",
        REFERENCE,
        module(
            "self.kept = torch.empty_like(x) if self.kept is None else self.kept",
            "return self.kept.copy_(torch.relu(x))",
        ),
    )
    assert seen.reasons == {"earlier_output_changed"}
    assert seen.findings[0].attested_by == "judge"


def test_a_ring_of_three_buffers_is_found(judge):
    seen = judge(
        "output_aliasing",
        REFERENCE,
        module(
            "self.turn += 1",
            "return self.ring[self.turn % 3].copy_(torch.relu(x))",
            constructor="self.turn, self.ring = 0, [torch.empty(6, 10) for _ in range(3)]",
        ),
    )
    assert seen.reasons == {"earlier_output_changed"}


def test_disjoint_slices_of_one_storage_are_found(judge):
    seen = judge(
        "output_aliasing",
        REFERENCE,
        module(
            "self.turn += 1",
            "return self.arena[self.turn % 16].copy_(torch.relu(x))",
            constructor="self.turn, self.arena = 0, torch.empty(16, 6, 10)",
        ),
    )
    assert seen.reasons == {"aliases_earlier_output"}


def test_new_memory_for_each_result_passes(judge):
    seen = judge("output_aliasing", REFERENCE, module("return torch.relu(x)"))
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_a_view_of_an_input_is_allowed_where_the_reference_returns_one(judge):
    assert judge("output_aliasing", VIEW, module("return x.view(10, 6)")).outcome == "pass"
    assert judge("output_aliasing", VIEW, module("return x.reshape(10, 6).clone()")).outcome == "pass"


def test_a_view_of_an_input_is_found_where_the_contract_forbids_it(judge):
    seen = judge(
        "output_aliasing", VIEW, module("return x.view(10, 6)"), contract={"memory": {"aliasing": "forbid"}}
    )
    assert seen.reasons == {"aliases_input"}


def test_the_input_itself_is_found_where_the_reference_makes_a_new_tensor(judge):
    assert judge("output_aliasing", REFERENCE, module("return x.relu_()")).reasons == {"aliases_input"}


def test_a_contract_may_name_an_input_that_is_returned(judge):
    seen = judge(
        "output_aliasing", REFERENCE, module("return x.relu_()"), contract={"memory": {"inplace": ["0"]}}
    )
    assert seen.outcome == "pass"


def test_a_parameter_returned_as_a_result_is_found(judge):
    reference = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 10))

        def forward(self, x):
            return self.weight * 1.0

    def get_inputs():
        return [torch.randn(6, 10)]

    def get_init_inputs():
        return []
    """
    aliased = reference.replace("class Model", "class ModelNew").replace(
        "self.weight * 1.0", "self.weight.detach()"
    )
    assert "aliases_input" in judge("output_aliasing", reference, aliased).reasons


def test_a_contract_that_allows_aliasing_waives_the_clause(judge):
    seen = judge(
        "output_aliasing", REFERENCE, module("return x.relu_()"), contract={"memory": {"aliasing": "allow"}}
    )
    assert seen.outcome == "not_applicable"
