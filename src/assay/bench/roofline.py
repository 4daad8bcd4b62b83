"""Speed of light: the bytes and operations of a task against what the device does at best.

After Williams, Waterman and Patterson, *Roofline*, 2009.
"""

from __future__ import annotations

from assay.bench.model import Ceilings, SpeedOfLight
from assay.run.cost import Cost
from assay.task.facts import Study

SPARSE = frozenset({"upper_triangular", "lower_triangular", "diagonal", "banded", "symmetric", "one_hot", "permutation",
                    "constant", "uniform", "positive_definite", "orthogonal", "binary"})
"""Structures of an input that a kernel may use to read or multiply less."""
IMPOSSIBLE = 0.7
"""Share of the floor's time below which a time is impossible; ceilings are measured, and so a little low."""
MODES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def speed_of_light(cost: Cost, study: Study, ceilings: Ceilings, cold_s: float, *, tf32: bool) -> SpeedOfLight:
    """Roofline of a task for a candidate's cold time.

    Args:
        cost: of one forward of the reference.
        study: of the task; says which inputs have a structure.
        ceilings: of the device.
        cold_s: seconds of a cold call of the candidate.
        tf32: whether products of float32 may be done in TF32.
    """
    read, written = sum(cost.inputs) + cost.weights, cost.written
    mode = MODES.get(cost.dtype, "fp32")
    if mode == "fp32" and tf32:
        mode = "tf32"
    rate = ceilings.flops.get(mode, ceilings.flops["fp32"])
    moving, multiplying = (read + written) / ceilings.copy_bytes_per_s, cost.operations / rate
    structured = [i for i, leaf in enumerate(study.tensor_inputs())
                  if leaf.structure is not None and SPARSE & set(leaf.structure.traits)]
    sure = sum(n for i, n in enumerate(cost.sure_inputs) if i not in structured) + cost.sure_weights
    # what is written may stay in the cache, and what is multiplied may use the fastest units in parts
    kept = sure + max(0, written - ceilings.cache_bytes)
    floor = max(kept / ceilings.copy_bytes_per_s,
                0.0 if structured else cost.sure_operations / max(ceilings.flops.values()))
    return SpeedOfLight(
        read_bytes=read, written_bytes=written, flops=cost.operations, mode=mode, bound_s=max(moving, multiplying),
        floor_s=floor, share=max(moving, multiplying) / cold_s,
        limited_by="memory" if moving >= multiplying else "products")


def impossible(light: SpeedOfLight, cold_s: float) -> bool:
    """Whether a cold call cannot have done the task."""
    return cold_s < IMPOSSIBLE * light.floor_s
