"""What gates judged with, as JSON data, so that a finding is judged again without studying its task again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from assay.contract import Contract
from assay.contract.domain import Declared
from assay.gates import Context
from assay.task.facts import Study
from assay.vocabulary import EffortTier

_PLAIN = tuple(f.name for f in fields(Context) if f.name not in ("study", "contract", "tier"))


def to_json(ctx: Context, declared: Mapping[int, Declared]) -> dict[str, Any]:
    """A context as JSON data; the contract, which verdicts carry themselves, is left out.

    Args:
        ctx: the context.
        declared: inputs whose domain the contract changes, by position.
    """
    data: dict[str, Any] = {name: getattr(ctx, name) for name in _PLAIN}
    data |= {"languages": list(ctx.languages), "blocks": list(ctx.blocks), "tier": ctx.tier.value,
             "study": ctx.study.model_dump(mode="json"),
             "declared": {str(i): clause.model_dump(mode="json") for i, clause in declared.items()}}
    return data


def from_json(data: Mapping[str, Any], contract: Contract) -> tuple[Context, dict[int, Declared]]:
    """Inverse of `to_json`. Raises ValueError or KeyError for data of another kind."""
    plain = {name: data[name] for name in _PLAIN if name in data}
    plain |= {"languages": tuple(data["languages"]), "blocks": tuple(data["blocks"])}
    ctx = Context(study=Study.model_validate(data["study"]), contract=contract, tier=EffortTier(data["tier"]), **plain)
    return ctx, {int(i): Declared.model_validate(clause) for i, clause in data.get("declared", {}).items()}
