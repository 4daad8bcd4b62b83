"""The words every report is written in: outcomes, tiers, labels and reasons.

Enums, never prose: a reason is matched by programs and rendered for people elsewhere.
"""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """What became of one gate. Only `PASS` counts as passed."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not_applicable"
    ERROR = "error"


class Tier(StrEnum):
    """How a finding weighs: wrong results, a broken clause, or a lower precision mode."""

    WRONG = "wrong"
    VIOLATION = "violation"
    DIVERGENCE = "divergence"


class Label(StrEnum):
    """What a candidate may be called after a verdict, within its scope."""

    REJECTED = "rejected"
    SCREENED = "screened"
    CONTRACT = "contract"


class EffortTier(StrEnum):
    """How much a verification may spend."""

    QUICK = "quick"
    STANDARD = "standard"
    DEEP = "deep"


class Reason(StrEnum):
    """Why a gate failed, or why it could not decide."""

    # numbers
    VALUE = "value"
    INDEX = "index"
    INTEGER = "integer"
    PRECISION_TF32 = "precision_tf32"
    PRECISION_BF16 = "precision_bf16"
    PRECISION_FP16 = "precision_fp16"
    NARROW_ACCUMULATOR = "narrow_accumulator"
    PRECISION_FAST_MATH = "precision_fast_math"
    # exceptional values
    NAN_SWALLOWED = "nan_swallowed"
    NAN_MINTED = "nan_minted"
    INF_SIGN = "inf_sign"
    INF_SWALLOWED = "inf_swallowed"
    INF_MINTED = "inf_minted"
    LEAKED = "leaked"
    # form of the output
    SHAPE = "shape"
    DTYPE = "dtype"
    DEVICE = "device"
    STRIDES = "strides"
    STRUCTURE = "structure"
    # sizes
    SIZE_REJECTED = "size_rejected"
    # process
    RAISED = "raised"
    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY_CANDIDATE = "out_of_memory_candidate"
    FORGED_FRAME = "forged_frame"
    OUTPUT_FLOOD = "output_flood"
    LEFTOVER_PROCESS = "leftover_process"
    LEFTOVER_THREAD = "leftover_thread"
    LEFTOVER_FILE = "leftover_file"
    LEAK = "leak"
    # determinism and state
    NOT_REPEATABLE = "not_repeatable"
    DEPENDS_ON_HISTORY = "depends_on_history"
    STALE_RESULT = "stale_result"
    DEPENDS_ON_ADDRESS = "depends_on_address"
    STREAM_RACE = "stream_race"
    DATA_RACE = "data_race"
    BARRIER = "barrier"
    # memory
    ALIASES_INPUT = "aliases_input"
    ALIASES_EARLIER_OUTPUT = "aliases_earlier_output"
    EARLIER_OUTPUT_CHANGED = "earlier_output_changed"
    INPUT_CHANGED = "input_changed"
    PARAMETER_CHANGED = "parameter_changed"
    OUT_OF_BOUNDS_READ = "out_of_bounds_read"
    OUT_OF_BOUNDS_WRITE = "out_of_bounds_write"
    UNINITIALISED = "uninitialised"
    # integrity and provenance
    HARNESS_PATCHED = "harness_patched"
    REFERENCE_SOUGHT = "reference_sought"
    ENVIRONMENT_CHANGED = "environment_changed"
    MODE_LEFT = "mode_left"
    NO_OWN_KERNEL = "no_own_kernel"
    KERNEL_NEVER_RAN = "kernel_never_ran"
    LIBRARY_DID_THE_WORK = "library_did_the_work"
    # gradients
    SEVERED = "severed"
    GRADIENT_MISSING = "gradient_missing"
    GRADIENT_VALUE = "gradient_value"
    GRADIENT_SHAPE = "gradient_shape"
    GRADIENT_DTYPE = "gradient_dtype"
    GRADIENT_RAISED = "gradient_raised"
    GRADIENT_UNASKED = "gradient_unasked"
    GRADIENT_NOT_ACCUMULATED = "gradient_not_accumulated"
    GRADIENT_NOT_REPEATABLE = "gradient_not_repeatable"
    GRADIENT_LAYOUT = "gradient_layout"
    GRADIENT_BATCH_COUPLED = "gradient_batch_coupled"
    SAVED_TENSOR_CHANGED = "saved_tensor_changed"
    # resources
    SHARED_MEMORY = "shared_memory"
    TENSOR_MEMORY = "tensor_memory"
    SCRATCH_MEMORY = "scratch_memory"
    REGISTERS = "registers"
    COMPILE_FAILED = "compile_failed"
    # why nothing was decided
    NEEDS_GPU = "needs_gpu"
    EMULATION = "emulation"
    WEIGHTS = "weights"
    TOOLCHAIN = "toolchain"
    OUT_OF_MEMORY = "out_of_memory"
    MACHINE = "machine"
    BUDGET = "budget"
    UNSTABLE_REFERENCE = "unstable_reference"
    REFERENCE_REJECTS = "reference_rejects"
    REFERENCE_RANDOM = "reference_random"
    WEAK_TASK = "weak_task"
    BY_CONTRACT = "by_contract"
    FORWARD_ONLY = "forward_only"
    NO_SUCH_INPUT = "no_such_input"
    NOTHING_TO_VARY = "nothing_to_vary"
    INTERNAL = "internal"


UNDECIDED = (Outcome.INCONCLUSIVE, Outcome.ERROR)
