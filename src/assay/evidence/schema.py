"""Tables of the store, and how an older store becomes a newer one."""

from __future__ import annotations

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE blobs (
        digest TEXT PRIMARY KEY,      -- SHA-256 of the text
        kind TEXT NOT NULL,           -- task, candidate, contract, environment, study
        data BLOB NOT NULL            -- the text, deflated
    ) WITHOUT ROWID;
    CREATE TABLE tensors (
        digest TEXT PRIMARY KEY,      -- SHA-256 of the file
        bytes INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE verdicts (
        id TEXT PRIMARY KEY,
        created TEXT NOT NULL,        -- UTC, ISO 8601
        task TEXT NOT NULL,           -- digest of the task, as reports name it
        task_name TEXT NOT NULL,
        candidate TEXT NOT NULL,      -- digest of the candidate, likewise
        candidate_name TEXT NOT NULL,
        label TEXT NOT NULL,
        scope TEXT NOT NULL,
        tier TEXT NOT NULL,
        device TEXT NOT NULL,
        seed INTEGER NOT NULL,
        report BLOB NOT NULL,         -- JSON, deflated
        context BLOB,                 -- JSON without the study, deflated
        task_blob TEXT NOT NULL REFERENCES blobs(digest),
        candidate_blob TEXT NOT NULL REFERENCES blobs(digest),
        contract_blob TEXT NOT NULL REFERENCES blobs(digest),
        environment_blob TEXT NOT NULL REFERENCES blobs(digest),
        study_blob TEXT REFERENCES blobs(digest)
    ) WITHOUT ROWID;
    CREATE INDEX verdicts_by_task ON verdicts(task, contract_blob);
    CREATE INDEX verdicts_by_time ON verdicts(created);
    CREATE TABLE findings (
        verdict TEXT NOT NULL REFERENCES verdicts(id),
        number INTEGER NOT NULL,      -- place in the report
        id TEXT NOT NULL,
        gate TEXT NOT NULL,
        reason TEXT NOT NULL,
        finding BLOB NOT NULL,        -- JSON, deflated
        bundle BLOB,                  -- JSON, deflated
        minimal BLOB,                 -- likewise, of the smallest input
        tensors TEXT REFERENCES tensors(digest),
        note TEXT NOT NULL,
        PRIMARY KEY (verdict, number)
    ) WITHOUT ROWID;
    CREATE INDEX findings_by_id ON findings(id);
    """,
)
"""One script per version; `PRAGMA user_version` counts those that were run."""
