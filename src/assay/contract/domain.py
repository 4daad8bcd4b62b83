"""What a written contract changes in what is known of a task: its sizes, and what its inputs may hold."""

from __future__ import annotations

import math

import torch
from pydantic import BaseModel, ConfigDict

from assay.contract.inference import RANGE_TRAITS, claims, name_of
from assay.contract.model import Contract, InputDomain, SizeDomain
from assay.errors import InputError
from assay.probe.structure import Structure, Trait
from assay.task.facts import InputLeaf, Study, TaskSize


class Declared(BaseModel):
    """What a contract says of one tensor input beyond what the task shows: its draws are put into it."""

    model_config = ConfigDict(frozen=True)

    low: float | None = None
    """Smallest admitted value."""
    high: float | None = None
    """Largest admitted value."""
    traits: tuple[Trait, ...] = ()
    """Structure."""


def narrowed(study: Study, contract: Contract) -> Study:
    """The study as the contract has it.

    A clause that says what inference found changes nothing. Sizes can only be narrowed: what the reference
    rejects is no part of any domain.

    Raises:
        InputError: the contract names a size or an input that the task has not got.
    """
    _check_names(study, contract)
    sizes = tuple(_size(size, contract.domain.sizes.get(size.name)) for size in study.integers)
    inputs = tuple(_leaf(leaf, contract) for leaf in study.inputs)
    found = study.model_copy(update={"integers": sizes, "inputs": inputs})
    return found.model_copy(update={
        name: _within(found, getattr(study, name), contract) for name in ("small", "sizes", "beside")})


def declared(study: Study, contract: Contract) -> dict[int, Declared]:
    """By position, the tensor inputs whose domain the contract changes; `study` is the task's own."""
    found = {}
    for leaf in study.tensor_inputs():
        assert leaf.position is not None
        if _changed(leaf, contract) is not None:
            traits, low, high = _wanted(leaf, contract)
            # an end that follows a size is no number
            fixed = None if _follows(leaf, high) else high
            found[leaf.position] = Declared(low=low, high=fixed, traits=traits)
    return found


def _leaf(leaf: InputLeaf, contract: Contract) -> InputLeaf:
    changed = _changed(leaf, contract) if leaf.position is not None else None
    return leaf if changed is None else leaf.model_copy(update={"structure": changed})


def _check_names(study: Study, contract: Contract) -> None:
    groups = (("sizes", contract.domain.sizes, [size.name for size in study.integers]),
              ("inputs", contract.domain.inputs, [name_of(leaf) for leaf in study.tensor_inputs()]))
    for table, written, known in groups:
        for name in written:
            if name not in known:
                raise InputError(f"the task has no {table[:-1]} `{name}`", f"contract: domain.{table}",
                                 f"known: {', '.join(known) or 'none'}")


def _size(size: TaskSize, clause: SizeDomain | None) -> TaskSize:
    if clause is None:
        return size
    changes: dict[str, object] = {}
    if clause.fixed and size.status == "free":
        changes |= {"status": "frozen", "why": "fixed by the contract"}
    minimum = size.minimum if clause.minimum is None else max(size.minimum, clause.minimum)
    maximum = size.maximum
    if clause.maximum is not None:
        maximum = clause.maximum if maximum is None else min(maximum, clause.maximum)
    multiple = math.lcm(size.multiple_of, max(1, clause.multiple_of))
    zero = size.zero and (clause.minimum is None or clause.minimum <= 0)

    def admitted(value: int) -> bool:
        if value == 0:
            return zero
        return minimum <= value and (maximum is None or value <= maximum) and value % multiple == 0

    tried = tuple(
        attempt if not attempt.accepted or attempt.value == size.native or admitted(attempt.value)
        else attempt.model_copy(update={"accepted": False, "note": "the contract rules it out"})
        for attempt in size.tried
    )
    changes |= {"minimum": minimum, "maximum": maximum, "multiple_of": multiple, "zero": zero, "tried": tried}
    return size.model_copy(update=changes)


def _within(study: Study, sizes: dict[str, int], contract: Contract) -> dict[str, int]:
    """Reduced sizes brought into the contract's ranges."""
    moved = dict(sizes)
    for size in study.integers:
        if size.name in moved and size.name in contract.domain.sizes:
            if size.status == "frozen":
                del moved[size.name]
                continue
            value = max(moved[size.name], size.minimum)
            value += -value % size.multiple_of
            if size.maximum is not None and value > size.maximum:
                value = size.maximum // size.multiple_of * size.multiple_of
            moved[size.name] = value
    return moved


