"""From a study and a contract to an ordered plan of probes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from assay.contract import Contract
from assay.contract.domain import narrowed
from assay.gates import Context, Gate
from assay.gates.base import NEED_ONE_RESULT
from assay.probe.model import Probe
from assay.task.facts import Study

SMALL_BATCH = 6
INTERPRETED_ELEMENTS = 1 << 18
COMPILED_ELEMENTS = 1 << 22


def restricted(study: Study, contract: Contract) -> Study:
    """The study as a person's contract has it: sizes fixed or bounded, inputs with another domain.

    Raises:
        InputError: the contract names a size or an input that the task has not got.
    """
    return narrowed(study, contract)


def small_sizes(study: Study, base: dict[str, int]) -> dict[str, int]:
    """Cheaper sizes for gates that need no particular size: a batch cut to a few rows, the rest as it is.

    Only an integer that is the first dimension of inputs and of nothing that was constructed is cut, so that
    widths, and with them the blocks of a kernel, stay what they are.
    """
    cut = dict(base)
    for size in study.integers:
        if not size.varies or size.kind != "size" or size.tied:
            continue
        current = base.get(size.name, size.native)
        dims = [m for m in size.moves if m.startswith("input ")]
        others = [m for m in size.moves if m.startswith(("parameter ", "init ", "values "))]
        if not dims or others or any(not m.endswith(" dim 0") for m in dims):
            continue
        value = max(SMALL_BATCH, size.minimum)
        value += -value % max(1, size.multiple_of)
        if value < current:
            cut[size.name] = value
    return cut


def order(groups: Iterable[Sequence[Probe]]) -> list[Probe]:
    """Probes of all gates in turn, so that a spent budget leaves every gate with something."""
    rounds = itertools.zip_longest(*groups)
    return [probe for turn in rounds for probe in turn if probe is not None]


def chosen_gates(battery: Sequence[Gate], contract: Contract, only: Sequence[str] | None) -> list[Gate]:
    """The gates of one verification: the battery, less opt-in ones that the contract does not ask for."""
    if only is not None:
        return [gate for gate in battery if gate.slug in only]
    asked = {"batch_invariance"} if contract.batch_invariance else set()
    return [gate for gate in battery if not gate.opt_in or gate.slug in asked]


def _refed(probe: Probe) -> Probe:
    """A probe of something that may change its inputs: tensors that are passed again get their values again."""
    calls = tuple(c.model_copy(update={"storage": "overwrite"}) if c.storage == "same" else c for c in probe.calls)
    return probe.model_copy(update={"calls": calls})


def make_plan(gates: Sequence[Gate], ctx: Context) -> list[Probe]:
    """Every probe, in the order in which to run them; ids are unique."""
    seen: set[str] = set()
    groups = []
    for gate in gates:
        group = []
        random = ctx.study.random and gate.slug in NEED_ONE_RESULT
        for planned in () if random else gate.plan(ctx):
            probe = _refed(planned) if ctx.contract.memory.inplace or ctx.study.mutates else planned
            unique, turn = probe.id, 2
            while unique in seen:
                unique, turn = f"{probe.id}#{turn}", turn + 1
            seen.add(unique)
            group.append(probe if unique == probe.id else probe.model_copy(update={"id": unique}))
        groups.append(group)
    return order(groups)
