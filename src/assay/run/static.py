"""A static layer beside the probes: the rules of `kernelguard`, whose hits are hints and never a verdict.

Reading a hostile source is left to another process: it may be made to exhaust a parser.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from contextlib import suppress
from typing import Any

from assay.report.model import Hint

SECONDS = 20.0
MOST = 12
_SCRIPT = (
    "import json, sys, kernelguard\n"
    "found = kernelguard.analyze_code(sys.stdin.buffer.read().decode('utf-8', 'replace'))\n"
    "json.dump(found.get('matched_patterns', []), sys.stdout)\n"
)


class Scan:
    """One scan, started at once and collected later. Nothing happens where kernelguard is not installed.

    Args:
        source: the candidate's source text.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._process: subprocess.Popen[bytes] | None = None
        if importlib.util.find_spec("kernelguard") is not None:
            self._process = subprocess.Popen([sys.executable, "-I", "-c", _SCRIPT], stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def hints(self) -> tuple[Hint, ...]:
        """What the rules found, most severe first; empty when they are not installed or did not finish."""
        if self._process is None:
            return ()
        try:
            out, _ = self._process.communicate(self._source.encode(), timeout=SECONDS)
        except (subprocess.TimeoutExpired, OSError):
            self._process.kill()
            self._process.wait()
            return ()
        with suppress(ValueError):
            found = json.loads(out)
            if isinstance(found, list):
                hints = [_hint(item) for item in found if isinstance(item, dict)]
                return tuple(sorted(hints, key=lambda h: (_SEVERITY.get(h.severity, 9), h.rule))[:MOST])
        return ()

    def close(self) -> None:
        """End the scan, finished or not."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


_SEVERITY = {"critical": 0, "high": 1, "medium": 2, "low": 3}


def _hint(item: dict[str, Any]) -> Hint:
    def text(name: str) -> str:
        return "".join(c for c in str(item.get(name, "")) if c.isprintable())[:200]

    return Hint(rule=text("pattern"), severity=text("severity"), evidence=text("evidence"))
