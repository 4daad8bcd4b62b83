"""Autotuned kernels without a clock: every configuration is legal, one is chosen by number."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

from triton.runtime import autotuner
from triton.runtime.autotuner import Autotuner


class Schedules:
    """Which configuration autotuned kernels use."""

    def __init__(self) -> None:
        self.forced: int | None = None
        self.tune_on_first_call = False
        self._tuners: weakref.WeakSet[Any] = weakref.WeakSet()

    def register(self, tuner: Any) -> None:
        """Remember an autotuned kernel."""
        self._tuners.add(tuner)

    def configs(self) -> dict[str, int]:
        """Number of configurations of each autotuned kernel that exists, by its name."""
        found: Counter[str] = Counter()
        for tuner in self._tuners:
            found[tuner.base_fn.__name__] = max(found[tuner.base_fn.__name__], len(tuner.configs))
        return dict(sorted(found.items()))

    def forget_choices(self) -> None:
        """Make every kernel choose again at its next call."""
        for tuner in self._tuners:
            tuner.cache.clear()

    def run(self, tuner: Any, original_run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What calling an autotuned kernel does."""
        if self.forced is None and self.tune_on_first_call:
            # Each configuration runs once, as in timing; all take the same time, so the first wins.
            tuner.__dict__["do_bench"] = _run_once
            return original_run(tuner, *args, **kwargs)
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        config = tuner.configs[0]
        if len(tuner.configs) > 1:
            everything = {**tuner.nargs, **kwargs}
            named = {k: v for k, v in everything.items() if k in tuner.arg_names}
            conflicts = sorted(set(kwargs) & set(config.kwargs))
            if conflicts:
                raise ValueError(
                    f"Conflicting meta-parameters: {', '.join(conflicts)}."
                    " Make sure that you don't re-define auto-tuned symbols."
                )
            key: Any = [named[k] for k in tuner.keys if k in named]
            key += [str(v.dtype) for v in named.values() if hasattr(v, "dtype")]
            key = (self.forced, *key)
            if key not in tuner.cache:
                legal = tuner.prune_configs(kwargs)
                tuner.cache[key] = legal[(self.forced or 0) % len(legal)]
                tuner.configs_timings = {c: [1.0, 1.0, 1.0] for c in legal}
                tuner.bench_time = 0.0
                # Triton resets what `reset_to_zero` names once, after tuning; later calls do not.
                chosen = tuner.cache[key]
                tuner.pre_hook({**tuner.nargs, **kwargs, **chosen.all_kwargs()}, reset_only=True)
            config = tuner.cache[key]
        tuner.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
        result = tuner.fn.run(*args, **kwargs, **config.all_kwargs())
        tuner.nargs = None
        return result


def _run_once(kernel_call: Any, quantiles: Any = None, **_: Any) -> list[float]:
    kernel_call()
    return [1.0] * len(quantiles or (0.5,))


def install_autotune(schedules: Schedules) -> None:
    """Replace timing by `schedules` in every autotuner, existing or to come."""
    original_init, original_run = Autotuner.__init__, Autotuner.run

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        schedules.register(self)

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return schedules.run(self, original_run, args, kwargs)

    autotuner.Autotuner.__init__ = __init__
    autotuner.Autotuner.run = run
