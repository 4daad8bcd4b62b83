"""`assay.toml`: what a repository says about the kernels that it holds."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from assay.contract.model import explain_fault
from assay.errors import InputError

CONFIG_NAME = "assay.toml"
SETTINGS_VERSION: Literal[1] = 1
M = TypeVar("M", bound=BaseModel)


class Table(BaseModel):
    """A frozen table; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PairTable(Table):
    """One or many pairs of a reference and candidates."""

    reference: str
    """Path of the reference, or a glob; every file that it matches is a task."""
    candidate: str
    """Path or glob of the candidates of a task; `{dir}` is the folder of its reference, `{stem}` its name
    without `.py`."""
    contract: str | None = None
    """Path of the contract, with the same placeholders; it has to exist. None: what the reference does."""
    release: bool = False
    """Whether these candidates are about to be released: they always get the full battery."""
    exclude: tuple[str, ...] = ()
    """Globs of candidates that these patterns match and that are none."""

    @field_validator("reference", "candidate", "contract")
    @classmethod
    def _inside(cls, value: str | None) -> str | None:
        if value is not None and (value.startswith(("/", "~")) or ".." in Path(value).parts or not value.strip()):
            raise ValueError(f"`{value}` is no path inside the repository; write it relative to {CONFIG_NAME}")
        return value


class Battery(Table):
    """How candidates are verified."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where: `cpu` is device emulation."""
    tier: Literal["quick", "standard", "deep"] = "standard"
    """Effort."""
    emulate: str = "sm_90"
    """Device that emulation answers as."""
    sandbox: Literal["auto", "strict", "off"] = "auto"
    """How candidates are confined."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds for one verdict; None for the tier's own."""
    seed: int | None = Field(default=None, ge=0, lt=1 << 63)
    """Seed of the probes. None draws one that nobody knows beforehand, which is what a gate wants."""


class Sample(Table):
    """How many of the candidates that are not released get the full battery."""

    share: float = Field(default=0.25, ge=0, le=1)
    """Share of them, rounded up."""
    seed: str = ""
    """Who is drawn follows from this text and from the content of each pair."""


class Settings(Table):
    """The whole file."""

    schema_version: Literal[1] = SETTINGS_VERSION
    """Version of this format."""
    policy: str | None = None
    """Path of the policy; None for the default one."""
    pairs: tuple[PairTable, ...] = Field(min_length=1)
    """Where the pairs are. A pair that two tables name belongs to the later one."""
    battery: Battery = Field(default_factory=Battery)
    """How candidates are verified."""
    sample: Sample = Field(default_factory=Sample)
    """Who gets the full battery."""


def load_settings(path: Path) -> Settings:
    """Read an `assay.toml`. Raises InputError naming the place, the wrong key and the nearest right one."""
    return read_table(Settings, path, "settings")


def read_table(model: type[M], path: Path, what: str) -> M:
    """A TOML file as a model.

    Args:
        model: the model.
        path: the file.
        what: what messages call it.

    Raises:
        InputError: missing, unreadable, not TOML, or not what the model wants.
    """
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"no such file for the {what}", str(path), "check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the {what}: {error}", str(path), "check the file") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML: {error}", str(path), "correct the syntax") from None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(explain_fault(model, error), str(path), f"correct the {what}") from None
