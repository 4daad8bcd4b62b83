"""ALS-02: inputs and parameters unchanged, bit for bit."""

from __future__ import annotations

REFERENCE = """
class Model(nn.Module):
    def forward(self, x, residual):
        return torch.relu(x + residual)

def get_inputs():
    return [torch.randn(6, 10), torch.randn(6, 10)]

def get_init_inputs():
    return []
"""

IN_PLACE = """
class ModelNew(nn.Module):
    def forward(self, x, residual):
        residual += x
        return torch.relu(residual)
"""


def test_an_input_that_changed_is_named_with_its_element(judge):
    seen = judge("input_mutation", REFERENCE, IN_PLACE, beside=("values",))
    assert seen.reasons == {"input_changed"}
    assert seen.findings[0].output == "input 1"
    assert seen.findings[0].attested_by == "judge"


def test_a_copy_that_changed_passes(judge):
    seen = judge(
        "input_mutation",
        REFERENCE,
        IN_PLACE.replace("residual += x", "residual = residual + x"),
        beside=("values",),
    )
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_a_contract_may_name_an_input_that_changes(judge):
    seen = judge(
        "input_mutation",
        REFERENCE,
        IN_PLACE,
        contract={"memory": {"inplace": ["1"]}},
        beside=("values", "repeatability", "statelessness", "output_aliasing"),
    )
    assert seen.outcome == "pass"
    assert seen.report.label == "contract", [f.slug for f in seen.report.findings]


def test_the_contract_names_inputs_one_by_one(judge):
    seen = judge(
        "input_mutation", REFERENCE, IN_PLACE, contract={"memory": {"inplace": ["0"]}}, beside=("values",)
    )
    assert seen.reasons == {"input_changed"}


def test_an_input_that_the_reference_changes_may_change(judge):
    seen = judge(
        "input_mutation",
        IN_PLACE.replace("ModelNew", "Model") + REFERENCE[REFERENCE.index("def get_in") :],
        IN_PLACE,
        beside=("values", "repeatability"),
    )
    assert seen.outcome == "pass"
    assert seen.report.label == "contract", [f.slug for f in seen.report.findings]


def test_a_parameter_that_changed_is_named(judge):
    reference = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(10))

        def forward(self, x):
            return x * self.weight

    def get_inputs():
        return [torch.randn(6, 10)]

    def get_init_inputs():
        return []
    """
    changing = reference.replace("class Model", "class ModelNew").replace(
        "return x * self.weight", "y = x * self.weight; self.weight.data.add_(1.0); return y"
    )
    seen = judge("input_mutation", reference, changing, beside=("values",))
    assert seen.reasons == {"parameter_changed"}
    assert seen.findings[0].output == "parameter weight"
    assert seen.findings[0].attested_by == "worker"
