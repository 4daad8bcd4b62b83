"""`assay.verify` and `assay.screen` from Python: paths, source, nouns, functions and classes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

import assay
from assay.portable import candidate_from, needed_source, task_from

from .conftest import REFERENCE, RIGHT, WRONG


@pytest.fixture(scope="module")
def live() -> ModuleType:
    path = Path(__file__).with_name("live_functions.py")
    spec = importlib.util.spec_from_file_location("live_functions", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["live_functions"] = module
    spec.loader.exec_module(module)
    return module


def quick(candidate: object, reference: object, **more: object) -> assay.Report:
    options = {"device": "cpu", "tier": "quick", "seed": 1, "only": ["values", "shapes"], **more}
    return assay.verify(candidate, reference, **options)  # type: ignore[arg-type]


def test_importing_the_package_is_light() -> None:
    code = "import sys, assay; assay.verify; assay.screen; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_the_functions_keep_their_names_when_their_modules_are_imported() -> None:
    import assay.screen
    import assay.verify

    assert callable(assay.verify)
    assert callable(assay.screen)


def test_every_public_name_is_there() -> None:
    for name in assay.__all__:
        assert getattr(assay, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = assay.no_such_name


def test_paths_source_and_nouns_give_the_same_verdict(files: Path) -> None:
    task = assay.parse_task(REFERENCE)
    for candidate, reference in (
        (files / "wrong.py", files / "reference.py"),
        (WRONG, REFERENCE),
        (assay.parse_candidate(WRONG), task),
    ):
        report = quick(candidate, reference, only="values")
        assert report.label.value == "rejected"
    assert quick(RIGHT, task, only="values").ok


def test_a_rejected_candidate_raises_with_its_findings() -> None:
    report = quick(WRONG, REFERENCE, only="values")
    with pytest.raises(assay.AssayFailure, match=r"values \(value, wrong\)") as caught:
        report.raise_for_findings()
    assert caught.value.report is report
    quick(RIGHT, REFERENCE, only="values").raise_for_findings()


def test_functions_are_verified_at_other_sizes(live: ModuleType) -> None:
    assert quick(live.right, live.reference, inputs=live.make_inputs).ok
    report = quick(live.wrong_beyond_eight_columns, live.reference, inputs=live.make_inputs)
    assert {f.slug for f in report.findings} == {"shapes"}
    assert assay.screen(live.wrong_beyond_eight_columns, live.reference, inputs=live.make_inputs).passed


def test_example_arguments_and_library_functions_will_do(live: ModuleType) -> None:
    examples = [torch.randn(4, 6), torch.randn(4, 6)]
    assert quick(live.right, live.reference, inputs=examples, only="values").ok
    softmax = "import torch\n\ndef ModelNew(x, dim):\n    e = torch.exp(x - x.amax(dim, True))\n"
    softmax += "    return e / e.sum(dim, True)\n"
    report = quick(softmax, torch.softmax, inputs=[torch.randn(3, 9), 1], only="values")
    assert report.ok
    assert report.task.id == "softmax"


def test_classes_are_constructed_with_init(live: ModuleType) -> None:
    report = quick(live.AffineByHand, live.Affine, inputs=lambda_free_inputs, init=[5], only="values")
    assert report.ok
    assert report.candidate.weights == "names"


def lambda_free_inputs(rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, 5)


def test_a_contract_may_be_data_or_a_file(tmp_path: Path) -> None:
    clauses = {"policy": {"scope": "gpu"}}
    (tmp_path / "gpu.toml").write_text('[policy]\nscope = "gpu"\n')
    for contract in (clauses, tmp_path / "gpu.toml", assay.Contract.from_data(clauses)):
        assert quick(RIGHT, REFERENCE, contract=contract, only="values").label.value == "screened"
    with pytest.raises(assay.InputError, match=r"unknown key `polcy`; did you mean `policy`\?"):
        quick(RIGHT, REFERENCE, contract={"polcy": {}})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda live: (lambda x, y: x, live.reference), "a lambda has no name"),
        (lambda live: (_inner(), live.reference), "defined inside another function"),
        (lambda live: (torch.nn.ReLU(), live.reference), "no source that can run"),
        (lambda live: (3, live.reference), "a int is no candidate"),
        (lambda live: (live.right, 3), "no reference"),
    ],
)
def test_what_cannot_travel_is_refused(
    live: ModuleType, make: Callable[[ModuleType], tuple[object, object]], words: str
) -> None:
    candidate, reference = make(live)
    inputs = live.make_inputs if callable(reference) else None
    with pytest.raises(assay.InputError, match=words):
        quick(candidate, reference, inputs=inputs)


def _inner() -> Callable[[object], object]:
    def inner(x: object) -> object:
        return x

    return inner


def test_inputs_at_fault_are_refused(live: ModuleType) -> None:
    with pytest.raises(assay.InputError, match="needs inputs"):
        quick(live.right, live.reference)
    with pytest.raises(assay.InputError, match="needs a value for `rows`"):
        quick(live.right, live.reference, inputs=live.needs_a_value)
    with pytest.raises(assay.InputError, match="`inputs` and `init` go with a function"):
        quick(RIGHT, REFERENCE, inputs=live.make_inputs)
    with pytest.raises(assay.InputError, match="object cannot be written down"):
        quick(live.right, live.reference, inputs=[object()])


def test_a_candidate_does_not_bring_its_reference_along(live: ModuleType) -> None:
    source = candidate_from(live.right).source
    assert "SCALE" in source
    for absent in ("def reference", "def helper", "FORBIDDEN", "assert __name__"):
        assert absent not in source


def test_lines_keep_their_numbers(live: ModuleType) -> None:
    text = Path(live.__file__ or "").read_text().splitlines()
    travelled = candidate_from(live.right).source.splitlines()
    at = text.index("def right(x, y):")
    assert travelled[at : at + 2] == text[at : at + 2]


def test_the_maker_s_integers_are_the_sizes(live: ModuleType) -> None:
    source = task_from(live.reference, live.make_inputs).source
    assert "\nrows = 4\ncols = 8\n" in source
    assert "make_inputs(rows=rows, cols=cols)" in source


@pytest.mark.parametrize(
    ("text", "kept", "dropped"),
    [
        ("import os\nimport sys\n\ndef f():\n    return os.sep\n", "import os", "import sys"),
        ("from __future__ import annotations\nx = 1\ny = 2\ndef f(): return x\n", "annotations", "y = 2"),
        ("TABLE = {}\nTABLE['a'] = 1\nOTHER = 2\ndef f(): return TABLE\n", "TABLE['a'] = 1", "OTHER"),
        ("import torch\ntorch.manual_seed(0)\nprint(3)\ndef f(): return torch\n", "manual_seed", "print"),
        ("def g(): return 1\ndef f(x=g()): return x\ndef h(): return 2\n", "def g", "def h"),
        ("x = 3\ndef f():\n    x = 1\n    return x\n", "x = 1", "x = 3"),
        (
            "try:\n    import a_module as m\nexcept ImportError:\n    m = None\ndef f(): return m\n",
            "m = None",
            "#",
        ),
        ("def f(): return 1\nif __name__ == '__main__':\n    f = None\n", "def f", "f = None"),
    ],
)
def test_only_what_a_function_needs_travels(text: str, kept: str, dropped: str) -> None:
    source = needed_source(text, ["f"])
    assert kept in source
    assert dropped not in source
    compile(source, "travelled", "exec")


def test_relative_imports_become_absolute() -> None:
    source = needed_source("from .sub import a as b\n\ndef f(): return b\n", ["f"], "pack.age")
    assert source.startswith("from pack.age.sub import a as b\n")
