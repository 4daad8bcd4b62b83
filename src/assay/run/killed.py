"""Who ended a process with SIGKILL, which no process can see for itself.

The kernel counts what it ends when memory runs out: in all in `/proc/vmstat`, and for a control group in its
`memory.events` (`memory.oom_control` in the first version). Where those have moved, it was the machine. Where they
have not, whoever ends by it again on the same probe ends itself.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from assay.probe.record import Observation
from assay.run.reply import printable

OUT_OF_MEMORY = "the machine ran out of memory and ended the process"
FROM_OUTSIDE = "ended by SIGKILL that nobody here sent, and not again on the same probe"


def counted(root: Path = Path("/")) -> dict[str, int]:
    """How many processes the kernel has ended for want of memory, by the file that says so.

    Args:
        root: where `/proc` and `/sys` are.
    """
    found: dict[str, int] = {}
    for path in (root / "proc/vmstat", *_groups(root)):
        with suppress(OSError, ValueError):
            for line in path.read_text(encoding="ascii", errors="replace").splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    found[str(path)] = int(number)
    return found


def _groups(root: Path) -> list[Path]:
    """Files of the calling process's own control group that count."""
    found: list[Path] = []
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            _, kinds, path = line.split(":", 2)
            below = path.lstrip("/")
            if not kinds:
                found.append(root / "sys/fs/cgroup" / below / "memory.events")
            elif "memory" in kinds.split(","):
                found.append(root / "sys/fs/cgroup/memory" / below / "memory.oom_control")
    return found


def moved(before: dict[str, int]) -> bool:
    """Whether the kernel has ended a process for want of memory since `before` was counted."""
    now = counted()
    return any(now.get(name, count) > count for name, count in before.items())


def decided(first: Observation, again: Callable[[], Observation], kills: list[str]) -> Observation:
    """What a probe's observation is, once it is known who ended the process.

    A process that the machine ended is asked once more, and so is one that was ended by SIGKILL without any sign of
    who sent it. Ended so again, it ends itself. If not, nothing is decided, once; a candidate of which that happens
    on a second probe ends itself now and then.

    Args:
        first: what the probe brought.
        again: asks once more, in a fresh process.
        kills: probes on which that has happened to this candidate; added to.
    """
    if first.status == "machine":
        return again()
    if not _unexplained(first):
        return first
    second = again()
    if _unexplained(second) or second.status in ("machine", "not_run"):
        return second
    kills.append(first.probe)
    if len(kills) > 1:
        return first
    return Observation(probe=first.probe, status="machine", text=printable(FROM_OUTSIDE, 200))


def _unexplained(seen: Observation) -> bool:
    return seen.status == "signalled" and seen.code == signal.SIGKILL
