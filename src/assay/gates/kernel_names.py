"""Whose kernel it is that a GPU ran, told by its name."""

from __future__ import annotations

import re

_LIBRARY = re.compile(
    r"at::|at_cuda_detail|\bc10::|cublas|cudnn|cutlass|nvjet|xmma|gemv|gemmk?\d*_|splitK|cask_|cusparse|cusolver|cufft|"
    r"regular_fft|vector_fft|thrust::|flash_(?:fwd|bwd)|fmha|ampere_|hopper_|volta_|turing_|sm\d+_|magma|nccl|"
    r"\bpytorch_flash|dgrad|wgrad|fprop|implicit_convolve|winograd")
"""Names of the kernels that torch and its libraries bring along."""
_NEUTRAL = re.compile(r"^Mem(?:cpy|set)\b|fill_|FillFunctor|copy_kernel|direct_copy|CatArray|FillKernel")
"""Copies and fills, which any kernel needs around it."""


def is_library(name: str) -> bool:
    """Whether a kernel belongs to torch or one of its libraries, by its name."""
    return bool(_LIBRARY.search(name))


def is_neutral(name: str) -> bool:
    """Whether a kernel copies or fills, which counts for nobody."""
    return bool(_NEUTRAL.search(name))
