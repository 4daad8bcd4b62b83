"""Coverage: the replay over PyTorch's own database of operators and sample inputs.

Each operator runs in a child process with a deadline, because samples may be slow and operators may crash.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.connection
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay import oracle
from assay.calibration.model import SHORT

DTYPES = (torch.float32, torch.bfloat16)
"""Dtypes that are tried."""
SAMPLES = 3
"""Sample inputs per operator and dtype."""
SECONDS = 30.0
"""Deadline for one operator."""
START_SECONDS = 120.0
"""Deadline for a child to import the database."""
ELEMENTS = 1 << 18
"""Sample inputs with more elements than this are skipped."""


@dataclasses.dataclass(frozen=True)
class Coverage:
    """One operator at one dtype."""

    name: str
    """Name in the database, variant included."""
    dtype: str
    """Short name of the dtype."""
    outcome: str
    """`modelled`; `conservative` where an operator of the replay had no model; `failed` where the replay
    raised; `random`, `raised` and `no samples` where there is nothing to model; `timeout`; `crashed`."""
    unmodelled: tuple[str, ...] = ()
    """Operators without a model."""
    decided: float = 1.0
    """Share of the elements of all samples where the reference at its dtype is within its own tolerance."""
    error: str = ""
    """What the replay raised."""


def coverage(
    progress: Callable[[str], None] = lambda _: None, part: int = 1, skip: frozenset[str] = frozenset()
) -> Iterator[Coverage]:
    """Try every operator (every `part`-th) that takes floating inputs, in the order of the database.

    Those named in `skip` are left out.
    """
    context = multiprocessing.get_context("spawn")
    first, total = 0, None
    while total is None or first < total:
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(sender, first, part, skip), daemon=True)
        child.start()
        sender.close()
        try:
            total, first = yield from _received(receiver, first, progress)
        finally:
            child.kill()
            child.join()
            receiver.close()


def _received(
    receiver: multiprocessing.connection.Connection, first: int, progress: Callable[[str], None]
) -> Generator[Coverage, None, tuple[int, int]]:
    """Results of one child until it ends or stalls; returns the number of operators and the next one."""
    name = ""
    try:
        if not receiver.poll(START_SECONDS):
            raise RuntimeError("the operator database could not be imported in time")
        total = int(receiver.recv())
        while first < total:
            if not receiver.poll(SECONDS if name else START_SECONDS):
                yield Coverage(name, "both", "timeout")
                return total, first + 1
            message = receiver.recv()
            if isinstance(message, str):
                name = message
                progress(name)
                continue
            yield from message
            first += 1
    except EOFError:
        yield Coverage(name, "both", "crashed")
        return total, first + 1
    return total, first


def _child(sender: multiprocessing.connection.Connection, first: int, part: int, skip: frozenset[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

    operators = [op for op in op_db if set(DTYPES) & set(op.supported_dtypes("cpu"))][::part]
    oracle.warm_up()
    sender.send(len(operators))
    for op in operators[first:]:
        sender.send(op.formatted_name)
        wanted = [] if op.formatted_name in skip else [d for d in DTYPES if d in op.supported_dtypes("cpu")]
        sender.send([_tried(op, dtype) for dtype in wanted])
    sender.close()


def _tried(op: Any, dtype: torch.dtype) -> Coverage:
    base = Coverage(op.formatted_name, SHORT[dtype], "no samples")
    torch.manual_seed(0)
    unmodelled: set[str] = set()
    decided = total = tried = 0
    outcome, error = base.outcome, ""
    try:
        samples = op.sample_inputs("cpu", dtype, requires_grad=False)
    except Exception:
        return base
    for sample in samples:
        if tried == SAMPLES:
            break
        values = (sample.input, list(sample.args), dict(sample.kwargs))
        leaves = [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)]
        if sum(t.numel() for t in leaves) > ELEMENTS:
            continue
        evaluation = oracle.evaluate(op.op, [sample.input, *sample.args], dict(sample.kwargs))
        if evaluation.raised is not None:
            outcome = "raised" if outcome == "no samples" else outcome
            continue
        tried += 1
        if evaluation.random:
            return dataclasses.replace(base, outcome="random")
        if evaluation.replay_error is not None:
            outcome = "failed"
            error = f"{evaluation.replay_error.type}: {evaluation.replay_error.message}"[:200]
            break
        unmodelled |= set(evaluation.unmodelled)
        decided += sum(int(leaf.decided.sum()) for leaf in evaluation.leaves)
        total += sum(leaf.decided.numel() for leaf in evaluation.leaves)
        outcome = "conservative" if unmodelled else "modelled"
    share = decided / total if total else 1.0
    return Coverage(base.name, base.dtype, outcome, tuple(sorted(unmodelled)), share, error)
