"""Commands in this process, and a small corpus."""

from __future__ import annotations

from ..cli.conftest import assay as assay
