"""The contract: what a candidate promises, as data a person can read, edit and pin."""

from __future__ import annotations

import difflib
import tomllib
import types
from pathlib import Path
from typing import Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from assay.errors import InputError

CONTRACT_VERSION: Literal[1] = 1


SLUGS = (
    "values", "gradients", "shapes", "reduction_order", "repeatability", "order_sensitive", "dtypes",
    "accumulation", "nonfinite", "subnormals", "residency", "resources", "output_aliasing", "input_mutation",
    "statelessness", "layouts", "bounds", "initialization", "streams", "schedules", "integrity", "provenance",
    "faults", "batch_invariance",
)
"""Names of the gates that a policy may list, in the order of the battery."""


class Clause(BaseModel):
    """A frozen table of the contract; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SizeDomain(Clause):
    """The values one named size of the task may take."""

    minimum: int | None = None
    """Smallest admitted value."""
    maximum: int | None = None
    """Largest admitted value."""
    multiple_of: int = 1
    """The size is always a multiple of this."""
    fixed: bool = False
    """True when the size is never varied."""
    tied: tuple[str, ...] = ()
    """Sizes that always take the same value as this one."""


class InputDomain(Clause):
    """What one tensor input may be."""

    dtypes: tuple[str, ...] = ()
    """Admitted dtypes; empty means the dtype the task uses."""
    axes: tuple[str, ...] = ()
    """Its dimensions by the sizes that they follow, such as `["BATCH", "2*DIM"]`; for the reader."""
    structure: tuple[str, ...] | None = None
    """Structure of the values, such as `["upper_triangular"]`; None means what inference finds, `[]` none."""
    low: float | None = None
    """Smallest admitted value; None means what inference finds."""
    high: float | None = None
    """Largest admitted value; None means what inference finds."""
    layouts: tuple[str, ...] | None = None
    """Admitted layouts; None means every layout that the reference accepts."""

    @field_validator("structure", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("structure")
    @classmethod
    def _known_structure(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        # imported on use, as both need torch
        from assay.probe.structure import Trait

        return _known(value, get_args(Trait), "structure") if value else value

    @field_validator("layouts")
    @classmethod
    def _known_layout(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        from assay.probe.layouts import LAYOUTS

        return _known(value, LAYOUTS, "layout") if value else value


class ParameterDomain(Clause):
    """What one parameter or buffer of the reference is; for the reader and for generators."""

    dtype: str = ""
    """Its dtype; empty means the one the task uses."""
    axes: tuple[str, ...] = ()
    """Its dimensions by the sizes that they follow."""


class Domain(Clause):
    """Where the candidate has to be right."""

    sizes: dict[str, SizeDomain] = Field(default_factory=dict)
    """By the name of the task's module-level integer."""
    inputs: dict[str, InputDomain] = Field(default_factory=dict)
    """By the path of the tensor input: its position or keyword, such as `0` or `batch.mask`."""
    parameters: dict[str, ParameterDomain] = Field(default_factory=dict)
    """By the reference's own names."""
    vary_parameters: bool = True
    """Whether the candidate has to be right with other parameter values than those of a fresh constructor."""
    defaults: Literal["inferred", "none"] = "inferred"
    """What an input's table leaves out: `inferred` from the task, or `none`, nothing assumed: a floating
    input without a structure and a range may then hold any finite number."""
    dtypes: tuple[str, ...] = ()
    """Floating dtypes promised beside the task's own: fp32, fp16, bf16, fp64."""


class Numerics(Clause):
    """The arithmetic the candidate is held to."""

    accumulate: Literal["auto", "fp64", "fp32", "tf32", "bf16", "fp16"] = "auto"
    """Precision of accumulation; `auto` is fp32, or fp64 for a float64 task."""
    matmul: Literal["ieee", "tf32"] = "ieee"
    """Product mode of float32 operands."""
    operands: Literal["auto", "exact", "task"] = "auto"
    """Whether products may round operands to the task's dtype; `auto` does so for half-precision tasks."""
    fast_math: bool = False
    """Whether approximate intrinsics are allowed."""
    autocast: Literal["none", "bf16", "fp16"] = "none"
    """Dtype of `torch.autocast`, under which outputs and gradients have to be right as well."""
    output_dtype: Literal["reference", "any"] = "reference"
    """Whether the output dtype has to be the reference's."""


class Exceptional(Clause):
    """What happens to values that are not ordinary numbers."""

    nan: Literal["propagate", "reference", "ignore"] = "propagate"
    """`propagate`: NaN arrives where the reference puts it, in float64 as in its own dtype; `reference`: also
    where only its own dtype does; `ignore` waives the clause."""
    inf: Literal["propagate", "reference", "ignore"] = "propagate"
    """The same for signed infinities."""
    subnormals: Literal["preserve", "flush", "either"] = "either"
    """Whether subnormal numbers are kept."""


class Memory(Clause):
    """What the candidate may do with memory."""

    aliasing: Literal["reference", "forbid", "allow"] = "reference"
    """Whether outputs may share storage with inputs; `reference` allows what the reference does."""
    inplace: tuple[str, ...] = ()
    """Names or positions of inputs that may change."""
    extra_bytes: int | None = None
    """Scratch bytes allowed beyond inputs and outputs; None sets no limit."""


