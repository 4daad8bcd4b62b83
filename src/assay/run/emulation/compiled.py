"""What stands for a compiled kernel."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import triton

from .errors import NeedsGpu


class CompiledKernel:
    """Stands for what a launch or a warm-up returns on a GPU.

    Registers and shared memory are placeholders: nothing was compiled. Launching it again
    with another grid works as there.
    """

    def __init__(self, kernel: Any, constexprs: dict[str, Any], options: dict[str, Any]) -> None:
        self._kernel = kernel
        self._constexprs = constexprs
        self._options = options
        self.name = kernel.__name__
        self.n_regs = 32
        self.n_spills = 0
        self.n_max_threads = 1024
        self.metadata = SimpleNamespace(
            name=kernel.__name__,
            shared=1024,
            num_warps=options.get("num_warps", 4),
            num_stages=options.get("num_stages", 3),
            num_ctas=options.get("num_ctas", 1) or 1,
            target=triton.runtime.driver.active.get_current_target(),
        )
        self.shared = self.metadata.shared
        self.num_warps = self.metadata.num_warps

    def _init_handles(self) -> None:
        """Nothing to load."""

    def result(self) -> CompiledKernel:
        """The kernel itself, as a finished compilation."""
        return self

    @property
    def asm(self) -> Any:
        """Raise: nothing was compiled."""
        raise NeedsGpu("the assembly of a compiled kernel")

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            missing = {k: v for k, v in self._constexprs.items() if k not in kwargs}
            names = self._kernel.arg_names
            given = len(args)
            if given < len(names):
                missing = {k: v for k, v in missing.items() if names.index(k) >= given}
            else:
                missing = {}
            return self._kernel.run(*args, grid=grid, warmup=False, **missing, **self._options, **kwargs)

        return launch
