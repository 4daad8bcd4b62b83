"""Shared by all tests: one warm parent for the whole session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from assay.run.process import Zygote

# no test reads what another run left, or leaves something where it is run
os.environ["ASSAY_CACHE_DIR"] = ""
os.environ["ASSAY_STORE"] = ""


def pytest_configure(config: pytest.Config) -> None:
    """A job in the background starts with interrupts ignored, and hands that on to whatever it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as warm:
        yield warm
