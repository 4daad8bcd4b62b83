"""Reasons, outcomes and probes in plain words, for every renderer that people read."""

from __future__ import annotations

from assay.probe.model import Draw, Probe
from assay.vocabulary import Outcome, Reason, Tier

OUTCOMES: dict[Outcome, str] = {
    Outcome.PASS: "pass",
    Outcome.FAIL: "FAIL",
    Outcome.INCONCLUSIVE: "inconclusive",
    Outcome.NOT_APPLICABLE: "n/a",
    Outcome.ERROR: "ERROR",
}
"""One word per outcome; failures stand out without colour."""

TIERS: dict[Tier, str] = {
    Tier.WRONG: "wrong on ordinary in-domain use",
    Tier.VIOLATION: "violation of a clause of the contract",
    Tier.DIVERGENCE: "divergence: right, in a lower precision than declared",
}
"""What each tier says."""

REASONS: dict[Reason, str] = {
    Reason.VALUE: "outside the tolerance",
    Reason.INDEX: "index of another element",
    Reason.INTEGER: "wrong integer",
    Reason.PRECISION_TF32: "the error of TF32 products",
    Reason.PRECISION_BF16: "the error of bf16 arithmetic",
    Reason.PRECISION_FP16: "the error of fp16 arithmetic",
    Reason.PRECISION_FAST_MATH: "the error of approximate intrinsics",
    Reason.NARROW_ACCUMULATOR: "the accumulator is narrower than declared",
    Reason.NAN_SWALLOWED: "a NaN of the reference is lost",
    Reason.NAN_MINTED: "NaN where the reference has none",
    Reason.INF_SIGN: "infinity of the wrong sign",
    Reason.INF_SWALLOWED: "an infinity of the reference is lost",
    Reason.INF_MINTED: "infinity where the reference is finite",
    Reason.LEAKED: "an exceptional value leaked into other elements",
    Reason.SHAPE: "wrong shape",
    Reason.DTYPE: "wrong dtype",
    Reason.DEVICE: "on the wrong device",
    Reason.STRIDES: "other strides than the reference",
    Reason.STRUCTURE: "other structure of outputs",
    Reason.SIZE_REJECTED: "refuses a size that the reference accepts",
    Reason.RAISED: "raised an exception",
    Reason.EXITED: "ended its process",
    Reason.SIGNALLED: "was ended by a signal",
    Reason.TIMED_OUT: "did not return in time",
    Reason.OUT_OF_MEMORY_CANDIDATE: "ran out of memory where the reference does not",
    Reason.FORGED_FRAME: "broke the channel to the judge",
    Reason.OUTPUT_FLOOD: "flooded its output",
    Reason.LEFTOVER_PROCESS: "left processes behind",
    Reason.LEFTOVER_THREAD: "left threads behind",
    Reason.LEFTOVER_FILE: "left files or shared memory behind",
    Reason.LEAK: "holds more after every call",
    Reason.NOT_REPEATABLE: "same input, other bits",
    Reason.DEPENDS_ON_HISTORY: "depends on earlier calls",
    Reason.STALE_RESULT: "returns the result of an earlier call",
    Reason.DEPENDS_ON_ADDRESS: "depends on the address of its input",
    Reason.ALIASES_INPUT: "an output shares memory with an input",
    Reason.ALIASES_EARLIER_OUTPUT: "outputs of two calls share memory",
    Reason.EARLIER_OUTPUT_CHANGED: "a later call changed an earlier result",
    Reason.INPUT_CHANGED: "changed an input",
    Reason.PARAMETER_CHANGED: "changed a parameter",
    Reason.OUT_OF_BOUNDS_READ: "reads outside its buffers",
    Reason.OUT_OF_BOUNDS_WRITE: "writes outside its buffers",
    Reason.UNINITIALISED: "returns memory that nobody wrote",
    Reason.HARNESS_PATCHED: "replaced functions of the libraries",
    Reason.REFERENCE_SOUGHT: "looked for the reference",
    Reason.ENVIRONMENT_CHANGED: "changed the environment of its process",
    Reason.MODE_LEFT: "left a mode of torch changed",
    Reason.NO_OWN_KERNEL: "launches no kernel of its own",
    Reason.KERNEL_NEVER_RAN: "its kernel never ran",
    Reason.LIBRARY_DID_THE_WORK: "a library computed the result",
    Reason.SEVERED: "no gradient where the reference has one",
    Reason.GRADIENT_MISSING: "a gradient is missing",
    Reason.GRADIENT_VALUE: "wrong gradient",
    Reason.GRADIENT_SHAPE: "gradient of the wrong shape",
    Reason.GRADIENT_DTYPE: "gradient of the wrong dtype",
    Reason.GRADIENT_RAISED: "the backward pass raised",
    Reason.GRADIENT_UNASKED: "requires a gradient although gradients are off",
    Reason.GRADIENT_NOT_ACCUMULATED: "a gradient overwrites another instead of adding to it",
    Reason.GRADIENT_NOT_REPEATABLE: "same backward, other bits",
    Reason.GRADIENT_LAYOUT: "the gradient depends on the strides of grad_output",
    Reason.GRADIENT_BATCH_COUPLED: "a gradient reaches rows that it does not depend on",
    Reason.SAVED_TENSOR_CHANGED: "what was saved for the backward pass changes",
    Reason.STREAM_RACE: "read before its own stream is done",
    Reason.DATA_RACE: "nothing orders the accesses of threads or programs to one place",
    Reason.BARRIER: "a barrier that some threads do not reach",
    Reason.SHARED_MEMORY: "needs more shared memory than the target has",
    Reason.TENSOR_MEMORY: "needs more tensor memory than the target has",
    Reason.SCRATCH_MEMORY: "takes more scratch memory than the contract allows",
    Reason.REGISTERS: "needs more registers than the target has",
    Reason.COMPILE_FAILED: "does not compile for the target",
    Reason.NEEDS_GPU: "needs a GPU",
    Reason.EMULATION: "beyond the emulation",
    Reason.WEIGHTS: "parameters do not match the reference's",
    Reason.TOOLCHAIN: "a tool or module it needs is missing here",
    Reason.OUT_OF_MEMORY: "out of memory",
    Reason.MACHINE: "the machine ended the process",
    Reason.BUDGET: "budget spent",
    Reason.UNSTABLE_REFERENCE: "the reference itself is unstable there",
    Reason.REFERENCE_REJECTS: "the reference rejects these inputs",
    Reason.REFERENCE_RANDOM: "the reference draws random numbers",
    Reason.WEAK_TASK: "a trivial function would pass this task",
    Reason.BY_CONTRACT: "waived by the contract",
    Reason.FORWARD_ONLY: "forward only",
    Reason.NO_SUCH_INPUT: "the task has no such input",
    Reason.NOTHING_TO_VARY: "nothing to vary",
    Reason.INTERNAL: "fault of the verifier itself",
}
"""What each reason says."""

