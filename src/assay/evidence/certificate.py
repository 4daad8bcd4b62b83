"""Certificates: a signed statement that a candidate got the label `contract`, on what, and how much was tried.

The statement is an in-toto Statement v1 whose subject is the candidate's file, in a DSSE envelope. What is signed is
what this process itself has just seen: no certificate is ever made of a report that came from elsewhere.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.evidence.dsse import NotValid, compact
from assay.report.model import GateResult, Report
from assay.report.words import REASONS
from assay.vocabulary import Label, Outcome

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:assay:predicate:contract:v1"
CONFIDENCE = 0.95


class Refused(Exception):
    """No certificate for this verdict, with the reason in words."""


@dataclass(frozen=True)
class Sources:
    """The files of a verdict, as they were read.

    Attributes:
        reference: name and bytes of the reference.
        candidate: name and bytes of the candidate.
        contract: name and bytes of the contract; None for what the reference does.
    """

    reference: tuple[str, bytes]
    candidate: tuple[str, bytes]
    contract: tuple[str, bytes] | None = None


def read_sources(reference: Path, candidate: Path, contract: Path | None) -> Sources:
    """Read the files. Raises InputError."""
    return Sources(_file(reference, "the reference"), _file(candidate, "the candidate"),
                   _file(contract, "the contract") if contract is not None else None)


def _file(path: Path, what: str) -> tuple[str, bytes]:
    try:
        return path.name, path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {what}: {error.strerror or error}", str(path), "check the path") from None


def statement_of(report: Report, sources: Sources, *, now: datetime | None = None,
                 seed_drawn_here: bool = True) -> dict[str, Any]:
    """The statement about a verdict that was just made.

    Args:
        report: the verdict.
        sources: the files it is about.
        now: time of issue; None for this moment.
        seed_drawn_here: whether the seed was drawn in this run, so that nobody can have chosen it or known it
            while the candidate was written. Without it there is no statistical claim.

    Raises:
        Refused: the label is not `contract`, or the files are not those of the verdict.
    """
    if report.label is not Label.CONTRACT:
        raise Refused(_why_not(report))
    issued = (now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0)
    contract: dict[str, Any] = {"sha256": digest(compact(report.contract)), "clauses": report.contract}
    if sources.contract is not None:
        contract["file"] = _named(*sources.contract)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [_named(*sources.candidate)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "issued": issued.isoformat().replace("+00:00", "Z"),
            "label": report.label.value, "scope": report.scope, "tier": report.tier,
            "reference": {**_named(*sources.reference), "task": report.task.model_dump(mode="json")},
            "candidate": report.candidate.model_dump(mode="json", exclude={"hints"}),
            "contract": contract,
            "gates": [_gate(gate) for gate in report.gates],
            "coverage": report.coverage.model_dump(mode="json"),
            "exclusions": exclusions(report),
            "environment": report.environment,
            "seed": {"value": report.seed, "nonce": report.seed_nonce, "commitment": report.seed_commitment,
                     "drawnHere": seed_drawn_here},
            "statistics": statistics(report) if seed_drawn_here and report.seed_nonce else None,
            "report": {"sha256": digest(report.model_copy(update={"names": None}).to_json(timing=False).encode())},
        },
    }


def digest(data: bytes) -> str:
    """SHA-256 as hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _named(name: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": digest(data)}}


def _why_not(report: Report) -> str:
    if report.label is Label.REJECTED:
        reasons = dict.fromkeys(f"{f.slug}: {REASONS[f.reason]}" for f in report.findings)
        return f"the candidate is rejected ({'; '.join(list(reasons)[:4])})"
    names = [g.slug for g in report.gates if g.blocking and g.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)]
    return f"the candidate is only screened ({'undecided: ' + ', '.join(names) if names else 'not enough decided'})"


def _gate(gate: GateResult) -> dict[str, Any]:
    return {
        "id": gate.id, "slug": gate.slug, "outcome": gate.outcome.value,
        "reason": gate.reason.value if gate.reason else None, "blocking": gate.blocking, "note": gate.note,
        "probes": {"planned": gate.probes_planned, "run": gate.probes_run, "undecided": dict(gate.undecided)},
    }


def exclusions(report: Report) -> list[dict[str, Any]]:
    """Everything that the label does not speak of, with why: `what`, `why`, and `note` where there is one."""
    found = []
    for gate in report.gates:
        if gate.outcome is not Outcome.PASS:
            why = REASONS[gate.reason] if gate.reason else gate.outcome.value
            found.append({"what": f"gate {gate.slug}", "why": f"{gate.outcome.value}: {why}", "note": gate.note})
        elif not gate.blocking:
            found.append({"what": f"gate {gate.slug}", "why": "advisory by the contract", "note": gate.note})
        found += [{"what": f"{count} probes of {gate.slug}", "why": name, "note": None}
                  for name, count in sorted(gate.undecided.items()) if gate.outcome is Outcome.PASS]
    found += [{"what": f"operation {name}", "why": "the tolerance treats it conservatively", "note": None}
              for name in report.coverage.unmodelled]
    if report.scope == "cpu-emulation":
        found.append({"what": "GPU hardware", "why": "decided under device emulation on a CPU", "note": None})
    found += [{"what": "strength of the task", "why": f"a trivial function would pass: {name}", "note": None}
              for name in report.task.weak]
    return found


