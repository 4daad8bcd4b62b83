"""Verdicts as tools for coding agents, over the Model Context Protocol. Needs the extra `mcp`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar

import anyio.to_thread

from assay import accept, pages, warm
from assay.contract.prompt import Redaction, feedback, instructions
from assay.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")

ABOUT = """Assay decides whether a generated GPU kernel (Triton, or PyTorch) is the same program as its reference.
A reference is a file with Model, get_inputs and get_init_inputs; a candidate defines ModelNew. Give paths, or the
sources themselves. `screen` is the usual cheap check and proves nothing; `verify` gives the verdict: `contract` means
that every obligation was found kept, `rejected` that one is broken, `screened` that something could not be decided."""


def _sdk() -> tuple[Any, type[Exception]]:
    """The class of servers, and the error whose text a client is told."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        # before version 2 of the SDK
        import importlib

        old = importlib.import_module("mcp.server.fastmcp")
        return old.FastMCP, importlib.import_module("mcp.server.fastmcp.exceptions").ToolError
    return MCPServer, ToolError


def create(*, device: str = "auto", redaction: Redaction = "none", sandbox: str = "auto",
           store: str | None = None) -> Any:
    """The server with its tools; `run("stdio")` serves.

    Args:
        device: `auto`, `cpu` or `cuda`.
        redaction: how much of a verdict is kept back, see docs/mcp.md.
        sandbox: how candidates are confined.
        store: where verdicts are kept, so that findings replay; None keeps nothing.

    Raises:
        InputError: an option is at fault.
        ModuleNotFoundError: the SDK is not installed.
    """
    kind, refused = _sdk()
    server = kind("assay", instructions=ABOUT, log_level="ERROR")
    accept.options(device=device, sandbox=sandbox)

    def tool(work: Callable[P, T]) -> Callable[P, T]:
        """Register a tool that works in a thread, one line for what is wrong with its input."""

        @functools.wraps(work)
        async def threaded(*args: P.args, **kwargs: P.kwargs) -> T:
            def called() -> T:
                try:
                    return work(*args, **kwargs)
                except InputError as error:
                    raise refused(" ".join(str(error).split())) from None

            return await anyio.to_thread.run_sync(called)

        server.tool()(threaded)
        return work

    @tool
    def verify(reference: str, candidate: str, contract: str | None = None,
               tier: Literal["quick", "standard", "deep"] = "standard", fail_fast: bool = False) -> str:
        """Decide whether a candidate is the same program as its reference.

        Args:
            reference: path or source of the reference.
            candidate: path or source of the candidate.
            contract: path of a TOML file with the obligations.
            tier: effort; quick takes seconds, standard ten or more.
            fail_fast: stop at the first finding that rejects.
        """
        from assay.verify import verify_task

        task, found = accept.pair(reference, candidate)
        options = accept.options(device=device, tier=tier, fail_fast=fail_fast, sandbox=sandbox, store=store)
        report = warm.call(lambda zygote: verify_task(task, found, contract=accept.contract(contract), options=options,
                                                      zygote=zygote))
        told = [f"label: {report.label.value} (scope {report.scope}, tier {tier})", "", feedback(report, redaction)]
        if redaction == "none" and store is not None and report.findings:
            told += ["Findings can be replayed by their ids: "
                     + ", ".join(f"{f.id} ({f.slug})" for f in report.findings if f.id)]
        return "\n".join(told)

    @tool
    def screen(reference: str, candidate: str, variant: str = "kernelbench-v0") -> str:
        """The usual cheap check: five random inputs at one size. Passing it is no verdict.

        Args:
            reference: path or source of the reference.
            candidate: path or source of the candidate.
            variant: kernelbench-v0 (1e-2), kernelbench (1e-4 at fp32) or hardened.
        """
        from assay.report.words import REASONS
        from assay.screen import screen_task

        task, found = accept.pair(reference, candidate)
        report = warm.call(lambda zygote: screen_task(task, found, variant=accept.variant(variant), device=device,
                                                      zygote=zygote))
        why = f": {REASONS[report.reason]}" if report.reason is not None else ""
        return f"screen: {report.outcome.value}{why}" + (f"\n{report.text}" if report.text else "")

    @tool
    def explain(gate: str) -> str:
        """What one obligation asks for, with a wrong kernel and its right twin.

        Args:
            gate: name of the gate, such as values, shapes or nonfinite.
        """
        (slug,) = accept.gates(gate) or ("values",)
        page = pages.gate_page(slug)
        if page is None:
            raise InputError(f"no page for `{slug}`", "explain", "`assay gates` lists the obligations")
        return page

    @tool
    def prompt(reference: str) -> str:
        """The contract of a task as instructions for whoever writes the kernel.

        Args:
            reference: path or source of the reference.
        """
        from assay.contract.cli import inferred_from

        task = accept.task(reference)
        inferred = inferred_from(task)
        return instructions(inferred.contract, reference=task.source, inferred=inferred)

    if store is not None and redaction == "none":
        kept = store

        @tool
        def replay(finding: str) -> str:
            """Run one finding again, on the same input bits.

            Args:
                finding: its id, or the start of it.
            """
            from assay.evidence import Store
            from assay.evidence.replay import replay as run

            with Store.open(kept) as opened:
                again = warm.call(lambda zygote: run(opened, finding, zygote, device=device, sandbox=sandbox))
            shown = again.found or again.recorded
            lines = [f"outcome: {again.outcome.value}", f"{shown.slug}: {shown.reason.value.replace('_', ' ')}",
                     f"expected {shown.expected}, got {shown.actual}"]
            lines += [again.why] if again.why else []
            lines += [f"{name}: {then} then, {now} now" for name, then, now in again.differences]
            return "\n".join(lines)

    return server
