"""Audits of whole corpora: ingest, run, count, compare, and re-derive what others published."""
