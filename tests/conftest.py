"""Shared by all tests: one warm parent for the whole session."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from assay.run.process import Zygote

# no test reads what another run left
os.environ["ASSAY_CACHE_DIR"] = ""


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as warm:
        yield warm
