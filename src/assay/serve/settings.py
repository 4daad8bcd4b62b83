"""What a service is started with, and who may ask it."""

from __future__ import annotations

import hashlib
import hmac
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.accept import nearest
from assay.contract.prompt import Redaction
from assay.errors import InputError

REDACTIONS: tuple[Redaction, ...] = ("full", "kinds", "none")
"""The most is kept back first."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_CLAUSES = ("token", "token_sha256", "queue", "redaction")


@dataclass(frozen=True)
class Tenant:
    """One who may ask.

    Attributes:
        name: for metrics and for who may cancel what.
        token_sha256: SHA-256 of the bearer token, as hexadecimal; empty for the tenant of a service without tokens.
        queue: verdicts that may wait or run for this tenant at once; 0 for as many as the service takes.
        redaction: the most that this tenant is told: `none` everything, `kinds` gates and kinds of fault, `full`
            the decision alone.
    """

    name: str
    token_sha256: str = ""
    queue: int = 0
    redaction: Redaction = "none"


@dataclass(frozen=True)
class Settings:
    """How a service works.

    Attributes:
        workers: judges; None for as many as the machine takes.
        queue: verdicts that may wait; more are refused with 429.
        body_bytes: largest request.
        results: verdicts kept for whoever asks again.
        result_bytes: bytes of reports kept for that.
        seconds: most that one verdict may take, whatever a request says.
        device: `auto`, `cpu` or `cuda`.
        sandbox: how candidates are confined.
        gpus: values of `CUDA_VISIBLE_DEVICES` that judges take in turn.
        drain_s: seconds that a stopping service gives what it has accepted.
        tenants: who may ask; empty lets everybody who reaches it.
    """

    workers: int | None = None
    queue: int = 256
    body_bytes: int = 1 << 20
    results: int = 4096
    result_bytes: int = 256 << 20
    seconds: float = 600.0
    device: str = "auto"
    sandbox: str = "auto"
    gpus: tuple[str, ...] = ()
    drain_s: float = 60.0
    tenants: tuple[Tenant, ...] = field(default_factory=tuple)

    def tenant(self, token: str | None) -> Tenant | None:
        """Whose token it is; None for nobody's."""
        if not self.tenants:
            return Tenant("anyone")
        digest = hashlib.sha256((token or "").encode("utf-8", "surrogatepass")).hexdigest()
        found = None
        for tenant in self.tenants:
            # every one is compared, so that the time taken tells nothing
            if hmac.compare_digest(digest, tenant.token_sha256) and token:
                found = tenant
        return found


def read_tenants(path: Path) -> tuple[Tenant, ...]:
    """Tenants from TOML: a table `[tenants.NAME]` each, with `token` or `token_sha256`, `queue` and `redaction`.

    Raises:
        InputError: the file is not readable, not TOML, or has a clause that is not known.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the tokens: {error.strerror}", str(path), "check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not TOML: {error}", str(path), "write a table [tenants.NAME] with a token each") from None
    found = data.get("tenants")
    if not isinstance(found, dict) or not found or set(data) != {"tenants"}:
        raise InputError("no tables of tenants alone", str(path), "write a table [tenants.NAME] with a token each")
    return tuple(_tenant(name, clauses, f"{path}: tenants.{name}") for name, clauses in found.items())


def _tenant(name: str, clauses: Any, where: str) -> Tenant:
    if not isinstance(clauses, dict):
        raise InputError("not a table", where, "give it a token")
    for clause in clauses:
        if clause not in _CLAUSES:
            raise InputError(f"unknown clause `{clause}`{nearest(clause, _CLAUSES)}", where,
                             f"use {', '.join(_CLAUSES)}")
    token, digest = clauses.get("token"), clauses.get("token_sha256")
    if (token is None) == (digest is None):
        raise InputError("needs one of `token` and `token_sha256`", where, "a token of 16 characters or more")
    if token is not None:
        if not isinstance(token, str) or len(token) < 16:
            raise InputError("the token is too short", where, "use 16 characters or more")
        digest = hashlib.sha256(token.encode()).hexdigest()
    if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise InputError("`token_sha256` is no SHA-256 in hexadecimal", where, "64 digits of 0-9 and a-f")
    queue, redaction = clauses.get("queue", 0), clauses.get("redaction", "none")
    if type(queue) is not int or queue < 0:
        raise InputError("`queue` is no count", where, "use 0 for no limit of its own")
    if redaction not in REDACTIONS:
        raise InputError(f"unknown redaction `{redaction}`{nearest(str(redaction), REDACTIONS)}", where,
                         f"use {', '.join(REDACTIONS)}")
    return Tenant(name, digest, queue, redaction)
