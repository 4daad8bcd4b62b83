"""The memory planner: what a probe will take, estimated before anything is allocated."""

from __future__ import annotations

from assay.probe.model import Probe
from assay.task.facts import Study

REPLAY_RUNS = 12
"""Perturbed runs that the replay may hold at once."""
INTERMEDIATES = 3
"""Intermediate tensors of the size of the inputs and outputs together that are alive at a time."""


def oracle_bytes(study: Study, probe: Probe) -> int:
    """Bytes that evaluating one draw of a probe takes: float64 values of every perturbed run, and their sources.

    Shapes come from the study's axes; 0 where the study does not know them.
    """
    inputs, parameters, outputs = study.elements(probe.sizes)
    once = inputs + parameters + outputs
    return 8 * once * (REPLAY_RUNS + INTERMEDIATES)


def candidate_bytes(study: Study, probe: Probe) -> int:
    """Bytes that the candidate's calls take at float64 width, beside what it allocates for itself."""
    inputs, parameters, outputs = study.elements(probe.sizes)
    return 8 * (parameters + len(probe.calls) * (inputs + 2 * outputs))


def side_by_side(study: Study, memory: int) -> int:
    """How many processes may run the task's own sizes at once in a quarter of a GPU's memory; one in any case.

    Args:
        study: of the task.
        memory: of the GPU, bytes.
    """
    inputs, parameters, outputs = study.elements(study.sizes)
    return max(1, memory // max(1, 4 * 8 * (parameters + inputs + 2 * outputs)))


def fits(study: Study, probe: Probe, budget: int) -> bool:
    """Whether a probe stays under `budget` bytes on both sides."""
    return max(oracle_bytes(study, probe), candidate_bytes(study, probe)) <= budget
