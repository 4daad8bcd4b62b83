"""Where the command line writes: consoles, and the file that --json names."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

LOG_WIDTH = 80


def one_line(text: str) -> str:
    """Text on one line, without control characters."""
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in flat)


def console(*, error: bool = False) -> Console:
    """A console for people: as wide as the terminal, 80 columns in a pipe or a file."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    return Console(stderr=error, width=None if stream.isatty() else LOG_WIDTH, highlight=False, emoji=False,
                   markup=False)


@dataclass(frozen=True)
class JsonTarget:
    """Where a report goes as JSON.

    Attributes:
        path: the file, or `-` for standard output.
        scratch: open file beside it, which replaces it when the report is complete; None to write in place.
        option: the option that named it.
    """

    path: str
    scratch: str | None
    option: str = "--json"

    @property
    def stdout(self) -> bool:
        """True when the report goes to standard output."""
        return self.path == "-"

    def write(self, text: str) -> None:
        """Write the whole report. Raises InputError when the disk refuses it."""
        if self.stdout:
            sys.stdout.write(text)
        else:
            self.write_bytes(text.encode("utf-8"))

    def write_bytes(self, data: bytes) -> None:
        """Write a whole file. Raises InputError when the disk refuses it."""
        if self.stdout:
            sys.stdout.buffer.write(data)
            return
        try:
            if self.scratch is None:
                Path(self.path).write_bytes(data)
            else:
                Path(self.scratch).write_bytes(data)
                os.replace(self.scratch, self.path)
        except OSError as error:
            raise _unwritable(self.path, error, self.option) from None


@contextlib.contextmanager
def json_target(path: str | None, option: str = "--json") -> Iterator[JsonTarget | None]:
    """Make sure that a report can be written to `path` before any work is done for it.

    A file is replaced only by a complete report. Raises InputError, which names the option, when the path cannot
    be written.
    """
    if path is None or path == "-":
        yield None if path is None else JsonTarget("-", None)
        return
    real = os.path.realpath(path)
    target = JsonTarget(real, None, option)
    try:
        if not os.path.exists(real) or stat.S_ISREG(os.stat(real).st_mode):
            if os.path.exists(real) and not os.access(real, os.W_OK):
                raise PermissionError(13, "Permission denied")
            handle, scratch = tempfile.mkstemp(prefix=".assay-", dir=os.path.dirname(real))
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(handle, 0o666 & ~mask)
            os.close(handle)
            target = JsonTarget(real, scratch, option)
        else:
            with open(real, "a", encoding="utf-8"):
                pass
    except OSError as error:
        raise _unwritable(path, error, option) from None
    try:
        yield target
    finally:
        if target.scratch is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target.scratch)


def _unwritable(path: str, error: OSError, option: str) -> InputError:
    return InputError(f"cannot write the report: {error.strerror or error}", f"{option} {path}",
                      "give a file in a folder that exists and can be written")
