"""Other ordinary ways of calling a module: in inference mode, from another thread, in evaluation, with gradients on.

A program that computes something else then is another program, and a kernel that takes the harness's way of
calling it for a sign of being watched shows itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

WAYS = ("inference", "thread", "eval", "grad")
"""`inference`: in inference mode; `thread`: without gradients, in a thread of its own; `eval`: the module in
evaluation mode; `grad`: with gradients on, of inputs that ask for one."""


def take(way: str, model: Any, call: Callable[[], Any], inputs: Sequence[torch.Tensor]) -> Any:
    """What `call` returns when it is called that way.

    Args:
        way: one of `WAYS`.
        model: what is called; only a module has a mode.
        call: calls it on the inputs.
        inputs: its tensor inputs.

    Raises:
        ValueError: there is no such way.
        BaseException: what the call raises.
    """
    if way == "inference":
        with torch.inference_mode():
            return call()
    if way == "grad":
        asked = [t for t in inputs if t.is_floating_point() or t.is_complex()]
        for tensor in asked:
            tensor.requires_grad_(True)
        try:
            with torch.enable_grad():
                return call()
        finally:
            for tensor in asked:
                if tensor.is_leaf:
                    tensor.requires_grad_(False)
    if way == "thread":
        return _in_a_thread(call)
    if way != "eval":
        raise ValueError(f"no way `{way}` of calling a module")
    was = model.training if isinstance(model, torch.nn.Module) else None
    if was is not None:
        model.eval()
    try:
        with torch.no_grad():
            return call()
    finally:
        if was is not None:
            model.train(was)


def _in_a_thread(call: Callable[[], Any]) -> Any:
    results: list[Any] = []
    errors: list[BaseException] = []
    # what watches this thread watches that one
    modes = _get_current_dispatch_mode_stack()

    def work() -> None:
        try:
            with torch.no_grad(), ExitStack() as stack:
                for mode in modes:
                    stack.enter_context(mode)
                results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="caller")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
