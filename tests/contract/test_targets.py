"""Targets of a contract are chips that kernels can be compiled for."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from assay.contract.model import TARGETS, Resources
from assay.run.emulation.targets import COMPILED_TARGETS


def test_a_contract_names_every_chip_that_can_be_compiled_for_and_no_other() -> None:
    assert set(TARGETS) == set(COMPILED_TARGETS)
    assert Resources(targets=TARGETS).targets == TARGETS


def test_an_unknown_chip_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ValidationError, match="no target `gfx943`; did you mean `gfx94"):
        Resources(targets=("gfx943",))
