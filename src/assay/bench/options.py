"""How to time, and on what."""

from __future__ import annotations

from dataclasses import dataclass, field

from assay.bench.clocks import Allowance
from assay.errors import InputError
from assay.verify import resolve_device


@dataclass(frozen=True)
class BenchOptions:
    """How to time.

    Attributes:
        device: `auto` or `cuda`.
        rounds: rounds that count.
        compiled: also against `torch.compile` of the reference.
        sizes: overrides of the task's integers.
        seed: of the schedule; None draws one.
        inputs_seed: of the draws with a known truth; None takes that of the schedule. Whoever gives one lets their
            truths be kept between benchmarks, and has to keep it from the candidates.
        sandbox: `auto`, `strict` or `off`; None for the warm parent's own.
        memory: bytes of inputs and outputs that one contender holds at a time.
        buffers: most sets of inputs at a time.
        pairs: draws with a known truth, each with its twin, at most.
        seconds: after which no further round starts, once there are three.
        patience: seconds that a batch may take.
        interpreted: time on the CPU all the same, for tests of this machinery.
        allowance: how far the two clocks may be apart.
        light: whether to measure ceilings, for the roofline.
    """

    device: str = "auto"
    rounds: int = 12
    compiled: bool = True
    sizes: dict[str, int] = field(default_factory=dict)
    seed: int | None = None
    inputs_seed: int | None = None
    sandbox: str | None = None
    memory: int = 4 << 30
    buffers: int = 128
    pairs: int = 4
    seconds: float = 90.0
    patience: float = 20.0
    interpreted: bool = False
    allowance: Allowance = field(default_factory=Allowance)
    light: bool = True


def timing_device(options: BenchOptions) -> str:
    """`cuda`, or `cpu` where that was asked for in a test. Raises InputError without a GPU."""
    if options.interpreted:
        return "cpu"
    try:
        device = resolve_device(options.device)
    except InputError:
        device = "cpu"
    if device == "cpu":
        raise InputError("times of emulated kernels mean nothing, and there is no CUDA device here", "--device",
                         "run `assay bench` on a machine with a GPU; `assay verify` works here")
    return device
