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
_DRIFT = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "NotImplementedError", "ToolchainError"})
_COMPILED = frozenset({"triton", "cuda"})
"""Languages whose kernels can be compiled for a target on any machine."""


class Resources:
    """Every kernel that the candidate launches, compiled for each target with the arguments it is launched with.

    Kernels of CUDA C++ are those of the extensions that it builds. Needs no GPU. What compiles but goes over a limit
    of the target fails there at launch, so the compiler's numbers are compared with the limits. Where the contract
    limits scratch memory, one call shows how much is taken.
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
        found, named = _COMPILED & {ctx.language, *ctx.languages}, ctx.contract.resources.targets
        # without a GPU an extension is compiled for this alone, which takes longer than all the rest
        wanted = "triton" in found or bool(named) or (bool(found) and ctx.device == "cuda")
        if not found or not wanted or (ctx.quick and not named):
            return []
        targets = named or (ctx.target,)
        return [single(self, target, Draw(seed=ctx.draw_seed("values", 0)), ctx.sizes,
                       conditions=(f"compile:{target}",), kind="compile") for target in targets]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Compare what the compiler reports with what the target has."""
        mine = own(self, records)
        if not mine:
            why = ("not part of this tier" if _COMPILED & {ctx.language, *ctx.languages}
                   else "no kernel of Triton or CUDA C++ to compile")
            return Verdict(inapplicable=Reason.NOTHING_TO_VARY, note=why)
        verdict = Verdict()
        notes: list[str] = []
        for record in mine:
            if record.probe.kind == "scratch":
                self._held(ctx, record, verdict, notes)
                continue
            target = record.probe.conditions[0].removeprefix("compile:")
            compiled = record.observation.facts.get("compiled") or []
            unread = "" if compiled else _why(record)
            for kernel, tried in _by_launch(compiled):
                failures = [c for c in tried if c.get("error") or c.get("over")]
                if len(failures) < len(tried):
                    best = next(c for c in tried if c not in failures)
                    notes.append(f"{kernel} on {target}: {best.get('registers')} registers, {best['shared']} B shared"
                                 + (f", {best['tensor_memory']} tensor-memory columns" if best["tensor_memory"] else "")
                                 + (f", {best['spilled']} B spilled" if best.get("spilled") else "")
                                 + (f", occupancy at most {best['occupancy']:.0%}" if best.get("occupancy") else ""))
                    continue
                worst = failures[0]
                if worst.get("error_type") in _DRIFT:
                    unread = str(worst.get("error") or "it failed").splitlines()[-1]
                    continue
                verdict.findings.append(self._finding(record, kernel, target, worst))
            if not unread:
                verdict.decided += 1
            else:
                notes.insert(0, f"not checked for {target}: {unread}"[:160])
                found = _COMPILED & {ctx.language, *ctx.languages}
                # that what was built for the device at hand runs there, every other probe shows
                owed = ctx.contract.resources.targets or found == {"triton"} or ctx.device != "cuda"
                verdict.undecided[Reason.TOOLCHAIN if owed else Reason.NOTHING_TO_VARY] += 1
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
                      else Reason.SHARED_MEMORY if "shared memory" in lowered or "shared data" in lowered
                      else Reason.COMPILE_FAILED)
            last = text.splitlines()[-1] if text else "failed"
            expected, actual = f"compiles for {target}", f"{kernel}: {last}"[:300]
            detail["error"] = text
        return Finding(gate=self.id, slug=self.slug, reason=reason, tier=Tier.WRONG, tolerance_free=True,
                       expected=expected, actual=actual, detail=detail, attested_by="worker", probe=record.probe.id)


def _why(record: Record) -> str:
    """Why nothing was compiled."""
    seen = record.observation
    said = str((seen.error or {}).get("message") or seen.text).strip()
    return said.splitlines()[-1] if said else "nothing was compiled"


def _by_launch(compiled: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Kernel and the configurations tried, launch by launch."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for item in compiled:
        groups.setdefault(int(item.get("launch", 0)), []).append(item)
    return [(str(tried[0].get("kernel")), tried) for tried in groups.values()]
