"""The tools for coding agents, asked by the SDK's own client over standard input and output."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

mcp = pytest.importorskip("mcp", reason="needs the extra `mcp`")
anyio = pytest.importorskip("anyio")

SOFTMAX = Path(__file__).resolve().parents[2] / "examples" / "softmax"
REFERENCE, WRONG = SOFTMAX / "reference.py", SOFTMAX / "wrong_padding_lanes.py"


def asked(folder: Path, options: list[str], calls: Any) -> list[tuple[bool, str]]:
    """What each call answers, as (whether it is an error, text); a call is a name and arguments, or a function of
    the answers so far that gives one."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    found: list[tuple[bool, str]] = []

    async def main() -> None:
        server = StdioServerParameters(command=sys.executable, cwd=folder,
                                       args=["-m", "assay", "mcp", "--device", "cpu", *options])
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            tools = sorted(t.name for t in (await session.list_tools()).tools)
            found.append((False, " ".join(tools)))
            for call in calls:
                name, arguments = call(found) if callable(call) else call
                answer = await session.call_tool(name, arguments)
                failed = bool(getattr(answer, "is_error", getattr(answer, "isError", False)))
                found.append((failed, "\n".join(getattr(c, "text", "") for c in answer.content)))

    anyio.run(main)
    return found


def test_a_kernel_is_verified_and_its_finding_replayed(tmp_path: Path) -> None:
    def first_finding(found: list[tuple[bool, str]]) -> tuple[str, dict[str, str]]:
        match = re.search(r"ids: (\w+)", found[1][1])
        assert match is not None, found[1][1]
        return "replay", {"finding": match[1]}

    tools, verdict, replayed, page, refused = asked(tmp_path, ["--store", str(tmp_path / "store")], [
        ("verify", {"reference": str(REFERENCE), "candidate": WRONG.read_text(), "tier": "quick", "fail_fast": True}),
        first_finding,
        ("explain", {"gate": "nonfinite"}),
        ("verify", {"reference": str(REFERENCE), "candidate": "missing.py"}),
    ])
    assert tools[1] == "explain prompt replay screen verify"
    assert not verdict[0]
    assert verdict[1].startswith("label: rejected")
    assert "expected" in verdict[1]
    assert "outcome: " in replayed[1]
    assert not replayed[0], replayed
    assert "**Obligation.**" in page[1]
    assert refused[0]
    assert "missing.py" in refused[1]


def test_what_is_kept_back_is_kept_back(tmp_path: Path) -> None:
    tools, verdict = asked(tmp_path, ["--redaction", "kinds"], [
        ("verify", {"reference": str(REFERENCE), "candidate": str(WRONG), "tier": "quick", "fail_fast": True})])
    assert "replay" not in tools[1].split()
    assert verdict[1].startswith("label: rejected")
    assert "expected" not in verdict[1]
