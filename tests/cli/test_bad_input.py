"""Bad input of each kind: status 2, one clear line that says what, where and what to do, and no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import REFERENCE, Said

Assay = Callable[..., Said]


def refused(said: Said, *words: str) -> None:
    assert said.status == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("assay: ")
    for word in words:
        assert word in said.err


def without_progress(said: Said) -> Said:
    kept = [
        line
        for line in said.err.splitlines(keepends=True)
        if line
        not in {
            "assay: starting workers\n",
            "assay: studying the task\n",
            "assay: first call\n",
            "assay: screening\n",
        }
    ]
    return Said(said.status, said.out, "".join(kept))


def test_no_such_reference(assay: Assay, files: Path) -> None:
    refused(
        assay("verify", files / "missing.py", files / "right.py"), "missing.py", "no such file", "reference"
    )


def test_no_such_candidate(assay: Assay, files: Path) -> None:
    refused(
        assay("verify", files / "reference.py", files / "gone.py"), "gone.py", "no such file", "candidate"
    )


def test_no_such_contract(assay: Assay, files: Path) -> None:
    refused(
        assay("verify", files / "reference.py", files / "right.py", "--contract", files / "no.toml"),
        "no.toml",
        "no such file",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            REFERENCE.replace("def forward(self, x):", "def forward(self, x:"),
            ("syntax error", "reference.py:6"),
        ),
        (REFERENCE.replace("class Model(", "class Net("), ("no class Model", "classes found: Net")),
        (REFERENCE.replace("def get_inputs", "def inputs"), ("no function get_inputs",)),
        (
            REFERENCE.replace("return [torch.randn", "raise ValueError('no data') or [torch.randn"),
            ("get_inputs() raised ValueError: no data", "reference.py:12"),
        ),
        (
            REFERENCE.replace("    return []", "    return [3, 4]"),
            ("Model.__init__", "get_init_inputs"),
        ),
        (REFERENCE.replace("return x * 2", "raise RuntimeError('never worked')"), ("never worked",)),
        ("\0", ("reference.py",)),
    ],
    ids=["syntax", "no-model", "no-inputs", "inputs-raise", "constructor", "forward-raises", "not-text"],
)
def test_a_task_at_fault(assay: Assay, files: Path, text: str, words: tuple[str, ...]) -> None:
    (files / "reference.py").write_text(text)
    refused(without_progress(assay("verify", files / "reference.py", files / "right.py")), *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("determinsm = 'bitwise'\n", ("unknown key `determinsm`", "did you mean `determinism`?")),
        ("[numerics]\nmatmul = 'fp8'\n", ("numerics.matmul",)),
        ("[numerics\n", ("not valid TOML",)),
    ],
)
def test_a_contract_at_fault(assay: Assay, files: Path, text: str, words: tuple[str, ...]) -> None:
    (files / "contract.toml").write_text(text)
    said = assay("verify", files / "reference.py", files / "right.py", "--contract", files / "contract.toml")
    refused(without_progress(said), "contract.toml", *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--only", "shaeps"), ("no gate `shaeps`", "did you mean `shapes`?")),
        (("--tier", "stadard"), ("--tier", "did you mean `standard`?")),
        (("--device", "tpu"), ("unknown device `tpu`", "auto, cpu or cuda")),
        (("--emulate", "sm_91"), ("--emulate", "did you mean `sm_90`?")),
        (("--timeout", "0"), ("--timeout", "leaves no time")),
        (("--seed", "-1"), ("--seed", "out of range")),
    ],
)
def test_an_option_at_fault(
    assay: Assay, files: Path, options: tuple[str, str], words: tuple[str, ...]
) -> None:
    said = assay("verify", files / "reference.py", files / "right.py", *options)
    refused(without_progress(said), *words)


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify",),
        ("verify", "one.py"),
        ("verify", "a.py", "b.py", "c.py"),
        ("verify", "a", "b", "--seed", "x"),
        ("verify", "--surprise"),
        ("judge",),
    ],
)
def test_a_command_line_at_fault_points_to_help(assay: Assay, arguments: tuple[str, ...]) -> None:
    refused(assay(*arguments), "--help`)")


def test_a_report_that_cannot_be_written_is_refused_before_any_work(assay: Assay, files: Path) -> None:
    for target in (files, files / "no-folder" / "report.json", files / "reference.py" / "report.json"):
        refused(
            assay("verify", files / "reference.py", files / "right.py", "--json", target),
            "cannot write the report",
            "--json",
        )


def test_an_unknown_gate_to_explain(assay: Assay) -> None:
    refused(assay("explain", "shaeps"), "no gate `shaeps`", "did you mean `shapes`?")


def test_an_unknown_variant_of_the_screen(assay: Assay, files: Path) -> None:
    said = assay("screen", files / "reference.py", files / "right.py", "--variant", "strict")
    refused(without_progress(said), "--variant", "hardened")


def test_an_unknown_example(assay: Assay) -> None:
    refused(without_progress(assay("demo", "--only", "softmx")), "did you mean `softmax`?")
