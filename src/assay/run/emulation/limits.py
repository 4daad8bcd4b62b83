"""What emulation cannot decide: a finding that rests on one of these is inconclusive."""

LIMITS: dict[str, str] = {
    "split_products": (
        "tl.dot on float32 with tf32x3, bf16x3 or bf16x6 computes in full float32; on a GPU it adds up products of "
        "parts of the operands, of which bf16x3 keeps 16 bits."
    ),
    "approximate_math": (
        "tl.exp, tl.log, tl.sin, division and their kin are rounded correctly or nearly so; the GPU's "
        "versions are off by up to a few units in the last place, and __fast variants by far more."
    ),
    "subnormals": "subnormal float32 numbers are kept; some GPU instructions flush them to zero.",
    "reduction_order": (
        "tl.sum, tl.cumsum and tl.dot add in an order of their own; every order of a GPU depends on layout."
    ),
    "argmax_nan": "the index that tl.argmax and tl.argmin give for a row with NaN depends on the layout.",
    "argmax_fast_ties": "with tie_break_left=False the index of tied values depends on the layout.",
    "fp16_accumulator": "a half-precision accumulator of tl.dot is rounded after every 16 products.",
    "undefined_lanes": "lanes that a masked load without `other` leaves undefined read as zero by default.",
    "float_to_int": "conversion of out-of-range floats saturates; the language leaves it undefined.",
    "races": (
        "programs run one after another, in other orders where asked to, and a program's lanes in lockstep: races "
        "inside a program never show, nor those of kernels with atomics."
    ),
    "streams": "work finishes when it is issued, so missing synchronisation never shows.",
    "timing": "benchmarks are constant, so a self-tuning candidate takes its first variant.",
    "graphs": "work inside a CUDA graph capture runs during capture too.",
    "autocast": "torch.autocast('cuda') uses the operation lists of CPU autocast.",
    "resources": "registers and shared memory of a compiled kernel are placeholders; compile to know them.",
    "inline_assembly": "inline assembly is not emulated.",
    "torch_kernels": "torch operations are those of the CPU; cuBLAS and cuDNN round and order differently.",
    "unmarked_host": "a tensor made without naming a device counts as a GPU tensor.",
    "compile_errors": (
        "code that Triton's compiler rejects for types that change around a loop or branch runs here."
    ),
    "torch_compile": "torch.compile runs the function eagerly.",
    "random_numbers": "torch.randn and its kin draw from the CPU generator.",
}
