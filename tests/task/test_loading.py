"""Reading references and candidates, and telling what is wrong with them in one line."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.task import TaskError, load_candidate, load_task, parse_candidate, parse_task
from assay.task.language import detect_languages

GOOD = """
import torch
import torch.nn as nn

N = 4

class Model(nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    return [torch.randn(N)]

def get_init_inputs():
    return []
"""


def fault(text: str, tmp_path: Path) -> TaskError:
    path = tmp_path / "reference.py"
    path.write_text(text)
    with pytest.raises(TaskError) as caught:
        load_task(path)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_reference_is_named_after_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "softmax"
    folder.mkdir()
    (folder / "reference.py").write_text(GOOD)
    task = load_task(folder / "reference.py")
    assert task.id == "softmax"
    assert task.candidate_entries == ("ModelNew",)
    assert task.source == GOOD


def test_the_digest_follows_the_source_and_not_the_path() -> None:
    assert parse_task(GOOD, path="a.py").digest == parse_task(GOOD, path="b.py").digest
    assert parse_task(GOOD).digest != parse_task(GOOD + "\n").digest


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"nowhere\.py: no such file for the reference"):
        load_task(tmp_path / "nowhere.py")


def test_a_folder_is_no_reference(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="directory"):
        load_task(tmp_path)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_bytes(b"x = '\xff\xfe'")
    with pytest.raises(TaskError, match="not UTF-8 text"):
        load_task(path)


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_task(path).source == GOOD


def test_a_syntax_error_gives_its_line(tmp_path: Path) -> None:
    error = fault("x = 1\ndef broken(:\n", tmp_path)
    assert error.where.endswith("reference.py:2")
    assert "syntax error" in error.what


def test_a_null_byte_is_not_python(tmp_path: Path) -> None:
    assert fault("x = 1\0", tmp_path).where.endswith(":1")


def test_a_reference_without_a_model_lists_its_classes(tmp_path: Path) -> None:
    error = fault(GOOD.replace("class Model", "class Net"), tmp_path)
    assert "no class Model" in error.what
    assert "Net" in error.what


def test_a_reference_without_inputs_says_which_function_is_missing(tmp_path: Path) -> None:
    assert "no function get_inputs" in fault(GOOD.replace("get_inputs", "make"), tmp_path).what
    assert "get_init_inputs" in fault(GOOD.replace("get_init_inputs", "make"), tmp_path).what


def test_names_bound_in_branches_count() -> None:
    guarded = GOOD.replace(
        "N = 4", "try:\n    from fast import get_init_inputs\nexcept ImportError:\n    N = 4"
    )
    assert parse_task(guarded).entry == "Model"


def test_a_task_error_is_an_input_error_and_survives_pickling() -> None:
    error = TaskError("what", "where:1", "todo")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, InputError)
    assert (copy.what, copy.where, copy.todo) == ("what", "where:1", "todo")


def test_a_candidate_may_be_named_after_the_entry() -> None:
    source = "class SoftmaxNew:\n    pass\n"
    assert parse_candidate(source, entries=("ModelNew", "SoftmaxNew")).entry == "SoftmaxNew"
    assert parse_candidate("ModelNew = object", entries=("ModelNew",)).entry == "ModelNew"


def test_a_candidate_without_an_entry_point_is_refused_or_described() -> None:
    with pytest.raises(TaskError, match="no ModelNew"):
        parse_candidate("class Model: pass")
    described = parse_candidate("class Model: pass", strict=False)
    assert described.entry is None
    assert described.defect is not None
    assert "no ModelNew" in described.defect


def test_a_candidate_that_does_not_parse_is_refused_or_described(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text("def (")
    with pytest.raises(TaskError, match="syntax error"):
        load_candidate(path)
    assert load_candidate(path, strict=False).entry is None


@pytest.mark.parametrize(
    ("source", "language"),
    [
        ("import triton\n@triton.jit\ndef k(): pass", "triton"),
        ("from triton import jit\n@jit\ndef k(): pass", "triton"),
        ("import triton\nimport torch", "torch"),
        ("from triton.experimental import gluon\n@gluon.jit\ndef k(): pass", "gluon"),
        ("src = '__global__ void k() {}'", "cuda"),
        ("from torch.utils.cpp_extension import load_inline\nm = load_inline(name='a')", "cuda"),
        ("import cutlass.cute as cute\n@cute.kernel\ndef k(): pass", "cute_dsl"),
        ("import tilelang\nimport tilelang.language as T\n@T.prim_func\ndef k(): pass", "tilelang"),
        ("import helion\n@helion.kernel()\ndef k(): pass", "helion"),
        ("import cuda.tile as ct\n@ct.kernel\ndef k(): pass", "cutile"),
        ("from numba import cuda\n@cuda.jit\ndef k(): pass", "numba"),
        ("import cupy as cp\nk = cp.RawKernel('', 'k')", "cupy"),
        ("import torch\n# @triton.jit\ndef f(x): return torch.relu(x)", "torch"),
        ('"""Once a __global__ kernel."""\nimport torch', "torch"),
    ],
)
def test_the_language_is_the_one_kernels_are_written_in(source: str, language: str) -> None:
    assert detect_languages(source)[0] == language


def test_a_cuda_file_is_cuda() -> None:
    source = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def(\"forward\", &forward); }"
    candidate = parse_candidate(source, path="k.cu")
    assert (candidate.language, candidate.entry, candidate.defect) == ("cuda", "ModelNew", None)
    assert repr(source) in candidate.source
    with pytest.raises(TaskError, match="no binding"):
        parse_candidate("void forward() {}", path="k.cu")


def test_kernel_language_is_found_in_a_list_of_imports():
    source = "import torch, triton, triton.language as tl\n@triton.jit\ndef kernel(x):\n    pass\n"
    assert detect_languages(source) == ("triton",)
    assert detect_languages(source.replace("triton, triton.language as tl", "tritonclient")) == ("torch",)
