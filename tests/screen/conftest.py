"""One warm parent for the tests of the screen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assay.run.process import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as started:
        yield started
