"""A real service in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

TOKEN = "a-token-of-one-team"
OTHER = "a-token-of-another-team"
TOKENS = f"""
[tenants.team]
token = "{TOKEN}"

[tenants.trainer]
token = "{OTHER}"
queue = 1
redaction = "kinds"
"""


@dataclass(frozen=True)
class Service:
    url: str
    process: subprocess.Popen[bytes]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


def start(folder: Path, *options: str) -> Service:
    """A service at a free port, ready."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    tokens = folder / "tokens.toml"
    tokens.write_text(TOKENS)
    process = subprocess.Popen(
        [sys.executable, "-m", "assay", "serve", "--port", str(port), "--tokens", str(tokens), "--device", "cpu",
         "--workers", "1", *options],
        cwd=folder, env={**os.environ, "ASSAY_CACHE_DIR": ""}, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            if httpx.get(f"{url}/health", timeout=5.0).status_code == 200:
                return Service(url, process)
        except httpx.TransportError:
            pass
        assert process.poll() is None, "the service ended"
        time.sleep(0.1)
    process.kill()
    raise AssertionError("the service did not come up")


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = start(tmp_path_factory.mktemp("service"), "--queue", "1", "--drain", "5")
    yield running
    running.process.kill()
    running.process.wait()
