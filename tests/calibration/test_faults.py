"""Wrong implementations have a finding, and low precision is named."""

from __future__ import annotations

import pytest

from assay.calibration import faults, measure_fault

ALL = {fault.name: fault for fault in faults()}
SEMANTIC = (
    "layer norm: eps 1e-6 for 1e-5",
    "layer norm: one-pass variance",
    "rms norm: eps outside the root",
    "variance: biased at 4096",
    "gelu: tanh form for erf",
    "cross entropy: smoothing 0.1001 for 0.1",
    "attention: window one key too wide",
    "matmul: last inner index dropped",
    "batch norm: momentum 0.101 for 0.1",
    "Adam: eps under the root",
    "sum: accumulated in fp16, data of one sign",
)
PRECISION = (
    "matmul in tf32",
    "matmul in bf16",
    "convolution in tf32",
    "attention in bf16",
    "sum accumulated in fp16",
    "matmul accumulated in bf16",
    "layer norm of inputs in fp16",
)


def test_there_are_enough_of_both_kinds() -> None:
    kinds = [fault.kind for fault in ALL.values()]
    assert kinds.count("semantic") >= 60
    assert kinds.count("precision") >= 20
    assert len(ALL) == len(kinds)


@pytest.mark.parametrize("name", SEMANTIC)
def test_a_small_semantic_fault_is_caught(name: str) -> None:
    result = measure_fault(ALL[name])
    assert result.caught, result


@pytest.mark.parametrize("name", PRECISION)
def test_a_lower_precision_is_caught_and_named(name: str) -> None:
    result = measure_fault(ALL[name])
    assert result.caught, result
    assert result.on in ALL[name].modes


@pytest.mark.parametrize("name", [SEMANTIC[0], PRECISION[0]])
def test_the_reference_itself_is_not_caught(name: str) -> None:
    import dataclasses

    fault = ALL[name]
    assert not measure_fault(dataclasses.replace(fault, candidate=fault.reference)).caught
