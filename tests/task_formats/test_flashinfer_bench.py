"""flashinfer-bench: named axes, workloads, destination passing, and verdicts written back as traces."""

from __future__ import annotations

import json

import pytest

from assay.contract.model import Contract
from assay.errors import InputError
from assay.task.formats import detect, flashinfer_bench, load
from assay.vocabulary import Label

DEFINITION = {
    "name": "scaled_rows",
    "op_type": "rows",
    "axes": {"batch": {"type": "var"}, "width": {"type": "const", "value": 24}},
    "inputs": {
        "x": {"shape": ["batch", "width"], "dtype": "float32"},
        "weight": {"shape": ["width"], "dtype": "float32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["batch", "width"], "dtype": "float32"},
        "total": {"shape": ["batch"], "dtype": "float32"},
    },
    "reference": "import torch\n\n\n@torch.no_grad()\ndef run(x, weight, scale):\n"
    "    y = x * weight * scale\n    return {'total': y.sum(-1), 'y': y}\n",
}
WORKLOADS = [
    {"definition": "scaled_rows", "workload": {
        "uuid": "w0", "axes": {"batch": 5},
        "inputs": {"x": {"type": "random"}, "weight": {"type": "random"},
                   "scale": {"type": "scalar", "value": 0.5}},
    }},
]
RIGHT = "from helper import multiplied\n\n\ndef run(x, weight, scale, y, total):\n" \
        "    y.copy_(multiplied(x, weight) * scale)\n    total.copy_(y.sum(-1))\n"
HELPER = "def multiplied(x, weight):\n    return x * weight\n"
VALUES = "def run(x, weight, scale):\n    y = x * weight * 0.5\n    return {'y': y, 'total': y.sum(-1)}\n"
WRONG = "def run(x, weight, scale, y, total):\n    y.copy_(x * scale)\n    total.copy_(y.sum(-1))\n"


def solution(name: str, sources: dict[str, str], **spec: object) -> str:
    return json.dumps({
        "name": name, "definition": "scaled_rows", "author": "someone",
        "spec": {"language": "python", "entry_point": "main.py::run", "target_hardware": ["any"], **spec},
        "sources": [{"path": path, "content": text} for path, text in sources.items()],
    })


def files(**changes: object) -> dict[str, str]:
    base = "solutions/someone/rows/scaled_rows"
    return {
        "definitions/rows/scaled_rows.json": json.dumps({**DEFINITION, **changes}),
        "workloads/rows/scaled_rows.jsonl": "\n".join(json.dumps(line) for line in WORKLOADS),
        f"{base}/right.json": solution("right", {"main.py": RIGHT, "helper.py": HELPER}),
        f"{base}/values.json": solution("values", {"main.py": VALUES}, destination_passing_style=False),
        f"{base}/wrong.json": solution("wrong", {"main.py": WRONG}),
        f"{base}/native.json": solution("native", {"main.cu": "__global__ void k() {}"}, language="cuda",
                                        entry_point="main.cu::run"),
    }


def test_a_definition_becomes_a_task_whose_axes_are_sizes(tree):
    (loaded,) = load(tree(files()))
    assert loaded.format == "flashinfer-bench"
    assert "batch = 5" in loaded.task.source
    assert "width = 24" in loaded.task.source
    assert loaded.contract == Contract.from_data(
        {"domain": {"sizes": {"width": {"fixed": True}}}, "gradients": "none"})
    assert [c.id for c in loaded.candidates] == ["right", "values", "wrong"]
    assert any("native" in note for note in loaded.notes)


@pytest.mark.parametrize(("name", "label"), [
    ("right", Label.CONTRACT), ("values", Label.CONTRACT), ("wrong", Label.REJECTED),
])
def test_solutions_are_judged_through_an_adapter(tree, judged, name, label):
    (loaded,) = load(tree(files()))
    candidate = next(c for c in loaded.candidates if c.id == name)
    report = judged(loaded, candidate)
    assert report.label is label, [f.model_dump() for f in report.findings]


def test_verdicts_are_written_as_traces(tree, judged):
    (loaded,) = load(tree(files()))
    traces = {c.id: flashinfer_bench.to_trace(judged(loaded, c), loaded, c.id) for c in loaded.candidates}
    assert traces["right"]["evaluation"]["status"] == "PASSED"
    assert "performance" in traces["right"]["evaluation"]
    wrong = traces["wrong"]["evaluation"]
    assert wrong["status"] == "INCORRECT_NUMERICAL"
    assert wrong["correctness"]["max_absolute_error"] > 0
    assert "performance" not in wrong
    assert traces["wrong"]["workload"]["uuid"] == "w0"
    assert json.loads(json.dumps(traces["wrong"])) == traces["wrong"]


@pytest.mark.parametrize(("changes", "says"), [
    ({"reference": "def other(): pass"}, "no function `run`"),
    ({"reference": "def run(:"}, "syntax error"),
    ({"axes": {"batch": {"type": "dynamic"}}}, "axis `batch` is of type 'dynamic'"),
    ({"inputs": {"x": {"shape": ["rows"], "dtype": "float32"}}}, "no axis `rows`"),
    ({"inputs": {"x": {"shape": ["batch"], "dtype": "float33"}}}, "unknown dtype 'float33'"),
])
def test_faults_are_told_in_one_line(tree, changes, says):
    with pytest.raises(InputError, match=r"scaled_rows\.json") as caught:
        load(tree(files(**changes)))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_source_path_stays_inside_its_solution(tree):
    place = "solutions/someone/rows/scaled_rows/right.json"
    root = tree({**files(), place: solution("right", {"main.py": RIGHT, "../helper.py": HELPER})})
    with pytest.raises(InputError, match=r"source path `\.\./helper\.py`"):
        load(root)


def test_the_format_is_told_by_its_folders(tree, tmp_path):
    assert detect(tree(files())) == "flashinfer-bench"
    assert detect(tmp_path / "definitions") is None
