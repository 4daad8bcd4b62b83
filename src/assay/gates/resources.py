"""RES-02: compiles and fits on every declared target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.gates.base import Context, Verdict, distinct, own, single, undecided_reason
from assay.probe.model import Draw, Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

DEFAULT_TARGET = "sm_90"
_DRIFT = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "NotImplementedError"})


class Resources:
    """Every kernel that the candidate launches, compiled for each target with the arguments it is launched with.

    Needs no GPU. What compiles but goes over a limit of the target fails there at launch, so the compiler's
    numbers are compared with the limits. Where the contract limits scratch memory, one call shows how much is taken.
    """

    id = "RES-02"
    slug = "resources"
    aliases = ("lethe:RES-02", "veit:resource-fit")
    obligation = "compiles and fits on every declared target: registers, shared memory, tensor memory, threads"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """One call where scratch memory is limited; one compiling probe per target, at the native sizes."""
        return self._scratch(ctx) + self._compiling(ctx)

    def _scratch(self, ctx: Context) -> list[Probe]:
        if ctx.contract.memory.extra_bytes is None:
            return []
        return [single(self, "scratch", Draw(seed=ctx.draw_seed("values", 0)), ctx.sizes, kind="scratch",
                       conditions=("scratch:1",))]

    def _compiling(self, ctx: Context) -> list[Probe]:
        if "triton" not in (ctx.language, *ctx.languages) or (ctx.quick and not ctx.contract.resources.targets):
            return []
        targets = ctx.contract.resources.targets or (ctx.target,)
        return [single(self, target, Draw(seed=ctx.draw_seed("values", 0)), ctx.sizes,
                       conditions=(f"compile:{target}",), kind="compile") for target in targets]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Compare what the compiler reports with what the target has."""
        mine = own(self, records)
        if not mine:
            why = "no Triton kernel to compile" if ctx.language != "triton" else "not part of this tier"
            return Verdict(inapplicable=Reason.NOTHING_TO_VARY, note=why)
        verdict = Verdict()
        notes: list[str] = []
        for record in mine:
            if record.probe.kind == "scratch":
                self._held(ctx, record, verdict, notes)
                continue
            target = record.probe.conditions[0].removeprefix("compile:")
            compiled = record.observation.facts.get("compiled") or []
            if not compiled:
                verdict.undecided[Reason.TOOLCHAIN] += 1
                continue
            verdict.decided += 1
            for kernel, tried in _by_launch(compiled):
                failures = [c for c in tried if c.get("error") or c.get("over")]
                if len(failures) < len(tried):
                    best = next(c for c in tried if c not in failures)
                    notes.append(f"{kernel} on {target}: {best.get('registers')} registers, {best['shared']} B shared"
                                 + (f", {best['tensor_memory']} tensor-memory columns" if best["tensor_memory"] else "")
                                 + (f", {best['spilled']} B spilled" if best.get("spilled") else ""))
                    continue
                worst = failures[0]
                if worst.get("error_type") in _DRIFT:
                    verdict.decided -= 1
                    verdict.undecided[Reason.TOOLCHAIN] += 1
                    continue
                verdict.findings.append(self._finding(record, kernel, target, worst))
        verdict.note = "; ".join(dict.fromkeys(notes[:3])) or None
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _held(self, ctx: Context, record: Record, verdict: Verdict, notes: list[str]) -> None:
        """The most memory that torch held at once during a call, beyond inputs and outputs."""
        limit = ctx.contract.memory.extra_bytes
        seen = [call.get("scratch") for call in record.observation.facts.get("per_call") or []]
        if (reason := undecided_reason(record)) is not None or not seen or limit is None:
            verdict.undecided[reason or Reason.RAISED] += 1
            return
        most = max(int(n) for n in seen if isinstance(n, int))
        verdict.decided += 1
        notes.append(f"{most} B of scratch memory")
        if most > limit:
            verdict.findings.append(Finding(
                gate=self.id, slug=self.slug, reason=Reason.SCRATCH_MEMORY, tier=Tier.VIOLATION, tolerance_free=True,
                expected=f"at most {limit} bytes beyond inputs and outputs", actual=f"{most} bytes at once",
                attested_by="worker", probe=record.probe.id))

    def _finding(self, record: Record, kernel: str, target: str, worst: dict[str, Any]) -> Finding:
        detail = {k: v for k, v in worst.items() if k not in ("seconds", "over", "error", "sha256") and v is not None}
        if worst.get("over"):
            what, needed, limit = worst["over"]
            reason = {"shared memory bytes": Reason.SHARED_MEMORY, "tensor-memory columns": Reason.TENSOR_MEMORY}.get(
                what, Reason.REGISTERS)
            expected, actual = f"at most {limit} {what} on {target}", f"{kernel} needs {needed}"
        else:
            text = str(worst["error"])
            lowered = text.lower() + str(worst.get("error_type", "")).lower()
            reason = (Reason.TENSOR_MEMORY if "tensor memory" in lowered or "tmem" in lowered
                      else Reason.SHARED_MEMORY if "shared memory" in lowered else Reason.COMPILE_FAILED)
            last = text.splitlines()[-1] if text else "failed"
            expected, actual = f"compiles for {target}", f"{kernel}: {last}"[:300]
            detail["error"] = text
        return Finding(gate=self.id, slug=self.slug, reason=reason, tier=Tier.WRONG, tolerance_free=True,
                       expected=expected, actual=actual, detail=detail, attested_by="worker", probe=record.probe.id)


def _by_launch(compiled: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Kernel and the configurations tried, launch by launch."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for item in compiled:
        groups.setdefault(int(item.get("launch", 0)), []).append(item)
    return [(str(tried[0].get("kernel")), tried) for tried in groups.values()]