UNDECIDED_REASONS = frozenset({
    Reason.NEEDS_GPU, Reason.EMULATION, Reason.WEIGHTS, Reason.TOOLCHAIN, Reason.OUT_OF_MEMORY, Reason.MACHINE,
    Reason.BUDGET, Reason.UNSTABLE_REFERENCE, Reason.REFERENCE_REJECTS, Reason.REFERENCE_RANDOM, Reason.WEAK_TASK,
    Reason.BY_CONTRACT, Reason.FORWARD_ONLY, Reason.NO_SUCH_INPUT, Reason.NOTHING_TO_VARY, Reason.INTERNAL,
})
"""Reasons that say why nothing was decided; all others name a fault of the candidate."""

MODES: dict[str, str] = {
    "declared": "the declared precision",
    "tf32": "TF32 operands",
    "bf16": "bfloat16 operands",
    "fp16": "float16 operands",
    "fp16_accumulate": "a float16 accumulator",
    "bf16_accumulate": "a bfloat16 accumulator",
    "fast_math": "approximate intrinsics",
}
"""Each arithmetic that a candidate may have used, as people say it."""

WEAKNESSES = {
    "constant": "a constant",
    "zero": "all zeros",
    "identity": "its first input, unchanged",
}


def shortened(text: str) -> str:
    """A number as text, cut to the nine digits that tell two float32 apart; any other text as it is."""
    try:
        value = float(text)
    except ValueError:
        return text
    return text if len(text) <= 12 or text.lstrip("+-").isdigit() else f"{value:.9g}"


def printable(text: str) -> str:
    """Text with every control character escaped: what a candidate prints must not steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def describe_probe(probe: Probe) -> str:
    """One experiment in words: sizes, inputs, calls and conditions."""
    sizes = ", ".join(f"{name}={value}" for name, value in sorted(probe.sizes.items())) or "native sizes"
    parts = [sizes]
    if probe.dtype is not None:
        parts.append(probe.dtype)
    parts.append(" then ".join(dict.fromkeys(_describe_draw(draw) for draw in probe.draws)))
    if probe.parameters:
        parts.append("parameters varied")
    if len(probe.calls) > 1:
        parts.append(f"{len(probe.calls)} calls ({', '.join(call.storage for call in probe.calls)} storage)")
    if probe.grad:
        parts.append("with backward")
    parts += [condition.replace(":", " ") for condition in probe.conditions]
    return "; ".join(parts)


def _describe_draw(draw: Draw) -> str:
    words = "the task's own inputs" if draw.variant == "task" else f"inputs {draw.variant}"
    if draw.variant != "task" and draw.leaves is not None:
        words += f" (input {', '.join(map(str, draw.leaves))})"
    if draw.literals:
        words += f" (input {', '.join(str(each.leaf) for each in draw.literals)} written down)"
    for injection in draw.injections:
        words += f" with {injection.value} at {injection.position:.0%} of input {injection.leaf}"
    layouts = [f"input {i} {name}" for i, name in enumerate(draw.layouts) if name != "task"]
    return words + (f", {', '.join(layouts)}" if layouts else "")
