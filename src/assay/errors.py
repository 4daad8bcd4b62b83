"""Faults of the input, told in one line: what, where, and what to do."""

from __future__ import annotations


class InputError(Exception):
    """The task, contract or command line is at fault; the command exits with 2.

    Args:
        what: what is wrong.
        where: file, line or argument.
        todo: what the person should do.
    """

    def __init__(self, what: str, where: str = "", todo: str = "") -> None:
        self.what, self.where, self.todo = what, where, todo
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f" ({self.todo})" if self.todo else ""
        return f"{place}{self.what}{advice}"
