"""A client of the service."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

import httpx

from assay.serve.model import Verdict, VerdictRequest

POLL_SECONDS = 20.0
RETRY_SECONDS = 2.0


class ServiceError(RuntimeError):
    """The service refused: `status` is its HTTP status, the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Client:
    """Asks a service for verdicts; waits where its queue is full and asks again where a connection breaks.

    Asking twice is safe: the same request is the same verdict.

    Args:
        url: where the service is, such as `http://127.0.0.1:8765`.
        token: bearer token; None where it wants none.
        patience: seconds after which a verdict is given up.
        transport: how requests travel; None for the network.
    """

    def __init__(self, url: str, token: str | None = None, *, patience: float = 900.0,
                 transport: httpx.BaseTransport | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._patience = patience
        self._http = httpx.Client(base_url=url, headers=headers, timeout=POLL_SECONDS + 40.0, transport=transport)

    def submit(self, reference: str, candidate: str, **options: Any) -> Verdict:
        """Hand in a candidate without waiting for its verdict; options as in VerdictRequest.

        Raises:
            ServiceError: the request is refused, or the queue stays full.
        """
        request = VerdictRequest(reference=reference, candidate=candidate, **options)
        return self._until(lambda: self._http.post("/v1/verdicts", json=request.model_dump(exclude_none=True)))

    def verdict(self, id: str, *, wait: float = POLL_SECONDS, report: bool = False) -> Verdict:
        """Where a verdict stands after at most `wait` seconds. Raises ServiceError."""
        return self._until(lambda: self._http.get(f"/v1/verdicts/{id}", params={"wait": wait, "report": report}))

    def verify(self, reference: str, candidate: str, **options: Any) -> Verdict:
        """Decide a candidate and wait for it.

        Raises:
            ServiceError: the request is refused.
            TimeoutError: it took longer than this client's patience.
        """
        deadline = time.monotonic() + self._patience
        told = self.submit(reference, candidate, **{"wait": POLL_SECONDS, **options})
        while told.status in ("queued", "running"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no verdict on {told.id} within {self._patience:.0f} s")
            try:
                told = self.verdict(told.id)
            except ServiceError as error:
                if error.status != 404:
                    raise
                # forgotten, as after a restart
                told = self.submit(reference, candidate, **{"wait": POLL_SECONDS, **options})
        return told

    def cancel(self, id: str) -> bool:
        """Take a request back; False when there was nothing to cancel."""
        return self._http.delete(f"/v1/verdicts/{id}").status_code == 200

    def _until(self, ask: Any) -> Verdict:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                answer = ask()
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)
                continue
            if answer.status_code in (429, 503) and time.monotonic() < deadline:
                time.sleep(float(answer.headers.get("Retry-After", RETRY_SECONDS)))
                continue
            if answer.status_code >= 400:
                raise ServiceError(answer.status_code, str(answer.json().get("detail", answer.text))[:2000])
            return Verdict.model_validate(answer.json())

    def close(self) -> None:
        """End its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
