"""A report made by a real verification, and one made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.probe.model import Call, Draw, Injection, Probe
from assay.report.exhibit import (
    ErrorMap,
    ModeError,
    PrecisionFingerprint,
    SourceExcerpt,
    SpecialInput,
    SpecialValue,
)
from assay.report.model import (
    CandidateInfo,
    Coverage,
    Finding,
    GateResult,
    Hint,
    Names,
    Report,
    TaskInfo,
    Timing,
)
from assay.run.process import Zygote
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import EffortTier, Label, Outcome, Reason, Tier

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def verdict(zygote: Zygote, task: str, candidate: str, *only: str) -> Report:
    """A quick verdict on one of the examples, seed 5, as the command line would ask for it."""
    reference, kernel = EXAMPLES / task / "reference.py", EXAMPLES / task / f"{candidate}.py"
    options = Options(tier=EffortTier.QUICK, seed=5, device="cpu", only=only or None)
    report = verify_task(*load_pair(reference, kernel), options=options, zygote=zygote)
    names = Names(f"examples/{task}/reference.py", f"examples/{task}/{candidate}.py", ("--tier", "quick"))
    return report.model_copy(update={"names": names})


@pytest.fixture(scope="session")
def real_report(zygote: Zygote) -> Report:
    """Every gate on a kernel that is wrong at other sizes."""
    return verdict(zygote, "row_sum", "wrong_fixed_width")


@pytest.fixture(scope="session")
def right_report(zygote: Zygote) -> Report:
    """Its right twin."""
    return verdict(zygote, "row_sum", "right")


@pytest.fixture(scope="session")
def narrow_report(zygote: Zygote) -> Report:
    """An accumulator in half precision: errors to map, and a precision to recognise."""
    return verdict(zygote, "matmul", "wrong_half_accumulator", "values", "accumulation")


@pytest.fixture(scope="session")
def nan_report(zygote: Zygote) -> Report:
    """A swallowed NaN: inputs with special values."""
    return verdict(zygote, "row_max", "wrong_swallowed_nan", "nonfinite")


@pytest.fixture(scope="session")
def bounds_report(zygote: Zygote) -> Report:
    """A load without a mask: a finding that names a line."""
    return verdict(zygote, "matmul", "wrong_unmasked_depth", "shapes", "bounds")


def _gate(slug: str, outcome: Outcome, reason: Reason | None = None, **more: object) -> GateResult:
    return GateResult.model_validate(
        {
            "id": f"X-{slug}",
            "slug": slug,
            "outcome": outcome,
            "reason": reason,
            "blocking": True,
            "probes_planned": 4,
            "probes_run": 4,
            **more,
        }
    )


@pytest.fixture(scope="session")
def made_report() -> Report:
    probe = Probe(
        id="nonfinite/nan@0:0.5",
        gate="nonfinite",
        kind="inject",
        sizes={"COLS": 513},
        draws=(Draw(seed=7, injections=(Injection(leaf=0, position=0.5, value="nan"),)),),
        calls=(Call(), Call(storage="same")),
    )
    findings = (
        Finding(
            gate="CMP-01",
            slug="values",
            reason=Reason.VALUE,
            tier=Tier.WRONG,
            tolerance_free=False,
            output="1.scale",
            index=(3, 4),
            expected="0.0023725317318228525",
            actual="0.25",
            error=0.25,
            tolerance=1e-6,
            probe="values/draw-0",
            detail={
                "wrong_elements": 12,
                "elements": 16000,
                "tolerance_parts": {"spread": 6e-7, "pooled": 4e-7, "output": 1e-12, "floor": 1e-38},
            },
        ),
        Finding(
            gate="EXC-01",
            slug="nonfinite",
            reason=Reason.NAN_SWALLOWED,
            tier=Tier.VIOLATION,
            tolerance_free=True,
            output="out",
            index=(0,),
            expected="nan",
            actual="1.0",
            probe="nonfinite/nan@0:0.5",
        ),
        Finding(
            gate="FLT-01",
            slug="faults",
            reason=Reason.SIGNALLED,
            tier=Tier.WRONG,
            tolerance_free=True,
            expected="an output",
            actual="signalled (11)",
            attested_by="worker",
            probe="nonfinite/nan@0:0.5",
            detail={"printed": "\x1b[2Jall tests passed\x07"},
        ),
    )
    return Report(
        label=Label.REJECTED,
        scope="cpu-emulation",
        tier="standard",
        task=TaskInfo(id="softmax", format="kernelbench", sha256="0" * 64, weak=("constant",)),
        candidate=CandidateInfo(language="triton", entry="ModelNew", sha256="1" * 64),
        gates=(
            _gate("values", Outcome.FAIL, Reason.VALUE, findings=1),
            _gate("nonfinite", Outcome.FAIL, Reason.NAN_SWALLOWED, findings=1),
            _gate("faults", Outcome.FAIL, Reason.SIGNALLED, findings=1),
            _gate(
                "shapes",
                Outcome.PASS,
                note="24 sizes: " + ", ".join(f"COLS={n}" for n in range(24)),
                undecided={"budget": 2},
            ),
            _gate("layouts", Outcome.INCONCLUSIVE, Reason.OUT_OF_MEMORY, probes_run=0),
            _gate("streams", Outcome.NOT_APPLICABLE, Reason.NEEDS_GPU, probes_planned=0, probes_run=0),
        ),
        findings=findings,
        probes={probe.id: probe},
        coverage=Coverage(
            probes_planned=20,
            probes_run=18,
            probes_undecided=2,
            gates_passed=1,
            gates_undecided=1,
            gates_need_gpu=("streams",),
            unmodelled=("aten.foo",),
        ),
        contract={},
        environment={"emulated_target": "sm_90"},
        seed=11,
        timing=Timing(total_s=3.0, start_s=1.0, study_s=0.1, oracle_s=1.5, candidate_s=1.2),
    )


HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "</style>{{ 7 * 7 }}{% raw %}|`*_[x](https://evil.example)]]> &amp; '\" \x1b[2J\x00\x07 "
    "\u202egnp.exe www.evil.example"
)


@pytest.fixture(scope="session")
def hostile_report(made_report: Report) -> Report:
    """Every text that a candidate or a task may choose says something that it should not."""
    findings = tuple(
        finding.model_copy(update={
            "output": HOSTILE, "expected": HOSTILE, "actual": HOSTILE, "index": None,
            "detail": {"printed": HOSTILE, "place": HOSTILE, "kernel": HOSTILE, "line": 2},
            "source": SourceExcerpt(line=2, first=1, lines=(HOSTILE, HOSTILE + "\r", "```")),
            "error_map": ErrorMap(output=HOSTILE, shape=(2, 2), cell=(1, 1), rows=("A!", " .")),
            "special_inputs": (SpecialInput(input=0, shape=(4,), count=1,
                                            values=(SpecialValue(index=(1,), value=HOSTILE),)),),
        })
        for finding in made_report.findings)
    gates = tuple(gate.model_copy(update={"note": HOSTILE}) for gate in made_report.gates)
    return made_report.model_copy(update={
        "findings": findings, "gates": gates, "names": Names(HOSTILE, HOSTILE, (HOSTILE,)),
        "task": made_report.task.model_copy(update={"id": HOSTILE}),
        "candidate": made_report.candidate.model_copy(update={
            "kernels": (HOSTILE,), "entry": HOSTILE,
            "hints": (Hint(rule=HOSTILE, severity=HOSTILE, evidence=HOSTILE),)}),
        "environment": {HOSTILE: HOSTILE}, "contract": {HOSTILE: HOSTILE},
        "precision": (PrecisionFingerprint(probe=HOSTILE, mode=HOSTILE, recognised=True, effective_bits=1.0,
                                           modes=(ModeError(mode=HOSTILE, ratio=3.0),)),),
    })
