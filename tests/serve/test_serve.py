"""The service over loopback: verdicts, the same answer twice, limits, tokens, cancelling, draining."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import httpx
import pytest

from assay.errors import InputError
from assay.serve import Client, ServiceError, Settings
from assay.serve.settings import Tenant, read_tenants

from .conftest import OTHER, TOKEN, Service, start

SOFTMAX = Path(__file__).resolve().parents[2] / "examples" / "softmax"
REFERENCE = (SOFTMAX / "reference.py").read_text()
RIGHT = (SOFTMAX / "right.py").read_text()
WRONG = (SOFTMAX / "wrong_padding_lanes.py").read_text()
ENDLESS = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        while True: pass\n"


def client(service: Service, token: str = TOKEN) -> Client:
    return Client(service.url, token, patience=300.0)


def raw(service: Service, token: str | None = TOKEN) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=service.url, headers=headers, timeout=120.0)


def test_right_and_wrong_get_their_verdicts_and_the_same_ones_again(service: Service) -> None:
    with client(service) as asked:
        right, wrong = (asked.verify(REFERENCE, source, tier="quick") for source in (RIGHT, WRONG))
        assert (right.label, right.status, right.at_fault) == ("contract", "done", None)
        assert (wrong.label, wrong.stage) == ("rejected", "rejected")
        assert right.reward is not None
        assert wrong.reward is not None
        assert right.reward > wrong.reward
        assert asked.verify(REFERENCE, WRONG, tier="quick") == wrong
        told = asked.verdict(wrong.id, report=True)
        assert told.report is not None
        assert told.report["label"] == "rejected"
        assert told.report["seed_nonce"], "the seed was no secret"


def test_a_tenant_is_told_no_more_than_it_may_know(service: Service) -> None:
    with client(service) as asked, client(service, OTHER) as trainer:
        full = asked.verify(REFERENCE, WRONG, tier="quick", redaction="none")
        kinds = trainer.verify(REFERENCE, WRONG, tier="quick", redaction="none")
        assert kinds.id == full.id
        assert kinds.label == full.label
        assert "expected" in (full.feedback or "")
        assert "expected" not in (kinds.feedback or "")
        assert trainer.verdict(full.id, report=True).report is None
        nothing = asked.verify(REFERENCE, WRONG, tier="quick", redaction="full")
        assert nothing.gates is None
        assert "What is wrong" not in (nothing.feedback or "")


@pytest.mark.parametrize("token", [None, "a-token-of-nobody", "é"])
def test_nobody_is_answered_without_a_token(service: Service, token: str | None) -> None:
    headers = {"Authorization": f"Bearer {token}".encode()} if token is not None else {}
    for method, path in (("POST", "/v1/verdicts"), ("GET", "/v1/overview"), ("GET", "/metrics"), ("POST", "/evaluate")):
        answer = httpx.request(method, service.url + path, headers=headers, json={"reference": "x", "candidate": "y"})
        assert answer.status_code == 401, (method, path)


def test_what_is_malformed_is_refused_in_one_line(service: Service) -> None:
    with raw(service) as asked:
        broken = asked.post("/v1/verdicts", json={"reference": "def f(:", "candidate": WRONG})
        assert broken.status_code == 422
        assert "syntax" in broken.json()["detail"].lower()
        assert "\n" not in broken.json()["detail"]
        unknown = asked.post("/v1/verdicts", json={"reference": REFERENCE, "candidate": WRONG, "teir": "quick"})
        assert unknown.status_code == 422
        assert unknown.json()["detail"][0]["where"].endswith("teir")
        assert WRONG[:60] not in unknown.text, "it sends back what it was sent"
        clause = asked.post("/v1/verdicts", json={"reference": REFERENCE, "candidate": WRONG,
                                                  "contract": {"determinsm": "none"}})
        assert clause.status_code == 422
        assert "determinism" in clause.json()["detail"]
        for body in (b"{", b"[]", b"\xff\xfe", b""):
            assert asked.post("/v1/verdicts", content=body).status_code == 422
        assert asked.get("/v1/verdicts/none").status_code == 404


def test_a_candidate_that_does_not_parse_is_a_verdict(service: Service) -> None:
    with client(service) as asked:
        told = asked.verify(REFERENCE, "def broken(:\n", tier="quick")
    assert (told.label, told.stage) == ("rejected", "never_ran")


def test_large_bodies_are_refused_however_they_are_announced(service: Service) -> None:
    large = json.dumps({"reference": "x" * (1 << 20), "candidate": "y"}).encode()

    def pieces():  # type: ignore[no-untyped-def]
        yield from (large[i:i + 65536] for i in range(0, len(large), 65536))

    with raw(service) as asked:
        assert asked.post("/v1/verdicts", content=large).status_code == 413
        assert asked.post("/v1/verdicts", content=pieces()).status_code == 413


def test_a_full_queue_pushes_back_and_cancelling_makes_room(service: Service) -> None:
    def endless(n: int) -> dict[str, object]:
        return {"reference": REFERENCE, "candidate": ENDLESS + f"# {n}\n", "tier": "quick", "timeout": 120}

    with raw(service) as asked:
        first, second = (asked.post("/v1/verdicts", json=endless(n)) for n in (1, 2))
        assert (first.status_code, second.status_code) == (202, 202)
        third = asked.post("/v1/verdicts", json=endless(3))
        assert third.status_code == 429
        assert int(third.headers["Retry-After"]) > 0
        assert asked.post("/v1/verdicts", json=endless(1)).status_code == 202, "what is known needs no room"
        with raw(service, OTHER) as other:
            assert other.delete(f"/v1/verdicts/{first.json()['id']}").status_code == 409, "it is not theirs"
        for told in (second, first):
            assert asked.delete(f"/v1/verdicts/{told.json()['id']}").json()["status"] == "cancelled"
        ids = {told.json()["id"] for told in (first, second)}
        for _ in range(200):
            seen = asked.get("/v1/overview").json()
            if not seen["running"] and not seen["waiting"]:
                break
            time.sleep(0.1)
        assert not seen["running"]
        assert all(asked.get(f"/v1/verdicts/{id}").json()["status"] == "cancelled" for id in ids)
    with client(service) as again:
        assert again.verify(REFERENCE, RIGHT, tier="quick").label == "contract"


def test_a_share_of_the_queue_is_a_tenants_own(service: Service) -> None:
    with raw(service, OTHER) as asked:
        one, two = (asked.post("/v1/verdicts", json={
            "reference": REFERENCE, "candidate": ENDLESS + f"# mine {n}\n", "timeout": 120}) for n in (1, 2))
        assert (one.status_code, two.status_code) == (202, 429)
        assert asked.delete(f"/v1/verdicts/{one.json()['id']}").status_code == 200


def test_kernel_farms_are_answered_in_their_own_words(service: Service) -> None:
    with raw(service) as asked:
        body = {"task_id": "t-7", "reference_code": REFERENCE, "kernel_code": WRONG, "entry_point": "Model",
                "num_correct_trials": 5, "timeout": 120, "backend": "triton", "num_perf_trials": 100}
        wrong = asked.post("/evaluate", json=body).json()
        right = asked.post("/evaluate", json={**body, "kernel_code": RIGHT}).json()
    assert (wrong["task_id"], wrong["status"]) == ("t-7", "completed")
    assert (wrong["compiled"], wrong["correctness"]) == (True, False)
    assert wrong["error_message"]
    assert (right["correctness"], right["speedup"], right["error_message"]) == (True, None, None)


def test_metrics_count_what_happened(service: Service) -> None:
    with raw(service) as asked:
        asked.post("/evaluate", json={"reference_code": REFERENCE, "kernel_code": RIGHT})
        text = asked.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    assert float(lines['assay_verdicts_total{kind="verify",label="contract"}']) >= 1
    assert float(lines["assay_judges"]) == 1
    assert any(name.startswith("assay_requests_total") and "/evaluate" in name for name in lines)


def test_a_service_told_to_stop_ends_what_it_has_taken(tmp_path: Path) -> None:
    running = start(tmp_path, "--drain", "120")
    told: list[str | None] = []
    with client(running) as asked:
        first = asked.submit(REFERENCE, WRONG, tier="quick")
        thread = threading.Thread(target=lambda: told.append(asked.verdict(first.id, wait=120.0).label))
        thread.start()
        with raw(running) as other:
            while other.get(f"/v1/verdicts/{first.id}").json()["status"] == "queued":
                time.sleep(0.05)
            running.process.terminate()
            for _ in range(200):
                answer = other.post("/v1/verdicts", json={"reference": REFERENCE, "candidate": RIGHT})
                if answer.status_code == 503:
                    break
                time.sleep(0.05)
            assert answer.status_code == 503
        thread.join(180)
    assert told == ["rejected"]
    assert running.process.wait(60) == 0


def test_tokens_are_read_and_mistakes_named(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text('[tenants.a]\ntoken = "sixteen-letters-x"\nqueue = 3\n')
    (tenant,) = read_tenants(file)
    settings = Settings(tenants=(tenant,))
    assert settings.tenant("sixteen-letters-x") == tenant
    assert settings.tenant("sixteen-letters-y") is None
    assert settings.tenant(None) is None
    assert Settings().tenant(None) == Tenant("anyone")
    for text, words in (("", "tenants"), ("[tenants.a]\ntoken = 'short'", "short"),
                        ("[tenants.a]\ntokn = 'x'", "token"),
                        ("[tenants.a]\n", "one of"), ("[tenants", "TOML"),
                        ("[tenants.a]\ntoken = 'sixteen-letters-x'\nredaction = 'kind'", "kinds")):
        file.write_text(text)
        with pytest.raises(InputError, match=words):
            read_tenants(file)
    with pytest.raises(InputError, match="cannot read"):
        read_tenants(tmp_path / "missing.toml")


def test_a_refused_request_is_an_error_of_the_client(service: Service) -> None:
    with client(service) as asked, pytest.raises(ServiceError, match="422"):
        asked.verify("def f(:", RIGHT)
