"""The contract of a task as its study shows it, each clause with how it was observed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from assay.contract.model import Contract, Domain, InputDomain, Memory, ParameterDomain, SizeDomain
from assay.probe.structure import Structure, Trait
from assay.task.facts import InputLeaf, ParameterFact, Study, TaskSize

RANGE_TRAITS: tuple[Trait, ...] = (
    "bounded", "unit_interval", "normal_like", "positive", "non_negative", "negative", "non_positive",
)
"""Traits that a contract states as `low` and `high` rather than as structure."""

_WEAK = {
    "constant": "one constant output passes the usual check on every draw",
    "zero": "an output of zeros passes the usual check",
    "identity": "returning the first input passes the usual check",
}
_WEAKER_OUTPUT = "make get_inputs give outputs that differ from draw to draw by more than 1e-2"


@dataclass(frozen=True)
class InferredContract:
    """A contract read off a task.

    Attributes:
        contract: the clauses; `domain.defaults` is `none`, so that what a person deletes is gone.
        observed: how each clause was seen, by its dotted key, such as `domain.inputs.0.structure`.
        warnings: what a person should know before any candidate is judged, such as a weak task.
    """

    contract: Contract
    observed: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def infer(study: Study) -> InferredContract:
    """Contract of a task. Pure: the same study gives the same contract."""
    observed: dict[str, str] = {
        "domain.defaults": "what is deleted below is no longer assumed of the inputs",
        "domain.vary_parameters": "set to false where only the constructor's own values matter",
    }
    sizes = {size.name: _size(size, observed) for size in study.integers if _told(size)}
    inputs = {name_of(leaf): _input(leaf, observed) for leaf in study.tensor_inputs()}
    parameters = {fact.name: _parameter(fact, observed) for fact in study.parameters}
    contract = Contract(
        domain=Domain(sizes=sizes, inputs=inputs, parameters=parameters, defaults="none"),
        memory=_memory(study, observed),
        determinism="none" if study.random else "bitwise",
        gradients=_gradients(study, observed),
    )
    observed["determinism"] = (
        "equal inputs gave different outputs under another seed: the obligation is distributional"
        if study.random else "equal inputs gave equal bits"
    )
    return InferredContract(contract, observed, warnings_of(study))


def name_of(leaf: InputLeaf) -> str:
    """What a contract calls an input: its path, such as `0` or `batch.mask`."""
    return ".".join(map(str, leaf.path))


def warnings_of(study: Study) -> tuple[str, ...]:
    """What is wrong with a task itself, one line each, weakness first."""
    found = [f"weak task: {_WEAK[weakness]} ({_WEAKER_OUTPUT})" for weakness in study.weak]
    if study.raises is not None:
        found.append(f"the reference raises on its own inputs: {study.raises}")
    found += [f"output {'.'.join(map(str, leaf.path)) or 'out'} is NaN or infinite on the task's own inputs"
              for leaf in study.outputs if leaf.nonfinite]
    if study.stateful:
        found.append("a call changes the reference's state: " + ", ".join(study.stateful))
    if study.mode_matters:
        mode = "training" if study.training else "evaluation"
        found.append(f"layers of the reference differ between training and evaluation: the task leaves it in {mode}")
    if study.random:
        found.append("the reference draws random numbers: only distributions can be compared")
    return tuple(found)


def _told(size: TaskSize) -> bool:
    """Whether a size is worth a table: it varies, or it could but for the reference itself."""
    return size.varies or (size.status == "frozen" and size.native > 0)


def _size(size: TaskSize, observed: dict[str, str]) -> SizeDomain:
    key = f"domain.sizes.{size.name}"
    moves = "; moves " + ", ".join(size.moves[:4]) if size.moves else ""
    observed[key] = f"{size.native} in the file{moves}"
    if not size.varies:
        observed[f"{key}.fixed"] = size.why
        return SizeDomain(fixed=True)
    accepted = [attempt.value for attempt in size.tried if attempt.accepted]
    rejected = [attempt.value for attempt in size.tried if not attempt.accepted]
    tried = "the reference ran at " + _numbers(accepted)
    if rejected:
        tried += ", not at " + _numbers(rejected)
    observed[f"{key}.minimum"] = tried
    if size.maximum is not None:
        observed[f"{key}.maximum"] = "larger values were rejected"
    if size.multiple_of > 1:
        observed[f"{key}.multiple_of"] = "other values were rejected"
    if size.tied:
        observed[f"{key}.tied"] = "the reference rejects them apart"
    return SizeDomain(minimum=0 if size.zero else size.minimum, maximum=size.maximum,
                      multiple_of=size.multiple_of, tied=size.tied)


def _numbers(values: Iterable[int]) -> str:
    texts = [str(value) for value in values]
    return ", ".join(texts[:8]) + (", …" if len(texts) > 8 else "")


def _input(leaf: InputLeaf, observed: dict[str, str]) -> InputDomain:
    key = f"domain.inputs.{name_of(leaf)}"
    observed[key] = f"{leaf.dtype} {leaf.label}"
    observed[f"{key}.dtypes"] = "as get_inputs makes it"
    observed[f"{key}.axes"] = f"native shape {list(leaf.shape)}"
    structure, low, high = claims(leaf.structure)
    if leaf.structure is not None:
        seen = f"held in {leaf.structure.samples} draws, {leaf.structure.elements} elements"
        if structure:
            observed[f"{key}.structure"] = seen
        else:
            observed[f"{key}.structure"] = f"no structure seen in {leaf.structure.samples} draws"
        if low is not None or high is not None:
            ends = f"{_short(leaf.structure.low)} to {_short(leaf.structure.high)} seen"
            observed[f"{key}.low"] = ends
            observed[f"{key}.high"] = ends + (
                f"; ends at {leaf.structure.high_axis}{leaf.structure.high_offset:+d}"
                if leaf.structure.high_axis else "")
        elif leaf.structure.has("normal_like"):
            observed[key] += "; both signs and tails, so no range is claimed"
    return InputDomain(dtypes=(leaf.dtype,), axes=tuple(axis.label for axis in leaf.axes),
                       structure=structure, low=low, high=high)


def claims(structure: Structure | None) -> tuple[tuple[str, ...], float | None, float | None]:
    """What a contract says of an inferred structure: traits, smallest and largest value."""
    if structure is None:
        return (), None, None
    traits = tuple(trait for trait in structure.traits if trait not in RANGE_TRAITS)
    if structure.kind in ("boolean", "complex") or structure.has("normal_like") or structure.nonfinite:
        return traits, None, None
    if structure.has("unit_interval"):
        return traits, 0.0, 1.0
    if structure.has(*RANGE_TRAITS) and structure.low is not None:
        low = 0.0 if structure.has("non_negative") else _outward(structure.low, down=True)
        high = 0.0 if structure.has("non_positive") else _outward(structure.high or 0.0, down=False)
        return traits, low, high
    return traits, None, None


def _outward(value: float, *, down: bool) -> float:
    """The value to six digits, moved away from the range rather than into it."""
    short = float(f"{value:.6g}")
    if (short > value if down else short < value) and value:
        step = 10.0 ** (len(str(int(abs(value)))) - 6 if abs(value) >= 1 else -7)
        short = float(f"{value - step if down else value + step:.6g}")
    return short


def _short(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _parameter(fact: ParameterFact, observed: dict[str, str]) -> ParameterDomain:
    kind = "buffer" if fact.buffer else "trained" if fact.requires_grad else "fixed parameter"
    observed[f"domain.parameters.{fact.name}"] = f"{kind}, native shape {list(fact.shape)}"
    return ParameterDomain(dtype=fact.dtype, axes=tuple(axis.label for axis in fact.axes))


def _memory(study: Study, observed: dict[str, str]) -> Memory:
    names = {leaf.position: name_of(leaf) for leaf in study.tensor_inputs()}
    inplace = tuple(names[position] for position in study.mutates if position in names)
    if inplace:
        observed["memory.inplace"] = "the reference changes these"
    shared = sorted({owner for leaf in study.outputs for owner in leaf.shares if owner.startswith("input")})
    observed["memory.aliasing"] = (
        f"the reference's output shares storage with {', '.join(shared)}" if shared
        else "the reference's outputs have storage of their own"
    )
    return Memory(inplace=inplace)


def _gradients(study: Study, observed: dict[str, str]) -> Literal["auto"]:
    tracked = [leaf for leaf in study.outputs if leaf.requires_grad]
    if not tracked and not any(p.requires_grad for p in study.parameters):
        observed["gradients"] = "outputs carry a gradient only where an input asks for one"
    else:
        observed["gradients"] = "outputs require grad; `training` obliges a candidate to give gradients"
    return "auto"


def merge(inferred: Contract, written: Contract) -> Contract:
    """Every clause that a person wrote, and the inferred ones for the rest.

    A list that was written replaces the inferred one; tables are merged key by key.
    """
    base = inferred.model_dump(mode="json", exclude_unset=True)
    return Contract.model_validate(_over(base, written.model_dump(mode="json", exclude_unset=True)))


def _over(base: object, top: object) -> object:
    if not (isinstance(base, dict) and isinstance(top, dict)):
        return top
    return {key: _over(base[key], top[key]) if key in base and key in top else top.get(key, base.get(key))
            for key in [*base, *(k for k in top if k not in base)]}
