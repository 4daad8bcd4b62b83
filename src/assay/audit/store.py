"""Where an audit keeps what it read and what it found: one SQLite file, whole after a kill at any moment.

Each result is one transaction under the key (row, check), so no result is half there or there twice. Sources
are kept once each, compressed.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from assay.audit.corpus import CorpusRow
from assay.errors import InputError
from assay.task.model import content_hash

VERSION = "1"
FILE = "audit.sqlite"
BATCH = 200
"""Rows read at a time."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sources(digest TEXT PRIMARY KEY, text BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS corpus(
  position INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, task_key TEXT NOT NULL, reference TEXT, candidate TEXT,
  entry TEXT NOT NULL, task TEXT NOT NULL, op_class TEXT, accepted INTEGER, speedup REAL, generator TEXT, run TEXT,
  created TEXT, contract TEXT, extra TEXT NOT NULL, problem TEXT, chosen INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS by_task ON corpus(task_key, position);
CREATE TABLE IF NOT EXISTS classes(task_key TEXT PRIMARY KEY, op_class TEXT NOT NULL, note TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results(
  id TEXT NOT NULL, kind TEXT NOT NULL, verdict TEXT NOT NULL, seconds REAL NOT NULL, outcome BLOB NOT NULL,
  PRIMARY KEY(id, kind)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Kept:
    """A row of the corpus as it is kept: sources by digest, and what the audit made of it."""

    position: int
    """Place in the corpus, from 0."""
    id: str
    """Its id."""
    task_key: str
    """Digest of reference and entry: rows with the same one share their oracle."""
    reference: str | None
    """Digest of the reference's source."""
    candidate: str | None
    """Digest of the candidate's source."""
    entry: str
    """Name of the reference's class."""
    task: str
    """Readable name of the task."""
    op_class: str | None
    """Class of the operation, given or inferred."""
    accepted: bool | None
    """Whether the corpus took it for correct."""
    speedup: float | None
    """Speedup that the corpus claims."""
    generator: str | None
    """What wrote it."""
    run: str | None
    """The run it comes from."""
    created: str | None
    """When it was written."""
    contract: dict[str, Any] | None
    """Clauses that the corpus states."""
    extra: dict[str, Any]
    """Further columns."""
    problem: str | None
    """Why nothing can be run."""
    chosen: bool
    """Whether it is part of this audit: accepted, and drawn where a sample was asked for."""


_COLUMNS = ", ".join(f"corpus.{f.name}" if f.name != "op_class" else "coalesce(corpus.op_class, classes.op_class)"
                     for f in fields(Kept))
_FROM = "FROM corpus LEFT JOIN classes ON classes.task_key = corpus.task_key"


class Store:
    """The file of one audit. Use as a context manager.

    Args:
        folder: the audit's folder; made where it is missing and `write` is set.
        write: hold it for writing, alone.

    Raises:
        InputError: there is no audit in the folder, another process writes to it, or it is of another version.
    """

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        self.folder, self.write = folder, write
        self._lock: int | None = None
        file = folder / FILE
        if write:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock or -1)
                raise InputError("another process is running this audit", str(folder), "wait for it") from None
            except OSError as error:
                raise InputError(f"cannot write here: {error.strerror or error}", str(folder),
                                 "give a folder that can be written") from None
        elif not file.exists():
            raise InputError("no audit in this folder", str(folder), "make one with `assay audit run CORPUS -o DIR`")
        try:
            self._db = sqlite3.connect(file if write else f"file:{file.resolve()}?mode=ro", uri=not write,
                                       isolation_level=None, timeout=30.0)
            if write:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
                self._db.executescript(_SCHEMA)
            version = self.get("version")
        except sqlite3.Error as error:
            self._release()
            raise InputError(f"not the file of an audit: {error}", str(file), "give another folder") from None
        if version is None and write:
            self.set("version", VERSION)
        elif version != VERSION:
            self.close()
            raise InputError(f"an audit of version {version}", str(file), f"this is version {VERSION}")

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close(self) -> None:
        """Close the file and let others write."""
        self._db.close()
        self._release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, key: str) -> str | None:
        """A setting; None where it is not set."""
        found = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def set(self, key: str, value: str) -> None:
        """Set a setting."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, value))

    def ingest(self, rows: Iterable[CorpusRow]) -> int:
        """Keep every row of a corpus in one transaction; how many. A second row of an id gets one of its own."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for table in ("corpus", "sources", "classes"):
                self._db.execute(f"DELETE FROM {table}")
            count = 0
            for row in rows:
                self._add(count, row)
                count += 1
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        return count

    def _add(self, position: int, row: CorpusRow) -> None:
        name, problem = row.id, row.problem
        twin = 1
        while self._db.execute("SELECT 1 FROM corpus WHERE id = ?", (name,)).fetchone():
            twin += 1
            name = f"{row.id}#{twin}"
        key = content_hash(row.entry, row.reference or f"none/{position}")
        self._db.execute(
            "INSERT INTO corpus VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (position, name, key, self._source(row.reference), self._source(row.candidate), row.entry,
             row.task or key[:12], row.op_class, row.accepted, row.speedup, row.generator, row.run, row.created,
             None if row.contract is None else json.dumps(row.contract, sort_keys=True),
             json.dumps(row.extra, sort_keys=True), problem))

    def _source(self, text: str | None) -> str | None:
        if text is None:
            return None
        digest = content_hash(text)
        packed = zlib.compress(text.encode("utf-8", "surrogatepass"))
        self._db.execute("INSERT OR IGNORE INTO sources VALUES(?, ?)", (digest, packed))
        return digest

    def source(self, digest: str | None) -> str | None:
        """A source by its digest."""
        if digest is None:
            return None
        found = self._db.execute("SELECT text FROM sources WHERE digest = ?", (digest,)).fetchone()
        return None if found is None else zlib.decompress(found[0]).decode("utf-8", "surrogatepass")

    def choose(self, positions: Iterable[int]) -> None:
        """Say which rows this audit is about, in one transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("UPDATE corpus SET chosen = 0")
        self._db.executemany("UPDATE corpus SET chosen = 1 WHERE position = ?", ((p,) for p in positions))
        self._db.execute("COMMIT")

    def classify(self, task_key: str, op_class: str, note: str | None) -> None:
        """Keep the class of a task's operation."""
        self._db.execute("INSERT OR REPLACE INTO classes VALUES(?, ?, ?)", (task_key, op_class, note))

    def classified(self) -> int:
        """How many tasks have a class that was inferred."""
        return int(self._db.execute("SELECT count(*) FROM classes").fetchone()[0])

    def unclassified(self) -> list[tuple[str, str, str, str]]:
        """Tasks of chosen rows without a class: (key, digest of the reference, entry, name), in corpus order."""
        return self._db.execute(
            "SELECT task_key, reference, entry, task FROM corpus WHERE op_class IS NULL AND reference IS NOT NULL "
            "AND chosen AND task_key NOT IN (SELECT task_key FROM classes) GROUP BY task_key ORDER BY min(position)"
        ).fetchall()

    def rows(self, *, by_task: bool = False, chosen: bool | None = None) -> Iterator[Kept]:
        """Rows of the corpus, in its order, or those of one task together in the order of first appearance."""
        where = "" if chosen is None else f"WHERE chosen = {int(chosen)}"
        order = "position"
        if by_task:
            order = "(SELECT min(position) FROM corpus AS c WHERE c.task_key = corpus.task_key), position"
        # positions first: no read stays open while results are written, which would let the journal grow
        places = array("q", (p for (p,) in self._db.execute(f"SELECT position FROM corpus {where} ORDER BY {order}")))
        for start in range(0, len(places), BATCH):
            batch = places[start:start + BATCH]
            marks = ", ".join("?" * len(batch))
            found = {values[0]: values for values in self._db.execute(
                f"SELECT {_COLUMNS} {_FROM} WHERE position IN ({marks})", tuple(batch))}
            yield from (_kept(found[place]) for place in batch)

    def row(self, id: str) -> Kept | None:
        """One row by its id."""
        found = self._db.execute(f"SELECT {_COLUMNS} {_FROM} WHERE id = ?", (id,)).fetchone()
        return None if found is None else _kept(found)

    def finish(self, id: str, kind: str, verdict: str, outcome: dict[str, Any], seconds: float) -> bool:
        """Keep one result, on the disk when this returns; False when it was there already.

        Args:
            id: the row.
            kind: the check, see `assay.audit.outcome`.
            verdict: the label, the outcome of a screen, or `problem`.
            outcome: everything that came of it, as JSON data.
            seconds: what it took.
        """
        packed = zlib.compress(json.dumps(outcome, separators=(",", ":"), sort_keys=True).encode(), 6)
        done = self._db.execute("INSERT OR IGNORE INTO results VALUES(?, ?, ?, ?, ?)",
                                (id, kind, verdict, seconds, packed))
        return done.rowcount == 1

    def forget(self, verdict: str) -> int:
        """Drop the results of a verdict, so that they are made anew; how many."""
        return self._db.execute("DELETE FROM results WHERE verdict = ?", (verdict,)).rowcount

    def verdicts(self, id: str) -> dict[str, str]:
        """The verdict of each check of a row that is there."""
        return dict(self._db.execute("SELECT kind, verdict FROM results WHERE id = ?", (id,)).fetchall())

    def outcomes(self, id: str) -> dict[str, tuple[dict[str, Any], float]]:
        """Outcome and seconds of each check of a row that is there."""
        found = self._db.execute("SELECT kind, outcome, seconds FROM results WHERE id = ? ORDER BY kind", (id,))
        return {kind: (json.loads(zlib.decompress(packed)), seconds) for kind, packed, seconds in found.fetchall()}

    def results(self) -> int:
        """How many results there are."""
        return int(self._db.execute("SELECT count(*) FROM results").fetchone()[0])

    def count(self, chosen: bool | None = None) -> int:
        """How many rows there are."""
        where = "" if chosen is None else f" WHERE chosen = {int(chosen)}"
        return int(self._db.execute(f"SELECT count(*) FROM corpus{where}").fetchone()[0])


def _kept(values: tuple[Any, ...]) -> Kept:
    data = dict(zip((f.name for f in fields(Kept)), values, strict=True))
    data["accepted"] = None if data["accepted"] is None else bool(data["accepted"])
    data["contract"] = None if data["contract"] is None else json.loads(data["contract"])
    data["extra"] = json.loads(data["extra"])
    data["chosen"] = bool(data["chosen"])
    return Kept(**data)