def _wanted(leaf: InputLeaf, contract: Contract) -> tuple[tuple[Trait, ...], float | None, float | None]:
    """Traits, smallest and largest value that hold for an input: written, else inferred."""
    inferred = claims(leaf.structure)
    clause = contract.domain.inputs.get(name_of(leaf), InputDomain())
    silent = contract.domain.defaults == "none" and name_of(leaf) in contract.domain.inputs
    # a written range replaces the whole range, so that `low = 0` alone leaves the upper end open
    ranged = clause.low is not None or clause.high is not None or silent
    traits = clause.structure if clause.structure is not None else () if silent else inferred[0]
    low, high = (clause.low, clause.high) if ranged else inferred[1:]
    return traits, low, high  # type: ignore[return-value]


def _follows(leaf: InputLeaf, high: float | None) -> bool:
    """Whether the upper end of a range is still the one that inference ties to a size."""
    seen = leaf.structure
    return seen is not None and seen.high_axis is not None and high == claims(seen)[2]


def _changed(leaf: InputLeaf, contract: Contract) -> Structure | None:
    """The structure that the contract puts in place of the inferred one; None where they agree."""
    seen = leaf.structure
    if seen is None or (wanted := _wanted(leaf, contract)) == claims(seen):
        return None
    traits, low, high = wanted
    if seen.kind in ("boolean", "complex"):
        return seen.model_copy(update={"traits": traits})
    if seen.kind == "integer" and low is None and high is None:
        # without a range an index has no domain at all: what was seen stays
        low, high = seen.low, seen.high
    ends: set[Trait] = set(_ends(low, high)) if low is not None or high is not None else {"normal_like"}
    spread = seen.std or 1.0
    bottom = low if low is not None else (high - 8 * spread if high is not None else seen.low)
    top = high if high is not None else (low + 8 * spread if low is not None else seen.high)
    kept = tuple(trait for trait in (*traits, *sorted(ends)) if trait not in RANGE_TRAITS or trait in ends)
    return seen.model_copy(update={
        "traits": tuple(dict.fromkeys(kept)), "low": bottom, "high": top, "nonfinite": False,
        "band": seen.band if "banded" in traits else None,
        "high_axis": seen.high_axis if _follows(leaf, high) else None,
    })


def _ends(low: float | None, high: float | None) -> tuple[Trait, ...]:
    found: list[Trait] = ["bounded"]
    if low is not None and low >= 0:
        found.append("positive" if low > 0 else "non_negative")
        if high is not None and high <= 1:
            found.append("unit_interval")
    elif high is not None and high <= 0:
        found.append("negative" if high < 0 else "non_positive")
    return tuple(found)


def conform(tensor: torch.Tensor, clause: Declared) -> torch.Tensor:
    """A tensor put into a declared domain: clamped to its range, then onto its structure.

    Structures that no projection reaches (a permutation, an orthogonal matrix) leave the values as they are.
    """
    if tensor.dtype is torch.bool or tensor.is_complex() or tensor.numel() == 0:
        return tensor
    made = tensor
    if clause.low is not None or clause.high is not None:
        made = made.clamp(clause.low, clause.high)
    wanted = set(clause.traits)
    if wanted & {"integral", "binary", "signs"} and made.is_floating_point():
        made = made.round()
    if "binary" in wanted:
        made = (made > 0).to(made.dtype)
    if "signs" in wanted:
        made = torch.where(made < 0, -1, 1).to(made.dtype)
    if "ascending" in wanted:
        made = made.sort(dim=-1).values
    if "descending" in wanted:
        made = made.sort(dim=-1, descending=True).values
    if made.dim() >= 2:
        made = _matrix(made, wanted)
    if made.is_floating_point() and "rows_sum_to_one" in wanted:
        made = torch.softmax(made.double(), dim=-1).to(made.dtype)
    if made.is_floating_point() and "unit_norm_rows" in wanted:
        wide = made.double()
        made = (wide / wide.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-30)).to(made.dtype)
    return made


def _matrix(values: torch.Tensor, wanted: set[Trait]) -> torch.Tensor:
    """Values projected onto a structure of their last two dimensions."""
    if "symmetric" in wanted and values.shape[-1] == values.shape[-2]:
        values = values.triu() + values.triu(1).transpose(-2, -1)
    if wanted & {"upper_triangular", "diagonal"}:
        values = values.triu()
    if wanted & {"lower_triangular", "diagonal"}:
        values = values.tril()
    return values
