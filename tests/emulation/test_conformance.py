"""Emulation gives what an H200 gave (Triton 3.6, recorded by conformance.py)."""

import gzip
import importlib.util
import io
import re
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent

# Relative error allowed where the GPU approximates or adds in another order, by case.
APPROXIMATE = {
    r"approximate-dot-float16-ieee-fp16": 2e-3,
    r"approximate-dot.*": 5e-5,
    r"approximate-sum-float16": 1e-2,
    r"approximate-sum-bfloat16": 5e-2,
    r"sum-bfloat16": 1e-2,
    r"approximate-libdevice-(j0|j1|y0|y1)": 1e-4,
    r"approximate-libdevice-fast_tanf": None,
    r"approximate-libdevice-fast_logf": 1e-2,
    r"approximate-libdevice-normcdf": 5e-6,
    r"approximate.*": 5e-6,
    r"random": 1e-6,
}

# Values for which the GPU's answer follows from how its library happens to treat subnormals or NaN.
ODD = {
    "approximate-libdevice-cbrt": {23},
    "approximate-libdevice-rcbrt": {23},
    "approximate-libdevice-logb": {23},
    "approximate-libdevice2-pow": {23},
    "approximate-float-float16": {390},
    "approximate-float-float32": {390},
    # The quotient of 8-bit integers, 1 - 2**-24 on the GPU, is cut to an integer.
    "int-uint8": {2309},
}


def recorded():
    return torch.load(io.BytesIO(gzip.decompress((HERE / "h200.pt.gz").read_bytes())), weights_only=True)


def conformance():
    spec = importlib.util.spec_from_file_location("conformance", HERE / "conformance.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def differing(case, ours, theirs):
    """Flat indices at which two recorded tensors disagree."""
    if not theirs.is_floating_point():
        same = ours == theirs
    else:
        a, b = ours.double(), theirs.double()
        same = (a == b) | (a.isnan() & b.isnan())
        for pattern, tolerance in APPROXIMATE.items():
            if re.fullmatch(pattern, case):
                if tolerance is None:
                    return set()
                near = (a - b).abs() <= tolerance * b.abs() + 1e-6 * tolerance
                same |= near & b.isfinite()
                break
    return set((~same).flatten().nonzero().flatten().tolist()) - ODD.get(case, set())


@pytest.mark.parametrize(
    "kind",
    ["cast", "float", "int", "reduce", "sum", "scan", "generic", "control", "dot", "random", "atomics",
     "block", "approximate-float", "approximate-unary", "approximate-sum", "approximate-dot",
     "approximate-lib", "libdevice"],
)  # fmt: skip
def test_same_answers_as_the_gpu(kind, emulation):
    theirs = recorded()
    checked = 0
    for case, function in conformance().cases("cuda"):
        if case.startswith(kind) and "error" not in theirs[case]:
            ours = function()
            for key, tensor in theirs[case].items():
                wrong = differing(case, ours[key].cpu(), tensor)
                assert not wrong, (
                    case,
                    key,
                    [(i, tensor.flatten()[i], ours[key].flatten()[i]) for i in wrong],
                )
            checked += 1
    assert checked
    assert emulation.access_faults() == []


# The compiler's check that loop-carried values keep their types is not made.
NOT_REJECTED = {"accepts-1-carried_type_kernel", "accepts-3-carried_type_kernel"}


def test_same_kernels_rejected_as_by_the_compiler():
    theirs = recorded()
    for case, function in conformance().cases("cuda"):
        if not case.startswith("accepts") or case in NOT_REJECTED:
            continue
        if "error" in theirs[case]:
            with pytest.raises(Exception):  # noqa: B017, PT011
                function()
        else:
            assert torch.equal(function()["r"].cpu(), theirs[case]["r"]), case
