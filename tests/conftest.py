"""Shared by all tests: one warm parent for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assay.run.process import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as warm:
        yield warm
