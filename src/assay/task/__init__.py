"""Tasks and candidates: loading, bringing to life, and learning what a task's inputs are made of."""

from assay.task.instance import Instance, instantiate
from assay.task.model import (
    Candidate,
    Task,
    TaskError,
    load_candidate,
    load_task,
    parse_candidate,
    parse_task,
)

__all__ = [
    "Candidate",
    "Instance",
    "Task",
    "TaskError",
    "instantiate",
    "load_candidate",
    "load_task",
    "parse_candidate",
    "parse_task",
]
