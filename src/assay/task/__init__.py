"""Tasks and candidates: loading, bringing to life, and learning what a task's inputs are made of."""

from assay.task.callables import task_from_callables
from assay.task.facts import Study
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
from assay.task.study import study
from assay.task.tree import Arguments

__all__ = [
    "Arguments",
    "Candidate",
    "Instance",
    "Study",
    "Task",
    "TaskError",
    "instantiate",
    "load_candidate",
    "load_task",
    "parse_candidate",
    "parse_task",
    "study",
    "task_from_callables",
]
