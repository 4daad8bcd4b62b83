"""The report that people read: every fact in words, 80 columns, no colour needed."""

from __future__ import annotations

import io
import re
import shlex

import pytest
from rich.console import Console

from assay.report.model import Report
from assay.report.terminal import Names, print_report, replay_command, to_text, verdict_text
from assay.report.words import OUTCOMES, REASONS, TIERS, shortened
from assay.vocabulary import Label, Outcome, Reason, Tier

NAMES = Names("softmax/reference.py", "my kernels/candidate.py")


@pytest.mark.parametrize("width", [80, 60, 120])
def test_no_line_is_wider_than_asked_but_for_commands_to_copy(made_report: Report, width: int) -> None:
    wide = [line for line in to_text(made_report, NAMES, width=width).splitlines() if len(line) > width]
    assert all(line.strip().startswith("replay") for line in wide)


def test_each_gate_has_one_line_with_outcome_coverage_and_note(made_report: Report) -> None:
    text = to_text(made_report, NAMES)
    rows = {
        line.split()[0]: line
        for line in text.splitlines()
        if line and line.split()[0] in {g.slug for g in made_report.gates}
    }
    assert rows["values"].split()[1:3] == ["FAIL", "4/4"]
    assert "outside the tolerance" in rows["values"]
    assert rows["shapes"].split()[1:3] == ["pass", "4/4"]
    assert rows["shapes"].endswith("…")
    assert rows["layouts"].split()[1:3] == ["inconclusive", "0/4"]
    assert "out of memory" in rows["layouts"]
    assert rows["streams"].split()[1:3] == ["n/a", "-"]
    assert "needs a GPU" in rows["streams"]


def test_a_finding_says_expected_got_where_why_and_how_to_replay(made_report: Report) -> None:
    block = to_text(made_report, NAMES).split("1. values")[1].split("2. nonfinite")[0]
    assert "expected   0.00237253173" in block
    assert "got        0.25" in block
    assert "output 1.scale[3, 4], 12 of 16,000 elements wrong" in block
    words = " ".join(block.split())
    assert "error 0.25, 2.5e+05 times the tolerance 1e-06" in words
    assert "tolerance from spread 6e-07 + pooled 4e-07" in words
    assert "--seed 11 --only values" in block


def test_a_finding_without_tolerance_says_so_and_describes_its_probe(made_report: Report) -> None:
    words = " ".join(to_text(made_report, NAMES).split("2. nonfinite")[1].split("3. faults")[0].split())
    assert "no tolerance involved" in words
    assert (
        "COLS=513; the task's own inputs with nan at 50% of input 0; 2 calls (fresh, same storage)" in words
    )


def test_what_only_the_worker_saw_is_marked(made_report: Report) -> None:
    block = to_text(made_report, NAMES).split("3. faults")[1]
    assert "attested   by the candidate's own process alone" in block


def test_what_a_candidate_printed_cannot_steer_the_terminal(made_report: Report) -> None:
    text = to_text(made_report, NAMES)
    assert "all tests passed" in text
    assert not any(ord(c) < 32 and c != "\n" for c in text)


def test_replay_runs_the_gate_and_the_gate_that_planned_the_probe(made_report: Report) -> None:
    command = shlex.split(replay_command(made_report, made_report.findings[2], NAMES))
    assert command[:4] == ["assay", "verify", "softmax/reference.py", "my kernels/candidate.py"]
    assert command[4:] == ["--seed", "11", "--only", "faults", "--only", "nonfinite"]


def test_a_weak_task_and_unmodelled_operations_are_warned_of(made_report: Report) -> None:
    text = to_text(made_report, NAMES)
    assert "returning a constant would pass the usual check" in text
    assert "aten.foo" in text


def test_the_label_names_its_scope_and_the_gates_that_need_a_gpu(made_report: Report) -> None:
    assert verdict_text(made_report) == (
        "rejected on cpu-emulation: 3 of 6 gates failed (values, nonfinite, faults); "
        "1 gate needs a GPU (streams)"
    )


def test_a_screened_candidate_is_never_called_right(made_report: Report) -> None:
    report = made_report.model_copy(
        update={"label": Label.SCREENED, "findings": (), "gates": made_report.gates[3:]}
    )
    assert verdict_text(report).startswith(
        "screened on cpu-emulation: nothing wrong found, but undecided: layouts"
    )


def test_a_contract_says_how_many_gates_it_rests_on(made_report: Report) -> None:
    report = made_report.model_copy(
        update={
            "label": Label.CONTRACT,
            "findings": (),
            "gates": (made_report.gates[3], made_report.gates[5]),
        }
    )
    assert verdict_text(report) == (
        "contract on cpu-emulation: 1 of 2 gates passed; 1 gate needs a GPU (streams)"
    )


def test_colour_adds_nothing_to_the_words(made_report: Report) -> None:
    def printed(**options: object) -> str:
        out = io.StringIO()
        console = Console(file=out, width=80, highlight=False, **options)  # type: ignore[arg-type]
        print_report(console, made_report, NAMES)
        return out.getvalue()

    plain = printed(no_color=True)
    coloured = printed(force_terminal=True, color_system="truecolor")
    assert "\x1b" not in plain
    assert "\x1b" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_every_word_of_the_vocabulary_has_a_phrase() -> None:
    assert set(REASONS) == set(Reason)
    assert set(OUTCOMES) == set(Outcome)
    assert set(TIERS) == set(Tier)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("0.0023725317318228525", "0.00237253173"),
        ("nan", "nan"),
        ("12345678901234", "12345678901234"),
        ("1.5", "1.5"),
        ("an output", "an output"),
        ("-inf", "-inf"),
        ("16777217.000000002", "16777217"),
    ],
)
def test_numbers_keep_the_digits_that_tell_floats_apart(text: str, short: str) -> None:
    assert shortened(text) == short


def test_two_values_that_differ_beyond_nine_digits_are_shown_in_full(made_report: Report) -> None:
    finding = made_report.findings[0].model_copy(
        update={"expected": "0.12345678901234", "actual": "0.12345678901299"}
    )
    text = to_text(made_report.model_copy(update={"findings": (finding,)}), NAMES)
    assert "0.12345678901234" in text
    assert "0.12345678901299" in text


def test_a_real_report_reads_in_a_log_file(real_report: Report) -> None:
    text = to_text(real_report, Names("reference.py", "wrong_fixed_width.py"))
    assert "rejected on cpu-emulation" in text
    assert text.count("replay ") == len(real_report.findings)
