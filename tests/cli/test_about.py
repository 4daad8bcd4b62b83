"""`assay gates`, `explain`, `schema`, `doctor`, `demo` and the help say what is there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import jsonschema
import pytest

from assay import pages
from assay.demo import load_cases
from assay.doctor import State, examine
from assay.gates import BATTERY

from .conftest import Said

Assay = Callable[..., Said]


def test_the_help_needs_neither_torch_nor_triton() -> None:
    code = (
        "import sys, assay.cli\n"
        "try: assay.cli.main(['verify', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.endswith("[]\n")
    for word in (
        "REFERENCE",
        "CANDIDATE",
        "--contract",
        "--tier",
        "--only",
        "--json",
        "--fail-fast",
        "--emulate",
    ):
        assert word in out


def test_a_bare_command_shows_the_help(assay: Assay) -> None:
    said = assay()
    assert said.status == 2
    assert "Commands:" in said.err
    assert said.err.count("\n") > 5


def test_gates_lists_every_gate_with_its_obligation(assay: Assay) -> None:
    said = assay("gates")
    assert said.status == 0
    for gate in BATTERY:
        row = next(line for line in said.out.splitlines() if line.startswith(gate.id))
        assert gate.slug in row
        assert gate.obligation.split()[0] in row
    assert max(len(line) for line in said.out.splitlines()) <= 80


def test_every_gate_has_a_page_that_says_whether_it_needs_a_tolerance() -> None:
    for gate in BATTERY:
        page = pages.gate_page(gate.slug)
        assert page is not None
        assert pages.needs_tolerance(page) in ("yes", "no", "partly")


@pytest.mark.parametrize("name", ["shapes", "CMP-03", "lethe:cmp-03"])
def test_explain_takes_a_slug_an_id_or_an_alias(assay: Assay, name: str) -> None:
    said = assay("explain", name)
    assert said.status == 0
    assert said.out == pages.gate_page("shapes")


@pytest.mark.parametrize(
    ("option", "title"), [((), "Report"), (("--contract",), "Contract"), (("--screen",), "ScreenReport"),
     (("--gate",), "GateReport"), (("--bench",), "BenchReport")]
)
def test_schema_prints_a_valid_json_schema(assay: Assay, option: tuple[str, ...], title: str) -> None:
    schema = json.loads(assay("schema", *option).out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == title


def test_the_version_is_the_package_s(assay: Assay) -> None:
    from assay import __version__

    assert assay("--version").out == f"assay {__version__}\n"


def test_doctor_runs_a_kernel_and_says_what_to_install_for_what_is_missing() -> None:
    checks = {check.name: check for check in examine()}
    assert checks["torch"].state is State.OK
    assert checks["warm parent"].state is State.OK
    assert checks["Triton kernel"].state is State.OK
    assert all(check.advice for check in checks.values() if check.state is not State.OK)


def test_every_example_is_complete() -> None:
    cases = load_cases(pages.examples())
    tasks = {case.task for case in cases}
    assert len(tasks) >= 6
    for task in tasks:
        kernels = [case for case in cases if case.task == task]
        assert sum(case.right for case in kernels) == 1
        assert sum(not case.right for case in kernels) >= 1
    for case in cases:
        assert case.reference.is_file()
        assert case.candidate.is_file()
        assert case.right or case.gates


def test_demo_shows_what_the_screen_misses(assay: Assay) -> None:
    said = assay("demo", "--only", "row_max", "--device", "cpu")
    assert said.status == 0
    rows = {line.split()[0]: line.split()[1:] for line in said.out.splitlines() if line.startswith("  ")}
    assert rows["right.py"][:2] == ["pass", "contract"]
    assert rows["wrong_swallowed_nan.py"][:3] == ["pass", "REJECTED", "nonfinite:"]
    words = " ".join(said.out.split())
    assert "1 of 1 wrong kernels pass the usual screen; Assay rejects 1 of 1 and accepts 1 of 1" in words
