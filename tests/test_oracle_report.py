"""What `oracle_report` says of a task's tolerances."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.contract import Contract
from assay.errors import InputError
from assay.oracle_report import OracleReport, oracle_report
from assay.run.process import Zygote

MATMUL = """
import torch
import torch.nn as nn

M = 16
K = 256

class Model(nn.Module):
    def forward(self, a, b):
        return OUTPUT

def get_inputs():
    return [torch.randn(M, K), torch.randn(K, M)]

def get_init_inputs():
    return []
"""


def report_of(
    zygote: Zygote, folder: Path, output: str = "a @ b", contract: Contract | None = None, **options: object
) -> OracleReport:
    path = folder / "reference.py"
    path.write_text(MATMUL.replace("OUTPUT", output))
    return oracle_report(path, contract=contract, zygote=zygote, **options)  # type: ignore[arg-type]


def test_a_product_names_its_operator_and_what_lower_modes_would_leave(
    zygote: Zygote, tmp_path: Path
) -> None:
    report = report_of(zygote, tmp_path)
    (output,) = report.outputs
    assert (report.accumulate, report.operands, output.dominant) == ("fp32", None, "mm")
    assert (output.shape, output.decided) == ((16, 16), 256)
    assert sum(output.parts.values()) == pytest.approx(output.tolerance[1], rel=1e-3)
    modes = {line.mode: line for line in output.modes}
    assert list(modes) == ["tf32", "fp16", "bf16", "fp16_accumulate", "bf16_accumulate"]
    assert all(line.caught for line in modes.values())
    assert modes["bf16"].error > 4 * modes["tf32"].error
    assert "mostly      mm" in str(report)
    assert "TF32 operands would err by" in str(report)


def test_a_contract_that_grants_tf32_widens_the_tolerance(zygote: Zygote, tmp_path: Path) -> None:
    strict = report_of(zygote, tmp_path).outputs[0]
    granted = Contract.from_data({"numerics": {"matmul": "tf32"}})
    wide = report_of(zygote, tmp_path, contract=granted).outputs[0]
    assert wide.tolerance[1] > 50 * strict.tolerance[1]
    assert "tf32" not in {line.mode for line in wide.modes}


def test_indices_are_judged_by_their_keys(zygote: Zygote, tmp_path: Path) -> None:
    report = report_of(zygote, tmp_path, "(a + b.T).argmax(dim=1)")
    assert report.outputs[0].ranked
    assert "point to the right key" in str(report)


def test_other_sizes_and_dtypes_can_be_asked_for(zygote: Zygote, tmp_path: Path) -> None:
    report = report_of(zygote, tmp_path, sizes={"M": 8}, dtype="bfloat16")
    assert report.outputs[0].shape == (8, 8)
    assert report.outputs[0].dtype == "bfloat16"
    assert report.operands == "bf16"


def test_an_unknown_size_is_named(zygote: Zygote, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no size `Q`"):
        report_of(zygote, tmp_path, sizes={"Q": 8})


def test_a_reference_that_rejects_the_sizes_is_an_error_of_input(zygote: Zygote, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        report_of(zygote, tmp_path, "(a @ b).view(16, 16)", sizes={"M": 8})
