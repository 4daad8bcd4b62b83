"""The store: verdicts and findings in SQLite, their tensors beside it, everything by content hash.

What a verdict was about is stored whole, so that a finding replays after its files are gone. Any number of
processes may write at once. A process that dies leaves either a whole verdict or none: files of tensors reach
the disk first, and one transaction then makes the verdict.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from assay.contract import Contract
from assay.evidence import database, tensors
from assay.evidence.errors import StoreDamaged, StoreError, StoreUnwritable
from assay.evidence.ids import data_digest, verdict_id, with_ids
from assay.evidence.model import Bundle, Evidence, FindingRecord, VerdictRecord, VerdictSummary
from assay.report.model import Finding, Minimal, Report
from assay.task import Candidate, Task
from assay.task.model import content_hash

DEFAULT_DIRECTORY = ".assay"
_VERDICT = ("id, created, task, task_name, candidate, candidate_name, label, scope, tier, device, seed, report, "
            "context, task_blob, candidate_blob, contract_blob, environment_blob, study_blob")
_FINDING = "verdict, number, id, gate, reason, finding, bundle, minimal, tensors, note"
_BLOBS = ("task_blob", "candidate_blob", "contract_blob", "environment_blob", "study_blob")


class Store:
    """One store; made by `Store.open`. Safe to share among threads, and usable as a context manager."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: str | Path = DEFAULT_DIRECTORY, *, create: bool = False) -> Self:
        """The store in a folder.

        Args:
            path: the folder.
            create: make an empty store where there is none.

        Raises:
            StoreError: there is no store, or a newer Assay wrote it.
            StoreDamaged: it is truncated or corrupt; it is left as it is.
            StoreUnwritable: it cannot be created there.
        """
        directory = Path(path)
        return cls(directory, database.connect(directory, create=create))

    def close(self) -> None:
        """Close the database."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def _files(self) -> Path:
        return self.directory / "tensors"

    # writing

    def put_report(self, report: Report, task: Task, candidate: Candidate, contract: Contract,
                   evidence: Evidence | None = None) -> str:
        """Keep a verdict and its findings; the id of the verdict. Keeping it twice changes nothing.

        Args:
            report: the verdict. Findings without an id get theirs.
            task: what it is about, with its source.
            candidate: likewise.
            contract: the obligations it was judged by.
            evidence: what replays its findings, and their tensors; None keeps the report and the sources.

        Raises StoreUnwritable, with nothing kept, or StoreDamaged.
        """
        if any(not f.id for f in report.findings):
            report = with_ids(report)
        evidence = evidence or Evidence()
        context = dict(evidence.context)
        study = context.pop("study", None)
        blobs = {
            "task": (_task_digest(task), task.model_dump_json()),
            "candidate": (content_hash(candidate.entry or "", candidate.source), candidate.model_dump_json()),
            "contract": _addressed(contract.model_dump(mode="json")),
            "environment": _addressed(report.environment),
        }
        if study is not None:
            blobs["study"] = _addressed(study)
        identity = verdict_id(report)
        row = (identity, _now(), report.task.sha256, report.task.id, report.candidate.sha256, candidate.id,
               report.label.value, report.scope, report.tier, str(context.get("device", "")), report.seed,
               _deflate(report.to_json()), _deflate(json.dumps(context)) if context else None,
               *(blobs[name][0] if name in blobs else None
                 for name in ("task", "candidate", "contract", "environment", "study")))
        with self._writing():
            files = {name: tensors.write(self._files, tensors.encode(captured.tensors))
                     for name, captured in evidence.captured.items() if captured.tensors}
            findings = []
            for number, finding in enumerate(report.findings):
                bundle = evidence.bundles.get(finding.id)
                captured = evidence.captured.get(finding.id)
                findings.append((identity, number, finding.id, finding.slug, finding.reason.value,
                                 _deflate(finding.model_dump_json()), _bundle(bundle), None,
                                 files[finding.id][0] if finding.id in files else None,
                                 captured.note if captured is not None else ""))
            with self._transaction() as sql:
                self._put_blobs(sql, ((digest, kind, _deflate(text)) for kind, (digest, text) in blobs.items()))
                sql.executemany("INSERT OR IGNORE INTO tensors VALUES (?, ?)", files.values())
                sql.execute(f"INSERT OR IGNORE INTO verdicts VALUES ({_marks(len(row))})", row)
                sql.executemany(f"INSERT OR IGNORE INTO findings VALUES ({_marks(10)})", findings)
        return identity

    def put_minimal(self, found: FindingRecord, bundle: Bundle, minimal: Minimal) -> None:
        """Keep the smallest input that shows a finding, beside the one that was found. Raises StoreUnwritable."""
        shown = found.finding.model_copy(update={"minimal": minimal})
        with self._writing(), self._transaction() as sql:
            sql.execute("UPDATE findings SET minimal = ?, finding = ? WHERE verdict = ? AND id = ?",
                        (_bundle(bundle), _deflate(shown.model_dump_json()), found.verdict, found.id))

    @staticmethod
    def _put_blobs(sql: sqlite3.Connection, rows: Iterable[tuple[str, str, bytes]]) -> None:
        sql.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?, ?)", rows)

    @contextlib.contextmanager
    def _writing(self, *, alone: bool = False) -> Iterator[None]:
        """Take the store's lock, and tell refusals of the disk as StoreUnwritable."""
        try:
            with self._lock, database.lock(self.directory, exclusive=alone):
                yield
        except OSError as error:
            raise StoreUnwritable(f"the store cannot be written: {error.strerror or error}", str(self.directory),
                                  "free some room, or give another --store") from None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with database.failures(self.directory):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    # reading

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with database.failures(self.directory), self._lock:
            return self._connection.execute(query, values).fetchall()

    def verdict(self, identity: str) -> VerdictRecord:
        """A verdict by its id, or by the start of it. Raises StoreError when none or several have it."""
        rows = self._rows(f"SELECT {_VERDICT} FROM verdicts WHERE id LIKE ? LIMIT 2", (_prefix(identity),))
        if len(rows) != 1:
            raise self._unknown("verdict", identity, len(rows))
        row = dict(zip(_VERDICT.split(", "), rows[0], strict=True))
        context = json.loads(self._text(row["context"])) if row["context"] else {}
        if row["study_blob"]:
            context["study"] = json.loads(self._blob(row["study_blob"]))
        with self._sound():
            return VerdictRecord(
                id=row["id"], created=row["created"],
                report=Report.model_validate_json(self._text(row["report"])),
                task=Task.model_validate_json(self._blob(row["task_blob"])),
                candidate=Candidate.model_validate_json(self._blob(row["candidate_blob"])),
                contract=Contract.model_validate_json(self._blob(row["contract_blob"])), context=context)

    def verdicts(self, *, task: str | None = None, candidate: str | None = None, label: str | None = None,
                 limit: int | None = None) -> list[VerdictSummary]:
        """Verdicts, the latest first.

        Args:
            task: digest of the task.
            candidate: digest of the candidate.
            label: `rejected`, `screened` or `contract`.
            limit: at most so many.
        """
        wanted = {"task": task, "candidate": candidate, "label": label}
        clauses = [f"{name} = ?" for name, value in wanted.items() if value is not None]
        query = ("SELECT id, created, task_name, candidate_name, label, scope, tier, seed, "
                 "(SELECT count(*) FROM findings WHERE verdict = verdicts.id) FROM verdicts"
                 + (f" WHERE {' AND '.join(clauses)}" if clauses else "") + " ORDER BY created DESC, id LIMIT ?")
        values = [value for value in wanted.values() if value is not None]
        names = ("id", "created", "task", "candidate", "label", "scope", "tier", "seed", "findings")
        return [VerdictSummary(**dict(zip(names, row, strict=True)))
                for row in self._rows(query, [*values, -1 if limit is None else limit])]

    def findings(self, verdict: str) -> list[FindingRecord]:
        """The findings of a verdict, by its id or the start of it, in the order of the report."""
        identity = self.verdict(verdict).id
        return [self._finding(row) for row in self._rows(
            f"SELECT {_FINDING}, (SELECT created FROM verdicts WHERE id = verdict) FROM findings "
            "WHERE verdict = ? ORDER BY number", (identity,))]

    def finding(self, identity: str) -> FindingRecord:
        """A finding by its id, or by the start of it; of the latest verdict that has it.

        Raises StoreError when none has it, or several different ones do.
        """
        rows = self._rows(
            f"SELECT {', '.join('findings.' + name.strip() for name in _FINDING.split(','))}, verdicts.created "
            "FROM findings JOIN verdicts ON verdicts.id = findings.verdict WHERE findings.id LIKE ? "
            "ORDER BY (bundle IS NOT NULL) DESC, verdicts.created DESC", (_prefix(identity),))
        names = {row[2] for row in rows}
        if len(names) != 1:
            raise self._unknown("finding", identity, len(names))
        return self._finding(rows[0])

    def _finding(self, row: Sequence[Any]) -> FindingRecord:
        verdict, _, identity, _, _, finding, bundle, minimal, digest, note, created = row
        with self._sound():
            return FindingRecord(
                id=identity, verdict=verdict, created=created,
                finding=Finding.model_validate_json(self._text(finding)),
                bundle=Bundle.model_validate_json(self._text(bundle)) if bundle else None,
                inputs_kept=digest is not None, note=note,
                minimal=Bundle.model_validate_json(self._text(minimal)) if minimal else None)

    def tensors(self, found: FindingRecord) -> dict[str, torch.Tensor]:
        """The tensors kept of a finding, by name (see `Captured`); empty when none were. Raises StoreDamaged."""
        rows = self._rows("SELECT tensors FROM findings WHERE verdict = ? AND id = ? AND tensors IS NOT NULL",
                          (found.verdict, found.id))
        return tensors.decode(tensors.read(self._files, rows[0][0])) if rows else {}

    def failures(self, task: str, contract: Contract, device: str, limit: int = 8) -> list[Bundle]:
        """What candidates of a task failed on, the latest first, one per gate, reason and kind of probe.

        Args:
            task: digest of the task.
            contract: the obligations; failures under others are no obligation here.
            device: `cpu` or `cuda`, where they were found.
            limit: at most so many.
        """
        digest, _ = _addressed(contract.model_dump(mode="json"))
        rows = self._rows(
            "SELECT findings.minimal, findings.bundle FROM findings JOIN verdicts ON verdicts.id = findings.verdict "
            "WHERE verdicts.task = ? AND verdicts.contract_blob = ? AND verdicts.device = ? "
            "AND findings.bundle IS NOT NULL ORDER BY verdicts.created DESC, findings.number LIMIT ?",
            (task, digest, device, 40 * limit))
        chosen: dict[tuple[str, str, str], Bundle] = {}
        for minimal, bundle in rows:
            with self._sound():
                found = Bundle.model_validate_json(self._text(minimal or bundle))
            chosen.setdefault((found.gate, found.reason, found.probe.id), found)
            if len(chosen) == limit:
                break
        return list(chosen.values())

    def _blob(self, digest: str) -> str:
        rows = self._rows("SELECT data FROM blobs WHERE digest = ?", (digest,))
        if not rows:
            raise database.damaged(self.directory, f"text {digest[:12]} is missing")
        return self._text(rows[0][0])

    def _text(self, data: bytes) -> str:
        with self._sound():
            return zlib.decompress(data).decode()

    @contextlib.contextmanager
    def _sound(self) -> Iterator[None]:
        """What the store holds reads back as what was put there, or is damaged."""
        try:
            yield
        except (zlib.error, ValueError) as error:
            raise database.damaged(self.directory, str(error).splitlines()[0]) from None

    def _unknown(self, what: str, identity: str, count: int) -> StoreError:
        if count:
            return StoreError(f"`{identity}` is the start of more than one {what}", str(self.directory),
                              "give more of it")
        return StoreError(f"no {what} `{identity}`", str(self.directory), "`assay store list` shows what there is")

    # keeping house

    def stats(self) -> dict[str, int]:
        """Numbers of verdicts, findings, tasks, candidates and files, and the bytes they take."""
        count = "SELECT count(*) FROM verdicts"
        queries = {
            "verdicts": count, "rejected": f"{count} WHERE label = 'rejected'",
            "contract": f"{count} WHERE label = 'contract'", "screened": f"{count} WHERE label = 'screened'",
            "findings": "SELECT count(*) FROM findings", "distinct_findings": "SELECT count(DISTINCT id) FROM findings",
            "minimised": "SELECT count(*) FROM findings WHERE minimal IS NOT NULL",
            "tasks": "SELECT count(DISTINCT task) FROM verdicts",
            "candidates": "SELECT count(DISTINCT candidate) FROM verdicts",
            "environments": "SELECT count(DISTINCT environment_blob) FROM verdicts",
            "tensor_files": "SELECT count(*) FROM tensors",
            "tensor_bytes": "SELECT coalesce(sum(bytes), 0) FROM tensors",
            "database_bytes": "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
        }
        return {name: int(self._rows(query)[0][0]) for name, query in queries.items()}

    def verify(self) -> list[str]:
        """What is wrong with the store, in words; nothing when it is sound.

        SQLite's own check, its foreign keys, the hash of every text and of every file, and that every verdict
        and finding reads back.
        """
        problems = []
        try:
            checked = [row[0] for row in self._rows("PRAGMA integrity_check")]
        except StoreDamaged as error:
            return [error.what]
        problems += [f"database: {line}" for line in checked if line != "ok"]
        problems += [f"database: a row of {row[0]} points nowhere" for row in self._rows("PRAGMA foreign_key_check")]
        for digest, kind, data in self._rows("SELECT digest, kind, data FROM blobs"):
            try:
                sound = _digest_of(kind, self._text(data)) == digest
            except StoreDamaged:
                sound = False
            if not sound:
                problems.append(f"{kind} {digest[:12]}: not what its hash says")
        for (digest,) in self._rows("SELECT digest FROM tensors"):
            try:
                tensors.read(self._files, digest)
            except StoreDamaged as error:
                problems.append(f"tensors {digest[:12]}: {error.what}")
        for (identity,) in self._rows("SELECT id FROM verdicts"):
            try:
                self.findings(identity)
            except StoreError as error:
                problems.append(f"verdict {identity}: {error.what}")
        return problems

    def gc(self, *, older_than_days: float | None = None, keep: int | None = None) -> dict[str, int]:
        """Remove what nothing refers to, and old verdicts where that is asked for; what was removed, by kind.

        Args:
            older_than_days: remove verdicts kept longer ago than that.
            keep: remove all but so many of the latest verdicts.

        Raises StoreUnwritable, or StoreDamaged: of a damaged store nothing is removed.
        """
        removed = {"verdicts": 0, "texts": 0, "files": 0, "bytes": 0}
        with self._writing(alone=True):
            with self._transaction() as sql:
                doomed: set[str] = set()
                if older_than_days is not None:
                    before = (datetime.now(UTC) - timedelta(days=older_than_days)).isoformat(timespec="microseconds")
                    doomed |= {r[0] for r in sql.execute("SELECT id FROM verdicts WHERE created < ?", (before,))}
                if keep is not None:
                    doomed |= {r[0] for r in sql.execute(
                        "SELECT id FROM verdicts ORDER BY created DESC, id LIMIT -1 OFFSET ?", (max(0, keep),))}
                for identity in doomed:
                    sql.execute("DELETE FROM findings WHERE verdict = ?", (identity,))
                    sql.execute("DELETE FROM verdicts WHERE id = ?", (identity,))
                removed["verdicts"] = len(doomed)
                sql.execute("DELETE FROM tensors WHERE digest NOT IN "
                            "(SELECT tensors FROM findings WHERE tensors IS NOT NULL)")
                used = " UNION ".join(f"SELECT {name} FROM verdicts WHERE {name} IS NOT NULL" for name in _BLOBS)
                removed["texts"] = sql.execute(f"DELETE FROM blobs WHERE digest NOT IN ({used})").rowcount
                kept = {r[0] for r in sql.execute("SELECT digest FROM tensors")}
            # after the commit: a file that goes too early is lost, one that stays too long is not
            for path in sorted(self._files.glob("*/*")) if self._files.is_dir() else ():
                if path.name.removesuffix(tensors.SUFFIX) not in kept:
                    removed["files"] += 1
                    removed["bytes"] += path.stat().st_size
                    path.unlink()
            with contextlib.suppress(sqlite3.OperationalError):
                # room is given back to the disk where nobody reads just now
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._connection.execute("VACUUM")
        return removed

    def export(self, path: str | Path, wanted: Sequence[str] = ()) -> dict[str, int]:
        """Copy verdicts into another store, which may exist and keeps what it has; numbers copied.

        Args:
            path: folder of the other store.
            wanted: ids (or starts of ids) of verdicts and findings, a finding bringing its verdict; all by default.

        Raises StoreError for an unknown id, StoreUnwritable for the other store.
        """
        identities = [self._verdict_of(name) for name in wanted] if wanted else [
            row[0] for row in self._rows("SELECT id FROM verdicts ORDER BY created")]
        done = {"verdicts": 0, "findings": 0, "files": 0}
        with type(self).open(path, create=True) as other:
            if other.directory.resolve() == self.directory.resolve():
                raise StoreError("a store cannot be exported into itself", str(path), "give another folder")
            for identity in dict.fromkeys(identities):
                for name, count in self._copy(identity, other).items():
                    done[name] += count
        return done

    def _verdict_of(self, name: str) -> str:
        try:
            return self.verdict(name).id
        except StoreDamaged:
            raise
        except StoreError:
            return self.finding(name).verdict

    def _copy(self, identity: str, other: Store) -> Mapping[str, int]:
        (verdict,) = self._rows(f"SELECT {_VERDICT} FROM verdicts WHERE id = ?", (identity,))
        findings = self._rows(f"SELECT {_FINDING} FROM findings WHERE verdict = ?", (identity,))
        digests = [d for d in verdict[-len(_BLOBS):] if d is not None]
        blobs = self._rows(f"SELECT digest, kind, data FROM blobs WHERE digest IN ({_marks(len(digests))})", digests)
        files = {row[8] for row in findings if row[8] is not None}
        with other._writing():
            written = [tensors.write(other._files, tensors.read(self._files, digest)) for digest in sorted(files)]
            with other._transaction() as sql:
                self._put_blobs(sql, blobs)
                sql.executemany("INSERT OR IGNORE INTO tensors VALUES (?, ?)", written)
                sql.execute(f"INSERT OR IGNORE INTO verdicts VALUES ({_marks(len(verdict))})", verdict)
                sql.executemany(f"INSERT OR IGNORE INTO findings VALUES ({_marks(10)})", findings)
        return {"verdicts": 1, "findings": len(findings), "files": len(written)}


def _task_digest(task: Task) -> str:
    return content_hash(task.digest, task.id, task.path)


def _digest_of(kind: str, text: str) -> str:
    """The hash under which a text of some kind is kept."""
    if kind == "task":
        return _task_digest(Task.model_validate_json(text))
    if kind == "candidate":
        found = Candidate.model_validate_json(text)
        return content_hash(found.entry or "", found.source)
    return data_digest(json.loads(text))


def _addressed(data: Any) -> tuple[str, str]:
    """JSON data as its hash and its text."""
    return data_digest(data), json.dumps(data, sort_keys=True)


def _bundle(bundle: Bundle | None) -> bytes | None:
    return None if bundle is None else _deflate(bundle.model_dump_json())


def _deflate(text: str) -> bytes:
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 6)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _prefix(identity: str) -> str:
    """A pattern for ids that start so; nothing else of the text is one."""
    kept = "".join(c for c in identity.lower() if c in "0123456789abcdef")
    return f"{kept}%" if kept and kept == identity.lower() else "-"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