def _known(values: tuple[str, ...] | None, names: tuple[str, ...], what: str) -> tuple[str, ...] | None:
    """The values as they are. Raises ValueError for one that is not among the names, with the nearest."""
    for value in values or ():
        if value not in names:
            near = difflib.get_close_matches(value, names, n=1, cutoff=0.0)
            raise ValueError(f"no {what} `{value}`; did you mean `{near[0]}`?")
    return values


TARGETS = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
"""Chips that kernels can be compiled for."""


class Resources(Clause):
    """What the candidate has to fit on."""

    targets: tuple[str, ...] = ()
    """Targets to compile for, such as `sm_90` or `gfx942`; empty means the device at hand or the emulated one."""

    @field_validator("targets")
    @classmethod
    def _targets(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        _known(values, TARGETS, "target")
        return values


class Policy(Clause):
    """Which gates block a label, and how far a tier counts."""

    blocking: tuple[str, ...] | None = None
    """Slugs of blocking gates; None means every gate of the battery that is not opt-in."""
    advisory: tuple[str, ...] = ()
    """Slugs whose findings are reported and do not reject."""
    allow_tiers: tuple[Literal["divergence"], ...] = ()
    """Tiers of findings that do not reject."""
    scope: Literal["any", "gpu"] = "any"
    """`gpu` refuses the label `contract` to a verdict decided without a GPU."""

    @field_validator("blocking", "advisory")
    @classmethod
    def _known_gates(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        # every slug of the battery, also of gates that this version has not got
        return _known(value, SLUGS, "gate")


class Contract(Clause):
    """Every obligation of one task."""

    schema_version: Literal[1] = CONTRACT_VERSION
    """Version of this format."""
    domain: Domain = Field(default_factory=Domain)
    """Where the candidate has to be right."""
    numerics: Numerics = Field(default_factory=Numerics)
    """The arithmetic it is held to."""
    exceptional: Exceptional = Field(default_factory=Exceptional)
    """Exceptional values."""
    determinism: Literal["bitwise", "bounded", "none"] = "bitwise"
    """Same input, same bits; or within the oracle's bound; or no promise."""
    memory: Memory = Field(default_factory=Memory)
    """Aliasing, in-place inputs, scratch."""
    gradients: Literal["none", "auto", "training"] = "auto"
    """`auto` obliges a candidate whose outputs claim gradients where the reference's do."""
    resources: Resources = Field(default_factory=Resources)
    """Targets it has to fit on."""
    provenance: Literal["auto", "required", "none"] = "auto"
    """Whether the candidate's own kernels have to do the work."""
    batch_invariance: bool = False
    """Whether a row's bits may depend on the batch it is in."""
    policy: Policy = Field(default_factory=Policy)
    """Which gates block."""

    @classmethod
    def from_data(cls, data: dict[str, Any], where: str = "contract") -> Self:
        """Build from parsed TOML or JSON.

        Raises InputError naming the wrong key, the nearest right one and the place.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InputError(explain_fault(cls, error), where, "correct the contract") from None

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a TOML contract. Raises InputError for a missing, unparsable or invalid file."""
        path = Path(path)
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError("no such contract file", str(path), "check the path") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read the contract: {error}", str(path), "check the file") from None
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"not valid TOML: {error}", str(path), "correct the syntax") from None
        return cls.from_data(data, str(path))


def explain_fault(model: type[BaseModel], error: ValidationError) -> str:
    """One line for the first fault of a file of tables, with the nearest right key."""
    faults = error.errors()
    # a misspelt key is also a missing one, and the spelling is what there is to repair
    fault = next((each for each in faults if each["type"] == "extra_forbidden"), faults[0])
    path = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "value_error":
        return f"{path}: {str(fault['msg']).removeprefix('Value error, ')}"
    if fault["type"] != "extra_forbidden":
        return f"{path}: {fault['msg']} (got {fault.get('input')!r})"
    keys = _keys_at(model, [str(part) for part in fault["loc"][:-1]])
    wrong = str(fault["loc"][-1])
    near = difflib.get_close_matches(wrong, keys, n=1, cutoff=0.0)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"unknown key `{path}`{hint} (known here: {', '.join(keys)})"


def _keys_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Field names of the table at `path` below `model`; empty for a free-form table."""
    current: Any = model
    for part in path:
        if not (isinstance(current, type) and issubclass(current, BaseModel)):
            arguments = get_args(current)
            if get_origin(current) not in (dict, tuple):
                return []
            current = arguments[1] if get_origin(current) is dict else arguments[0]
            continue
        field = current.model_fields.get(part)
        if field is None:
            return list(current.model_fields)
        current = _plain(field.annotation)
    if get_origin(current) is dict:
        return []
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def _plain(annotation: Any) -> Any:
    """An annotation without `| None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        kept = [a for a in get_args(annotation) if a is not type(None)]
        return kept[0] if len(kept) == 1 else annotation
    return annotation