def bound(probes: int, confidence: float = CONFIDENCE) -> float:
    """Largest violation rate that `probes` passed probes leave open: 1 - (1 - confidence)^(1/probes).

    For probes that are one draw each of k kinds of input, the rate is the mean over the kinds: the chance that all
    pass is the product of (1 - p_i), which is at most (1 - mean p)^k.
    """
    return -math.expm1(math.log1p(-confidence) / probes)


def statistics(report: Report) -> dict[str, Any] | None:
    """The claim that random probes allow; None where none were decided."""
    values = next((gate for gate in report.gates if gate.slug == "values"), None)
    if values is None or values.outcome is not Outcome.PASS or values.probes_run < 1:
        return None
    k = values.probes_run
    return {
        "randomProbesPassed": k, "confidence": CONFIDENCE, "violationRateAtMost": bound(k),
        "ruleOfThree": min(1.0, 3 / k),
        "distribution": "the inputs of the gate `values`: draws of the task's own generator and its variations, each "
                        "weighted equally, at the sizes of that gate; drawn from a seed that was fixed and hidden "
                        "before the candidate ran",
    }


def check(statement: Mapping[str, Any], *, candidate: bytes | None = None, reference: bytes | None = None,
          contract: bytes | None = None, clauses: Mapping[str, Any] | None = None) -> list[str]:
    """What was checked of a statement whose signature holds, in words.

    Args:
        statement: the statement.
        candidate: bytes of the candidate's file; None leaves it out.
        reference: bytes of the reference's file; None leaves it out.
        contract: bytes of the contract's file; None leaves it out.
        clauses: what that contract says.

    Raises:
        NotValid: it is no certificate of ours, it contradicts itself, or a file is another one.
    """
    try:
        predicate = statement["predicate"]
        if statement["_type"] != STATEMENT_TYPE or statement["predicateType"] != PREDICATE_TYPE:
            raise NotValid("it is a statement of another kind")
        if predicate["label"] != Label.CONTRACT.value:
            raise NotValid(f"its label is {predicate['label']!r}, not `contract`")
        seed = predicate["seed"]
        committed = digest(f"{seed['value']}:{seed['nonce']}".encode())
        if seed["commitment"] and seed["commitment"] != committed:
            raise NotValid("its seed is not the one that was committed to")
        if predicate["contract"]["sha256"] != digest(compact(predicate["contract"]["clauses"])):
            raise NotValid("its contract is not the one that it names")
        open_gates = [g["slug"] for g in predicate["gates"]
                      if g["blocking"] and g["outcome"] not in ("pass", "not_applicable", "fail")]
        if open_gates:
            raise NotValid(f"it leaves blocking gates open: {', '.join(open_gates)}")
        said = [f"label `contract` on {predicate['scope']}, tier {predicate['tier']}, issued {predicate['issued']}"]
        subjects = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
        if candidate is not None:
            if digest(candidate) not in subjects.values():
                raise NotValid("the candidate is not the certified file")
            said.append("the candidate is the certified file")
        if reference is not None:
            if digest(reference) != predicate["reference"]["digest"]["sha256"]:
                raise NotValid("the reference is not the one that was verified against")
            said.append("the reference is the one that was verified against")
        if contract is not None:
            same = digest(compact(clauses)) == predicate["contract"]["sha256"] if clauses is not None else False
            file = predicate["contract"].get("file")
            if not same and (file is None or file["digest"]["sha256"] != digest(contract)):
                raise NotValid("the contract is not the one that was verified")
            said.append("the contract is the one that was verified")
    except (KeyError, TypeError, AttributeError, IndexError) as fault:
        raise NotValid(f"it is no certificate of ours ({fault})") from None
    return said


def differences(report: Report, other: Report) -> list[str]:
    """In what a report that was given differs from one of the same seed that was made here, as far as it decides."""
    pairs: list[tuple[str, Any, Any]] = [
        ("label", other.label.value, report.label.value), ("scope", other.scope, report.scope),
        ("tier", other.tier, report.tier), ("reference", other.task.sha256, report.task.sha256),
        ("candidate", other.candidate.sha256, report.candidate.sha256), ("contract", other.contract, report.contract),
        ("seed", other.seed, report.seed),
    ]
    found = [name for name, theirs, ours in pairs if theirs != ours]
    ours = {gate.slug: gate for gate in report.gates}
    theirs = {gate.slug: gate for gate in other.gates}
    for slug in dict.fromkeys([*theirs, *ours]):
        a, b = theirs.get(slug), ours.get(slug)
        if a is None or b is None or (a.outcome, a.blocking) != (b.outcome, b.blocking):
            found.append(f"gate {slug}")
    return found
