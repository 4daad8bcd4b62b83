"""The store's SQLite file: opened, created and migrated so that many processes may do so at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path

from assay.evidence.errors import StoreDamaged, StoreError, StoreUnwritable
from assay.evidence.schema import MIGRATIONS

BUSY_SECONDS = 60.0
FILE = "store.sqlite"
LOCK = "lock"


def connect(directory: Path, *, create: bool) -> sqlite3.Connection:
    """A connection to the store in a directory.

    Raises:
        StoreError: there is no store, or a newer Assay wrote it.
        StoreDamaged: it is truncated or corrupt.
        StoreUnwritable: it cannot be created here.
    """
    path = directory / FILE
    if not path.exists():
        if not create:
            raise StoreError("there is no store", str(directory), "give --store, or verify something first")
        _create(directory)
    elif path.stat().st_size == 0:
        # SQLite would take an empty file for a new store, and what the file held would seem never to have been
        raise damaged(directory, "its database is empty")
    with failures(directory):
        connection = _open(path)
        try:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version == 0:
                # every store has its version from the moment it has its name
                raise StoreError("this is no store of Assay's", str(path), "give another --store")
            if version > len(MIGRATIONS):
                raise StoreError(f"a newer Assay wrote this store (format {version}, known: {len(MIGRATIONS)})",
                                 str(directory), "update Assay, or give another --store")
            if version < len(MIGRATIONS):
                _migrate(connection, directory)
        except BaseException:
            connection.close()
            raise
    return connection


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys = ON")
    # a committed verdict survives a loss of power too
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _create(directory: Path) -> None:
    """Make an empty store under another name, and give it its own name when it is complete."""
    try:
        # a candidate that runs as another user finds it shut
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock(directory, exclusive=True):
            path = directory / FILE
            if path.exists():
                return
            ignore = directory / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="ascii")
            temporary = directory / f".{uuid.uuid4().hex}"
            try:
                with failures(directory):
                    connection = _open(temporary)
                    try:
                        connection.execute("PRAGMA journal_mode = WAL")
                        _run_migrations(connection)
                    finally:
                        connection.close()
                os.replace(temporary, path)
            finally:
                for left in (temporary, *directory.glob(f"{temporary.name}-*")):
                    with contextlib.suppress(OSError):
                        left.unlink()
    except OSError as error:
        raise StoreUnwritable(f"the store cannot be created: {error.strerror or error}", str(directory),
                              "give --store a folder that can be written, or --no-store") from None


def _migrate(connection: sqlite3.Connection, directory: Path) -> None:
    with lock(directory, exclusive=True):
        _run_migrations(connection)


def _run_migrations(connection: sqlite3.Connection) -> None:
    """Run the scripts that a database has not seen, each with its number in one transaction."""
    done = int(connection.execute("PRAGMA user_version").fetchone()[0])
    for number, script in enumerate(MIGRATIONS[done:], start=done + 1):
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")


@contextlib.contextmanager
def lock(directory: Path, *, exclusive: bool) -> Iterator[None]:
    """Hold the store's lock: writers share it, what removes files has it alone. A killed process lets go of it.

    Raises OSError when the lock file cannot be opened.
    """
    handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def damaged(directory: Path, why: str) -> StoreDamaged:
    """The error for a store that is not what it should be."""
    return StoreDamaged(f"the store is damaged: {why}", str(directory / FILE),
                        "nothing was changed; keep it aside and give another --store")


@contextlib.contextmanager
def failures(directory: Path) -> Iterator[None]:
    """Tell SQLite's errors as damage, or as a store that cannot be written now."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreUnwritable(f"the store cannot be used now: {error}", str(directory / FILE),
                              "free some room or wait for other writers, or give another --store") from None
    except sqlite3.DatabaseError as error:
        raise damaged(directory, str(error)) from None
