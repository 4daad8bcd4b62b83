"""What a report shows beside its numbers, taken from the records that a finding rests on. Pure: runs nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import torch

from assay.gates.attribution import explanation, fingerprint_of
from assay.gates.gradient_reasons import gradients_of
from assay.gates.numbers import compare_record, same_bits, same_form, shown, unravel
from assay.oracle.compare import ratios
from assay.oracle.truth import LeafTruth
from assay.probe.record import Record, Truth
from assay.report.exhibit import (
    CERTAIN,
    EXACT,
    MAP_LONG,
    MAP_SIDE,
    UNDECIDED,
    ErrorMap,
    ModeError,
    PrecisionFingerprint,
    SourceExcerpt,
    SpecialInput,
    SpecialValue,
)
from assay.report.model import Finding
from assay.vocabulary import Reason

MOST_MAPS = 16
"""Error maps in one report: each takes up to 6 kB."""
MOST_ELEMENTS = 1 << 24
"""Elements of an output above which no map of it is made."""
MOST_VALUES = 8
"""Special values named per input."""
AROUND = 4
"""Lines of source before and after the one concerned."""
LINE_CHARS = 160
_PLACE = re.compile(r"candidate\.py:(\d+)")
_SECOND_LOOK = {Reason.NOT_REPEATABLE, Reason.DEPENDS_ON_ADDRESS, Reason.EARLIER_OUTPUT_CHANGED}
"""Reasons for which calls on one draw are compared with each other where each is within its tolerance."""


def illustrated(findings: Sequence[Finding], records: Mapping[str, Record], source: str) -> tuple[Finding, ...]:
    """The findings with what can be shown of them.

    Args:
        findings: as the gates made them.
        records: by the id of their probe.
        source: of the candidate.
    """
    done = []
    maps = 0
    for finding in findings:
        record = records.get(finding.probe)
        error_map = None
        if record is not None and maps < MOST_MAPS:
            error_map = error_map_of(finding, record)
            maps += error_map is not None
        done.append(finding.model_copy(update={
            "error_map": error_map,
            "special_inputs": () if record is None else special_inputs(record, _call_of(finding)),
            "source": excerpt(source, line_of(finding)),
        }))
    return tuple(done)


def _call_of(finding: Finding) -> int:
    call = finding.detail.get("call", 0)
    return call if isinstance(call, int) else 0


def error_map_of(finding: Finding, record: Record) -> ErrorMap | None:
    """Where the output that a finding is about is wrong; None where nothing on it is, or nothing came back."""
    calls, number, name = record.observation.calls, _call_of(finding), finding.output
    if name is None or number >= len(calls) or not record.truth_of(number).ok:
        return None
    if name.startswith("grad "):
        return _gradient_map(name, record)
    truth, call = record.truth_of(number), calls[number]
    if not same_form(truth, call) or truth.random:
        return None
    for output, leaf in zip(call.outputs, truth.leaves, strict=True):
        if output.path != name:
            continue
        found = _wrong(leaf, output.tensor)
        if found is None and finding.reason in _SECOND_LOOK:
            found = _unlike(record, number, name)
        return None if found is None else ErrorMap(output=name, shape=output.shape, call=number, **grid(found))
    return None


def _gradient_map(name: str, record: Record) -> ErrorMap | None:
    """The map of the first call whose gradient is wrong."""
    leaf = record.truths[0].gradients.get(name.removeprefix("grad "))
    for number, call in enumerate(record.observation.calls):
        gradient = gradients_of(call).get(name.removeprefix("grad "))
        if leaf is not None and gradient is not None and gradient.shape == leaf.y.shape:
            found = _wrong(leaf, gradient)
            if found is not None:
                return ErrorMap(output=name, shape=tuple(gradient.shape), call=number, **grid(found))
    return None


def _wrong(leaf: LeafTruth, actual: torch.Tensor) -> torch.Tensor | None:
    """Error ÷ tolerance, shape of the leaf; None where every element is right or there are too many."""
    if leaf.kind == "none" or not 0 < leaf.y.numel() <= MOST_ELEMENTS:
        return None
    found = ratios(leaf, actual)
    return found if bool((found > 1.0).any()) else None


def _unlike(record: Record, number: int, name: str) -> torch.Tensor | None:
    """Infinite where the bits of a call differ from those of an earlier call on the same draw, else 0."""
    calls = record.observation.calls
    draw = record.probe.calls[number].draw
    for earlier in range(number):
        if record.probe.calls[earlier].draw != draw:
            continue
        for a, b in zip(calls[earlier].outputs, calls[number].outputs, strict=False):
            if a.path == b.path == name and a.shape == b.shape and not same_bits(a.tensor, b.tensor):
                both_nan = torch.isnan(a.tensor) & torch.isnan(b.tensor)
                differs = (a.tensor != b.tensor) & ~both_nan
                return torch.where(differs, math.inf, 0.0).to(torch.float64) if bool(differs.any()) else None
    return None


def grid(values: torch.Tensor) -> dict[str, object]:
    """Cells of a map, `cell` and `rows` of an `ErrorMap`, each the largest value in it.

    Args:
        values: error ÷ tolerance, float64, any shape with at least one element; NaN decides nothing.
    """
    width = values.shape[-1] if values.dim() else 1
    matrix = values.reshape(-1, width)
    height = matrix.shape[0]
    down, across = _side(height, width), _side(width, height)
    cell = (math.ceil(height / down), math.ceil(width / across))
    down, across = math.ceil(height / cell[0]), math.ceil(width / cell[1])
    levels = torch.nan_to_num(matrix, nan=-1.0, posinf=math.inf)
    padded = torch.full((down * cell[0], across * cell[1]), -1.0, dtype=torch.float64, device=values.device)
    padded[:height, :width] = levels
    most = padded.reshape(down, cell[0], across, cell[1]).amax(dim=(1, 3)).tolist()
    return {"cell": cell, "rows": tuple("".join(map(character, row)) for row in most)}


def _side(length: int, other: int) -> int:
    """Cells along one side: more of them where the other side is short."""
    return min(length, max(MAP_SIDE, min(MAP_LONG, MAP_SIDE * MAP_SIDE // min(other, MAP_SIDE))))


def character(ratio: float) -> str:
    """The character of a cell by its largest error ÷ tolerance; negative where nothing decides."""
    if ratio < 0.0:
        return UNDECIDED
    if ratio == 0.0:
        return EXACT
    if math.isinf(ratio):
        return CERTAIN
    if ratio > 1.0:
        return chr(ord("A") + min(25, math.ceil(math.log2(ratio)) - 1))
    return chr(ord("a") + min(25, math.floor(-math.log2(ratio))))


def special_inputs(record: Record, call: int) -> tuple[SpecialInput, ...]:
    """Inputs into which the probe put values, and inputs with NaN or infinities."""
    if call >= len(record.probe.calls):
        call = 0
    draw = record.probe.draws[record.probe.calls[call].draw]
    truth: Truth | None = record.truths[record.probe.calls[call].draw] if record.truths else None
    if truth is None:
        return ()
    found = []
    for number, tensor in enumerate(truth.inputs):
        total = tensor.numel()
        if total == 0 or total > MOST_ELEMENTS or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        flat = tensor.reshape(-1)
        places = [min(total - 1, int(i.position * total)) for i in draw.injections if i.leaf == number]
        if not bool(torch.isfinite(flat).all()):
            places += (~torch.isfinite(flat)).nonzero().reshape(-1).tolist()
        places = list(dict.fromkeys(places))
        if places:
            found.append(SpecialInput(
                input=number, shape=tuple(tensor.shape), count=len(places),
                values=tuple(SpecialValue(index=unravel(place, tuple(tensor.shape)), value=shown(flat[place].item()))
                             for place in places[:MOST_VALUES])))
    return tuple(found)


def line_of(finding: Finding) -> int | None:
    """The line of the candidate that a finding names, as a number or as `candidate.py:N`."""
    line = finding.detail.get("line")
    if isinstance(line, int) and not isinstance(line, bool):
        return line
    named = _PLACE.search(str(finding.detail.get("place") or ""))
    return int(named.group(1)) if named else None


def excerpt(source: str, line: int | None) -> SourceExcerpt | None:
    """A line with those around it; None where it is not known or not in the source."""
    lines = source.split("\n")
    if line is None or not 1 <= line <= len(lines):
        return None
    first = max(1, line - AROUND)
    chosen = lines[first - 1: line + AROUND]
    while chosen and not chosen[-1].strip() and first + len(chosen) - 1 > line:
        chosen.pop()
    return SourceExcerpt(line=line, first=first, lines=tuple(
        text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…" for text in chosen))


def fingerprints(records: Sequence[Record]) -> tuple[PrecisionFingerprint, ...]:
    """Which arithmetic explains each record whose truth carries the modes to tell."""
    found = []
    for record in records:
        if not record.comparable or not record.truths[0].modes or record.probe.kind not in ("fingerprint", "control"):
            continue
        seen = fingerprint_of(record)
        if seen is None or not any(seen.ratios.values()):
            # a result without any error tells nothing of its arithmetic
            continue
        # the gate's word, not the oracle's: a mode that merely allows the error explains nothing
        mode = seen.mode if seen.mode == "declared" else explanation(seen, compare_record(record))
        found.append(PrecisionFingerprint(
            probe=record.probe.id, mode=mode, recognised=seen.recognised and mode == seen.mode,
            effective_bits=round(max(-64.0, min(64.0, seen.effective_bits)), 1),
            modes=tuple(ModeError(
                mode=name, ratio=float(f"{ratio:.4g}") if math.isfinite(ratio) else None,
                correlation=round(seen.correlation[name], 3) if name in seen.correlation else None,
                identifiable=seen.identifiable.get(name)) for name, ratio in seen.ratios.items())))
    return tuple(found)


def entry_line(source: str, entry: str) -> int | None:
    """Line on which the class or function that is called is defined."""
    found = re.search(rf"^[ \t]*(?:async[ \t]+def|def|class)[ \t]+{re.escape(entry)}\b", source, re.MULTILINE)
    return source.count("\n", 0, found.start()) + 1 if entry and found else None
