"""Certificates: what is signed, what is refused, and that nothing of it can be changed unseen."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.evidence import dsse
from assay.evidence.certificate import Refused, Sources, bound, check, differences, exclusions, statement_of, statistics
from assay.evidence.dsse import NotValid
from assay.report.model import CandidateInfo, Coverage, GateResult, Report, TaskInfo, Timing
from assay.seeds import draw
from assay.vocabulary import Label, Outcome, Reason

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
SOURCES = Sources(("reference.py", b"class Model: ..."), ("kernel.py", b"class ModelNew: ..."))
DRAWN = draw(None)


def gate(slug: str, outcome: Outcome = Outcome.PASS, reason: Reason | None = None, **more: Any) -> GateResult:
    return GateResult(id=f"X-{slug}", slug=slug, outcome=outcome, reason=reason,
                      **{"blocking": True, "probes_planned": 34, "probes_run": 34, **more})


def verdict(*gates: GateResult, label: Label = Label.CONTRACT, **more: Any) -> Report:
    return Report(
        label=label, scope="cpu-emulation", tier="standard",
        task=TaskInfo(id="t", format="kernelbench", sha256="a" * 64),
        candidate=CandidateInfo(language="triton", entry="ModelNew", sha256="b" * 64),
        gates=gates or (gate("values"), gate("streams", Outcome.NOT_APPLICABLE, Reason.NEEDS_GPU)), findings=(),
        coverage=Coverage(probes_planned=34, probes_run=34, probes_undecided=0, gates_passed=1, gates_undecided=0),
        contract={"determinism": "bitwise"}, environment={"torch": "2.13"}, timing=Timing(
            total_s=1, start_s=0, study_s=0, oracle_s=0, candidate_s=0),
        **{"seed": DRAWN.value, "seed_commitment": DRAWN.commitment, "seed_nonce": DRAWN.nonce, **more})


ENVELOPE = dsse.sign(statement_of(verdict(), SOURCES, now=datetime(2026, 1, 2, tzinfo=UTC)), KEY)


def test_a_certificate_opens_and_says_what_it_is_about() -> None:
    statement = dsse.opened(ENVELOPE.encode(), KEY.public_key())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"][0]["name"] == "kernel.py"
    predicate = statement["predicate"]
    assert predicate["issued"] == "2026-01-02T00:00:00Z"
    assert predicate["statistics"]["randomProbesPassed"] == 34
    said = check(statement, candidate=SOURCES.candidate[1], reference=SOURCES.reference[1])
    assert "the candidate is the certified file" in said


def test_the_envelope_is_plain_dsse() -> None:
    """Checked as any other tool would: the signature is over the pre-authentication encoding."""
    data = json.loads(ENVELOPE)
    assert data["payloadType"] == "application/vnd.in-toto+json"
    body, kind = base64.b64decode(data["payload"]), data["payloadType"].encode()
    signed = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(body)).encode(), body])
    KEY.public_key().verify(base64.b64decode(data["signatures"][0]["sig"]), signed)
    # the example of the DSSE specification
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(ENVELOPE) - 1), st.integers(1, 255))
def test_no_byte_can_be_changed(position: int, change: int) -> None:
    data = bytearray(ENVELOPE.encode())
    data[position] ^= change
    with pytest.raises(NotValid):
        dsse.opened(bytes(data), KEY.public_key())


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(ENVELOPE)), st.binary(min_size=1, max_size=4))
def test_no_byte_can_be_added(position: int, more: bytes) -> None:
    data = ENVELOPE.encode()
    with pytest.raises(NotValid):
        dsse.opened(data[:position] + more + data[position:], KEY.public_key())


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(ENVELOPE) - 1), st.integers(1, 50))
def test_no_byte_can_be_removed(position: int, count: int) -> None:
    data = ENVELOPE.encode()
    with pytest.raises(NotValid):
        dsse.opened(data[:position] + data[position + count:], KEY.public_key())


def test_another_key_or_a_rewritten_envelope_is_refused() -> None:
    with pytest.raises(NotValid, match="names another key"):
        dsse.opened(ENVELOPE.encode(), OTHER.public_key())
    for rewritten in (json.dumps(json.loads(ENVELOPE)), ENVELOPE.replace("\n", "\r\n"),
                      json.dumps({**json.loads(ENVELOPE), "more": 1}, indent=1) + "\n"):
        with pytest.raises(NotValid, match="changed after it was written"):
            dsse.opened(rewritten.encode(), KEY.public_key())
    unsigned = {**json.loads(ENVELOPE), "signatures": []}
    with pytest.raises(NotValid, match="no signed envelope"):
        dsse.opened(json.dumps(unsigned).encode(), KEY.public_key())


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"null", b"\xff", b"[" * 100_000, b"{" * 100_000,
                                  b'{"payload": 3, "payloadType": "x", "signatures": [{"sig": "", "keyid": ""}]}'])
def test_what_is_no_envelope_is_told(text: bytes) -> None:
    with pytest.raises(NotValid):
        dsse.opened(text, KEY.public_key())


def test_other_files_are_not_the_certified_ones() -> None:
    statement = dsse.opened(ENVELOPE.encode(), KEY.public_key())
    for name in ("candidate", "reference"):
        with pytest.raises(NotValid, match=name):
            check(statement, **{name: b"another"})


def test_the_contract_is_compared_by_its_clauses_or_its_file() -> None:
    file = b"determinism = 'bitwise'\n"
    statement = statement_of(verdict(), Sources(*(SOURCES.reference, SOURCES.candidate), ("c.toml", file)))
    assert check(statement, contract=file)[-1] == "the contract is the one that was verified"
    assert check(statement, contract=b"# a comment\n" + file, clauses={"determinism": "bitwise"})
    with pytest.raises(NotValid, match="contract"):
        check(statement, contract=b"determinism = 'none'\n", clauses={"determinism": "none"})


def changed(path: str, value: Any) -> dict[str, Any]:
    statement: dict[str, Any] = json.loads(json.dumps(statement_of(verdict(), SOURCES)))
    place: Any = statement
    *keys, last = path.split(".")
    for key in keys:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[last] = value
    return statement


@pytest.mark.parametrize(("path", "value", "words"), [
    ("predicateType", "urn:other", "another kind"), ("predicate.label", "screened", "screened"),
    ("predicate.seed.value", 1, "seed"), ("predicate.contract.clauses", {}, "contract"),
    ("predicate.gates.0.outcome", "inconclusive", "open"), ("predicate", None, "no certificate"),
    ("subject", [], "candidate"),
])
def test_a_signed_statement_that_contradicts_itself_is_no_certificate(path: str, value: Any, words: str) -> None:
    with pytest.raises(NotValid, match=words):
        check(changed(path, value), candidate=SOURCES.candidate[1])


@pytest.mark.parametrize("label", [Label.REJECTED, Label.SCREENED])
def test_only_a_contract_is_certified(label: Label) -> None:
    open_gate = gate("shapes", Outcome.INCONCLUSIVE, Reason.BUDGET)
    with pytest.raises(Refused, match=label.value):
        statement_of(verdict(gate("values"), open_gate, label=label), SOURCES)


def test_a_seed_that_was_given_carries_no_statistical_claim() -> None:
    assert statement_of(verdict(), SOURCES)["predicate"]["statistics"] is not None
    assert statement_of(verdict(), SOURCES, seed_drawn_here=False)["predicate"]["statistics"] is None
    given_seed = draw(7)
    report = verdict(seed=given_seed.value, seed_commitment=given_seed.commitment, seed_nonce="")
    assert statement_of(report, SOURCES)["predicate"]["statistics"] is None


@given(st.integers(1, 10_000))
def test_the_bound_is_exact_and_below_the_rule_of_three(k: int) -> None:
    assert math.isclose((1 - bound(k)) ** k, 0.05, rel_tol=1e-9)
    assert bound(k) < 3 / k
    if k >= 100:
        assert bound(k) > 0.98 * 3 / k


def test_statistics_need_the_gate_that_draws() -> None:
    assert statistics(verdict(gate("shapes"))) is None
    assert statistics(verdict(gate("values", probes_run=0))) is None
    found = statistics(verdict(gate("values", probes_run=3)))
    assert found is not None
    assert found["ruleOfThree"] == 1.0


def test_everything_that_is_no_pass_is_an_exclusion() -> None:
    report = verdict(gate("values", undecided={"budget": 2}), gate("nonfinite", blocking=False),
                     gate("streams", Outcome.NOT_APPLICABLE, Reason.NEEDS_GPU))
    said = {item["what"]: item["why"] for item in exclusions(report)}
    assert said == {"2 probes of values": "budget", "gate nonfinite": "advisory by the contract",
                    "gate streams": "not_applicable: needs a GPU",
                    "GPU hardware": "decided under device emulation on a CPU"}


def test_reports_are_compared_by_what_they_decide() -> None:
    ours = verdict()
    assert differences(ours, ours.model_copy(update={"timing": ours.timing})) == []
    edited = ours.model_copy(update={"gates": (gate("values", Outcome.FAIL, Reason.VALUE), ours.gates[1])})
    assert differences(ours, edited) == ["gate values"]
    assert differences(ours, edited.model_copy(update={"label": Label.REJECTED})) == ["label", "gate values"]
    assert differences(ours, ours.model_copy(update={"gates": ours.gates[:1]})) == ["gate streams"]


def test_keys_are_made_for_their_owner_and_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = tmp_path / "k.pem", tmp_path / "k.pub.pem"
    name = dsse.make_keys(private, public)
    assert private.stat().st_mode & 0o777 == 0o600
    assert dsse.key_id(dsse.public_key(public)) == name == dsse.key_id(dsse.private_key(private).public_key())
    with pytest.raises(InputError, match="never replaced"):
        dsse.make_keys(private, public)
    with pytest.raises(InputError, match="no public key"):
        dsse.public_key(private)
    monkeypatch.setenv("ASSAY_KEY_PASSWORD", "open sesame")
    dsse.make_keys(tmp_path / "l.pem", tmp_path / "l.pub.pem")
    assert b"ENCRYPTED" in (tmp_path / "l.pem").read_bytes()
    assert dsse.private_key(private)
    assert dsse.private_key(tmp_path / "l.pem")
    monkeypatch.delenv("ASSAY_KEY_PASSWORD")
    with pytest.raises(InputError, match="password"):
        dsse.private_key(tmp_path / "l.pem")


