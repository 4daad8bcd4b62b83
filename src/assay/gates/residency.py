"""RES-01: output device, dtype, shape, structure and strides class as the reference's."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct
from assay.probe.model import Probe
from assay.probe.record import CallResult, Record, Truth
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier


class Residency:
    """Judged on every call that any gate makes; the form of an output needs no tolerance."""

    id = "RES-01"
    slug = "residency"
    aliases = ("lethe:RES-01", "veit:output-placement")
    obligation = "output device, dtype, shape, structure and strides class as the reference's"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Nothing of its own: every call shows its outputs."""
        return []

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Compare the form of every output with the reference's for the same inputs."""
        verdict = Verdict()
        for record in records:
            if not record.comparable or record.probe.kind == "buffers":
                continue
            verdict.decided += 1
            for index, call in enumerate(record.observation.calls):
                verdict.findings += self._form(ctx, record, record.truth_of(index), call)
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _form(self, ctx: Context, record: Record, truth: Truth, call: CallResult) -> list[Finding]:
        def found(reason: Reason, path: str | None, expected: object, actual: object, tier: Tier) -> Finding:
            return Finding(gate=self.id, slug=self.slug, reason=reason, tier=tier, tolerance_free=True,
                           output=path, expected=str(expected)[:200], actual=str(actual)[:200],
                           probe=record.probe.id)

        if call.structure != truth.structure or len(call.outputs) != len(truth.leaves):
            return [found(Reason.STRUCTURE, None, truth.structure, call.structure, Tier.WRONG)]
        problems = []
        for output, leaf, contiguous in zip(call.outputs, truth.leaves, truth.contiguous, strict=True):
            shape = tuple(leaf.native.shape)
            if output.shape != shape:
                problems.append(found(Reason.SHAPE, output.path, list(shape), list(output.shape), Tier.WRONG))
                continue
            dtype = str(leaf.native.dtype).removeprefix("torch.")
            if output.dtype != dtype and ctx.contract.numerics.output_dtype == "reference":
                problems.append(found(Reason.DTYPE, output.path, dtype, output.dtype, Tier.WRONG))
            device = output.device.split(":")[0]
            # under emulation the worker names the device that the tensor would be on
            if device != "cuda":
                problems.append(found(Reason.DEVICE, output.path, "cuda", device, Tier.WRONG))
            if _usual_layout(record) and contiguous and not output.contiguous and output.tensor.numel() > 1:
                strides = f"strides {list(output.stride)}"
                problems.append(found(Reason.STRIDES, output.path, "contiguous", strides, Tier.VIOLATION))
        for path, value in truth.scalars.items():
            got = call.scalars.get(path)
            if value is not None and not truth.random and not _equal(value, got, truth.numbers.get(path)):
                problem = found(Reason.STRUCTURE, path, value, got, Tier.WRONG)
                if isinstance(got, float) and isinstance(value, float):
                    measured = {"reason": Reason.VALUE, "tolerance_free": False}
                    problem = problem.model_copy(update=measured)
                problems.append(problem)
        return problems


def _equal(value: object, got: object, truth: tuple[float, float] | None) -> bool:
    """Whether a plain value is the reference's: exactly, or, for a number, within its tolerance."""
    if got == value or (value != value and got != got):
        return True
    if truth is None or not isinstance(got, float) or not isinstance(value, float):
        return False
    exact, tolerance = truth
    # where the reference itself leaves the tolerance, the number decides nothing
    return abs(got - exact) <= tolerance or not abs(value - exact) <= tolerance


def _usual_layout(record: Record) -> bool:
    """True where inputs lie as the task makes them: elsewhere the strides of outputs follow no one rule."""
    return all(layout == "task" for draw in record.probe.draws for layout in draw.layouts)
