"""The battery: every gate, in the order of the report."""

from __future__ import annotations

from assay.gates.accumulation import Accumulation
from assay.gates.base import Context, Gate, Verdict
from assay.gates.batch_invariance import BatchInvariance
from assay.gates.bounds import Bounds
from assay.gates.dtypes import Dtypes
from assay.gates.faults import Faults
from assay.gates.gradients import Gradients
from assay.gates.initialization import Initialization
from assay.gates.input_mutation import InputMutation
from assay.gates.integrity import Integrity
from assay.gates.layouts import Layouts
from assay.gates.nonfinite import Nonfinite
from assay.gates.order_sensitive import OrderSensitive
from assay.gates.output_aliasing import OutputAliasing
from assay.gates.provenance import Provenance
from assay.gates.reduction_order import ReductionOrder
from assay.gates.repeatability import Repeatability
from assay.gates.residency import Residency
from assay.gates.resources import Resources
from assay.gates.schedules import Schedules
from assay.gates.shapes import Shapes
from assay.gates.statelessness import Statelessness
from assay.gates.streams import Streams
from assay.gates.subnormals import Subnormals
from assay.gates.values import Values

BATTERY: tuple[Gate, ...] = (
    Values(),
    Gradients(),
    Shapes(),
    ReductionOrder(),
    Repeatability(),
    OrderSensitive(),
    Dtypes(),
    Accumulation(),
    Nonfinite(),
    Subnormals(),
    Residency(),
    Resources(),
    OutputAliasing(),
    InputMutation(),
    Statelessness(),
    Layouts(),
    Bounds(),
    Initialization(),
    Schedules(),
    Streams(),
    Integrity(),
    Provenance(),
    Faults(),
    BatchInvariance(),
)
"""Every gate there is."""

GATES: dict[str, Gate] = {gate.slug: gate for gate in BATTERY}
"""Gates by slug."""


def find(name: str) -> Gate | None:
    """A gate by slug, id or alias, in any case; None when there is none."""
    wanted = name.strip().lower()
    for gate in BATTERY:
        names = {gate.slug, gate.id.lower(), *(a.lower() for a in gate.aliases)}
        if wanted in names:
            return gate
    return None


__all__ = ["BATTERY", "GATES", "Context", "Gate", "Verdict", "find"]
