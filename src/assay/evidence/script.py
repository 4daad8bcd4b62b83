"""One finding as a Python file of its own, which needs torch (and triton) and nothing of Assay.

The file carries both sources, the inputs, the expected values with their tolerances, and the code that makes the
calls and compares (`harness.py.txt`, the same in every file). What was written for CUDA and is shown on a CPU
brings the device emulation along, packed.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import lzma
import math
import textwrap
import zlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import torch

from assay import __version__
from assay.errors import InputError
from assay.evidence.bundle import input_digest
from assay.evidence.model import Bundle, FindingRecord, VerdictRecord
from assay.evidence.replay import bundle_to_run
from assay.evidence.stage import restaged
from assay.evidence.store import Store
from assay.gates import GATES
from assay.oracle import LeafTruth
from assay.oracle.compare import excess
from assay.oracle.truth import classes
from assay.probe.backward import steps_of
from assay.probe.layouts import Placement, as_made, place
from assay.probe.model import Draw, Probe
from assay.probe.record import Truth
from assay.report.model import Finding
from assay.report.words import REASONS, describe_probe
from assay.run import codec, weights
from assay.run.candidate import Weights
from assay.run.instruments import fill_of
from assay.run.process import Zygote
from assay.task import integers
from assay.vocabulary import Reason, Tier

WRITTEN_BYTES = 8 << 20
"""Most bytes of inputs and weights that are written into a script."""
CHECKED_ELEMENTS = 1 << 14
"""Most elements of an output whose expected values are written into a script."""
LITERAL_ELEMENTS = 64
HANG_SECONDS = 60.0

_VALUES = {Reason.VALUE, Reason.INDEX, Reason.INTEGER, Reason.PRECISION_TF32, Reason.PRECISION_BF16,
           Reason.PRECISION_FP16, Reason.PRECISION_FAST_MATH, Reason.NARROW_ACCUMULATOR, Reason.NAN_SWALLOWED,
           Reason.NAN_MINTED, Reason.INF_SIGN, Reason.INF_SWALLOWED, Reason.INF_MINTED, Reason.LEAKED,
           Reason.DEPENDS_ON_HISTORY, Reason.STALE_RESULT, Reason.DEPENDS_ON_ADDRESS}
_CHECKS: dict[str, set[Reason]] = {
    "values": _VALUES,
    "form": {Reason.SHAPE, Reason.DTYPE, Reason.DEVICE, Reason.STRIDES, Reason.STRUCTURE},
    "fault": {Reason.RAISED, Reason.SIZE_REJECTED, Reason.EXITED, Reason.SIGNALLED, Reason.TIMED_OUT},
    "mutation": {Reason.INPUT_CHANGED, Reason.PARAMETER_CHANGED},
    "aliasing": {Reason.ALIASES_INPUT, Reason.ALIASES_EARLIER_OUTPUT, Reason.EARLIER_OUTPUT_CHANGED},
    "bounds": {Reason.OUT_OF_BOUNDS_READ, Reason.OUT_OF_BOUNDS_WRITE},
    "fresh": {Reason.UNINITIALISED},
    "repeat": {Reason.NOT_REPEATABLE},
    "gradients": {Reason.SEVERED, Reason.GRADIENT_MISSING, Reason.GRADIENT_VALUE, Reason.GRADIENT_SHAPE,
                  Reason.GRADIENT_RAISED, Reason.GRADIENT_NOT_ACCUMULATED, Reason.GRADIENT_NOT_REPEATABLE,
                  Reason.GRADIENT_LAYOUT, Reason.SAVED_TENSOR_CHANGED},
    "patched": {Reason.HARNESS_PATCHED},
    "launches": {Reason.KERNEL_NEVER_RAN},
    "sought": {Reason.REFERENCE_SOUGHT},
    "compiled": {Reason.SHARED_MEMORY, Reason.TENSOR_MEMORY, Reason.REGISTERS, Reason.COMPILE_FAILED},
}
_MADE = frozenset({"config", "tune", "fresh", "fence", "pad", "poison", "mode", "backward", "tie", "cotangent", "state",
                   "modes", "work", "hold", "compile"})
"""Conditions that a script makes, or that change nothing for what it shows; only Assay's own worker makes others."""


_EXTENSIONS = "from assay.run import builds, extension_resources\n"
_NO_EXTENSIONS = ("import shutil\nfrom types import SimpleNamespace\n"
                  "builds, extension_resources = None, SimpleNamespace(find=shutil.which)\n")


class NoScript(InputError):
    """A finding that no script on its own can show."""


def script_of(store: Store, identity: str, zygote: Zygote, *, minimal: bool = False, device: str = "auto") -> str:
    """The text of a script that shows a finding, and exits with 1 while the fault is there.

    Args:
        store: where the finding is kept.
        identity: its id, or the start of it.
        zygote: a warm parent; only the reference is run.
        minimal: show the smallest input that was found.
        device: `auto` for where it was found.

    Raises NoScript where a script cannot show it, StoreError where the store has not enough of it.
    """
    found = store.finding(identity)
    verdict = store.verdict(found.verdict)
    bundle = bundle_to_run(found, minimal=minimal)
    check = check_of(found.finding, bundle)
    where = str(verdict.context.get("device", "cpu")) if device == "auto" else device
    own = "cuda" if where == "cuda" and torch.cuda.is_available() else "cpu"
    with restaged(verdict, zygote, device=own, store=str(store.directory)) as stage:
        stage.run.seed = bundle.seed
        truths, weights_of = stage.run.prepare(bundle.probe)
        failed = next((t for t in truths if not t.ok), None)
        if failed is not None:
            raise NoScript(f"the reference says nothing on this probe here: {failed.text or failed.status}",
                           found.id, "try it on the machine that it was found on")
        seeds = stage.run.call_seeds(bundle.probe)
    return _written(found, verdict, bundle, check, where, truths, weights_of, seeds)


def check_of(finding: Finding, bundle: Bundle) -> str:
    """The kind of check that shows a finding. Raises NoScript where none does."""
    reason = finding.reason
    conditions = {c.partition(":")[0] for c in bundle.probe.conditions}
    check = next((name for name, reasons in _CHECKS.items() if reason in reasons), None)
    why = ""
    if check is None:
        why = f"`{REASONS[reason]}` is seen from inside the process that runs the candidate"
    elif bundle.probe.kind == "distribution":
        why = "it is a difference of two distributions"
    elif reason is Reason.STALE_RESULT and finding.output is None:
        why = "it is seen by the work that a call does not do"
    elif finding.slug == "batch_invariance":
        why = "it is a comparison of the bits of two batches"
    elif conditions - _MADE:
        why = f"it needs conditions that only Assay's own process makes ({', '.join(sorted(conditions - _MADE))})"
    if why or check is None:
        raise NoScript(f"no script on its own can show this finding: {why}", bundle.probe.id,
                       "`assay replay` without --script shows it")
    if check == "values" and bundle.probe.grad:
        return "gradients"
    return check


def _written(found: FindingRecord, verdict: VerdictRecord, bundle: Bundle, check: str, device: str,
             truths: Sequence[Truth], own: Weights, seeds: Sequence[int]) -> str:
    probe, finding = bundle.probe, found.finding
    shown = finding.minimal if bundle is found.minimal and finding.minimal is not None else finding
    conditions = dict(c.split(":", 1) for c in probe.conditions if ":" in c)
    states = _states(own)
    source = verdict.candidate.source
    emulated = device == "cpu" and ("triton" in source or "cuda" in source or check == "bounds"
                                    or finding.reason is Reason.DEVICE)
    if check == "launches" and not emulated:
        raise NoScript("launches are counted where kernels are interpreted", found.id,
                       "`assay replay` without --script shows it")
    if check == "compiled" and any(mark in source for mark in ("cpp_extension", "load_inline")):
        raise NoScript("a script compiles the kernels of Triton alone", found.id,
                       "`assay replay` without --script shows it")
    compiled = check == "compiled"
    emulated = emulated and not compiled
    fences = "fence" in conditions
    fill = None if compiled else fill_of(conditions, emulated=device == "cpu")
    support = emulated or compiled or fences or check == "fresh" or (fill is not None and "empty" in source)
    inputs_whole = sum(_size(t) for truth in truths for t in truth.inputs) + sum(
        _size(t) for state in states.values() for t in state.values()) <= WRITTEN_BYTES
    if not inputs_whole and any(_size(t) for state in states.values() for t in state.values()) and (
            len(states) > 1 or _bytes(states) > WRITTEN_BYTES):
        raise NoScript(f"the weights take more than {WRITTEN_BYTES >> 20} MiB", found.id,
                       f"`assay shrink {found.id}` finds a smaller input first")
    reference = _reference(verdict, probe)
    names = list(states)
    case: dict[str, Any] = {
        "title": f"{found.id}: {finding.slug} ({finding.gate}): {REASONS[finding.reason]} [{finding.reason.value}]",
        "check": check, "reason": finding.reason.value, "output": shown.output,
        "compile": conditions.get("compile") if compiled else None,
        "index": None if shown.index is None else list(shown.index),
        "device": device, "target": str(verdict.context.get("target", "sm_90")), "emulated": emulated,
        "support": support, "fences": fences, "fill": fill if support else None, "asked": "fresh" in conditions,
        "config": int(conditions["config"]) if "config" in conditions else None, "tune": "tune" in conditions,
        "apart": check == "fault", "seconds": HANG_SECONDS if finding.reason is Reason.TIMED_OUT else 600.0,
        "reference_entry": verdict.task.entry,
        "entries": list(dict.fromkeys(filter(None, [verdict.candidate.entry, *verdict.task.candidate_entries]))),
        "watched": _watched(finding), "dtype": probe.dtype, "seed": own.seed,
        "init": (list(own.init[0]), dict(own.init[1])),
        "buffer_names": list(own.buffers),
        "buffers": conditions["state"].split(",") if "state" in conditions else [],
        "may_change": sorted({i for t in truths for i in t.mutated}),
        "may_share": sorted({i for t in truths for i in t.aliases}),
        "states": [states[name] for name in names],
        "calls": [{"draw": c.draw, "storage": c.storage, "instance": c.instance, "seed": s,
                   "state": names.index(_state_key(own, probe, c.draw))}
                  for c, s in zip(probe.calls, seeds, strict=True)],
        "draws": [_draw(probe, draw, truth, finding, whole=inputs_whole, found=found)
                  for draw, truth in zip(probe.draws, truths, strict=True)],
        "grad": _grad(probe, truths[0]) if probe.grad else None,
    }
    if check == "gradients" and (case["grad"] is None or not case["grad"]["steps"]):
        raise NoScript("the probe has no backward pass", found.id, "`assay replay` without --script shows it")
    parts = [_head(found, verdict, bundle, shown), f"REFERENCE = {_text(reference)}", f"CANDIDATE = {_text(source)}"]
    harness = resources.files("assay.evidence").joinpath("harness.py.txt").read_text(encoding="utf-8")
    start = harness.index("import argparse")
    body = harness[start:]
    packed = _packed(emulated=emulated or compiled, compiled=compiled) if support else ""
    matching = inspect.getsource(weights).split('"""', 2)[2].replace("from __future__ import annotations\n", "")
    main = body.index('if __name__ == "__main__":')
    pairing = "# Which weights of the candidate are which of the reference's.\n" + matching.strip()
    emulation = f'# The device emulation, packed.\nSUPPORT = """\n{packed}\n"""' if support else 'SUPPORT = ""'
    return "\n\n\n".join([
        *parts, harness[:start].rstrip() + "\n\n" + body[:main].rstrip(), pairing, emulation,
        f"# The finding.\nCASE = {_expression(case)}", body[main:].rstrip()]) + "\n"


def _reference(verdict: VerdictRecord, probe: Probe) -> str:
    if verdict.task.handle is not None or not verdict.task.source:
        return ""
    try:
        return integers.override(verdict.task.source, probe.sizes)
    except KeyError:
        return verdict.task.source


def _states(own: Weights) -> dict[str, Mapping[str, torch.Tensor]]:
    """Weights by key: as constructed first, by which they are matched, then what the calls use."""
    base = own.base or own
    states: dict[str, Mapping[str, torch.Tensor]] = {base.key: base.state}
    for each in (own, *own.others.values()):
        states.setdefault(each.key, each.state)
    return states


def _state_key(own: Weights, probe: Probe, draw: int) -> str:
    seed = probe.draws[draw].parameters
    return own.key if seed is None or seed == probe.parameters else own.others[seed].key


def _bytes(states: Mapping[str, Mapping[str, torch.Tensor]]) -> int:
    return sum(_size(t) for state in states.values() for t in state.values())


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _draw(probe: Probe, draw: Draw, truth: Truth, finding: Finding, *, whole: bool,
          found: FindingRecord) -> dict[str, Any]:
    places = [_placement(draw.layouts, i, tuple(t.shape), s)
              for i, (t, s) in enumerate(zip(truth.inputs, truth.strides, strict=True))]
    recipe = None
    if not whole:
        if draw.variant != "task" or draw.rows is not None or draw.layouts or draw.literals:
            raise NoScript(f"the inputs take more than {WRITTEN_BYTES >> 20} MiB, and their recipe needs Assay",
                           found.id, f"`assay shrink {found.id}` finds a smaller input first")
        injected = []
        for each in draw.injections:
            flat = min(truth.inputs[each.leaf].numel() - 1, int(each.position * truth.inputs[each.leaf].numel()))
            index = _unravel(flat, truth.inputs[each.leaf].shape)
            injected.append((each.leaf, list(index), truth.inputs[each.leaf][index].item()))
        recipe = {"seed": draw.seed, "injected": injected, "sha256": input_digest(truth)}
    return {
        "inputs": list(truth.inputs) if whole else None, "recipe": recipe,
        "places": [(list(p.stride), p.offset, p.length) for p in places],
        "arguments": _Arguments(truth.tree), "scalars": dict(truth.scalars) if not truth.numbers else {},
        "expected": [_expected(leaf, path, contiguous, finding) for leaf, path, contiguous
                     in zip(truth.leaves, truth.paths, truth.contiguous, strict=True)],
    }


def _placement(layouts: Sequence[str], leaf: int, shape: tuple[int, ...], stride: Sequence[int]) -> Placement:
    """Where an input's elements lie: in the layout asked for, or as the task makes them."""
    chosen = place(layouts[leaf], shape) if leaf < len(layouts) and layouts[leaf] != "task" else None
    return chosen if chosen is not None else as_made(shape, stride)


def _expected(leaf: LeafTruth, path: str, contiguous: bool, finding: Finding) -> dict[str, Any]:
    """What a script needs of one truth: at every element, or, of a large output, at some."""
    native = leaf.native
    n = leaf.y.numel()
    places = None
    if n > CHECKED_ELEMENTS:
        generator = torch.Generator().manual_seed(n)
        chosen = torch.randperm(n, generator=generator)[: CHECKED_ELEMENTS // 4]
        if finding.output == path and finding.index is not None and len(finding.index) == leaf.y.dim():
            flat = 0
            for i, size in zip(finding.index, leaf.y.shape, strict=True):
                flat = flat * size + i
            if flat < n:
                chosen = torch.cat([torch.tensor([flat]), chosen])
        places = torch.tensor(sorted(set(chosen.tolist())))
    flat_y = leaf.y.reshape(-1)
    decided = leaf.decided.reshape(-1) if leaf.decided.numel() == n else torch.ones(n, dtype=torch.bool)
    if leaf.kind in ("float", "complex") and native is not None and native.numel() == n:
        # where the reference's own class differs from its float64 replay's, it decides nothing
        same = classes(native.to(leaf.y.dtype)) == classes(leaf.y)
        decided = decided & (same.all(-1) if same.dim() > leaf.y.dim() else same).reshape(-1)
    tolerance = None
    if leaf.kind in ("float", "complex") and leaf.index is None:
        tolerance = leaf.tolerance.expand(leaf.spread.shape if leaf.spread.numel() else leaf.y.shape)
        tolerance = tolerance.reshape(n, -1) if leaf.kind == "complex" else tolerance.reshape(-1)
        tolerance = tolerance if places is None else tolerance[places]
    return {
        "path": path, "shape": list(leaf.y.shape), "dtype": str(leaf.native.dtype).removeprefix("torch."),
        "contiguous": contiguous, "places": places, "values": flat_y if places is None else flat_y[places],
        "tolerance": tolerance, "decided": decided if places is None else decided[places],
        "accepted": _accepted(leaf, places) if leaf.index is not None else None,
    }


def _accepted(leaf: LeafTruth, places: torch.Tensor | None) -> list[list[int]]:
    """Indices that are right at each element: ties and near ties make several so."""
    assert leaf.index is not None
    n = leaf.y.numel()
    right: list[list[int]] = [[] for _ in range(n)]
    for value in range(leaf.index.keys.shape[-1]):
        accepted = ~excess(_undistinct(leaf), torch.full_like(leaf.y, value))
        for flat in accepted.reshape(-1).nonzero().reshape(-1).tolist():
            right[flat].append(value)
    return right if places is None else [right[int(p)] for p in places]


def _undistinct(leaf: LeafTruth) -> LeafTruth:
    assert leaf.index is not None
    return dataclasses.replace(leaf, index=dataclasses.replace(leaf.index, distinct=False))


def _grad(probe: Probe, truth: Truth) -> dict[str, Any]:
    conditions = dict(c.split(":", 1) for c in probe.conditions if ":" in c)
    steps = [{"passes": list(s.passes), "ask": None if s.ask is None else list(s.ask)}
             for s in steps_of(probe.conditions) if not s.inference]
    gradients = [(name, leaf) for name, leaf in truth.gradients.items() if leaf.kind in ("float", "complex")]
    blank = Finding(gate="CMP-02", slug="gradients", reason=Reason.GRADIENT_VALUE, tier=Tier.WRONG,
                    tolerance_free=False, probe=probe.id)
    return {
        "steps": steps, "eval": conditions.get("mode") == "eval",
        "tie": [int(i) for i in conditions["tie"].split(",")] if "tie" in conditions else None,
        "cotangents": list(truth.cotangents), "requires": list(truth.requires_grad), "nan": dict(truth.gradient_nan),
        "expected": [_expected(leaf, name, True, blank) for name, leaf in gradients],
    }


def _watched(finding: Finding) -> list[str]:
    """Functions whose replacement is the finding, by dotted name."""
    if finding.reason is not Reason.HARNESS_PATCHED or not (finding.actual or "").startswith("replaced "):
        return []
    return [name.strip() for name in (finding.actual or "").removeprefix("replaced ").split(",")]


def _unravel(index: int, shape: Sequence[int]) -> tuple[int, ...]:
    found = []
    for size in reversed(shape):
        found.append(index % size)
        index //= size
    return tuple(reversed(found))


# writing it down


class _Arguments:
    """The nesting of a call's arguments, as the wire describes it."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree


class _Slot:
    def __init__(self, leaf: int) -> None:
        self.leaf = leaf


def _expression(value: Any, indent: int = 0) -> str:
    """Python source of a nested value with tensors."""
    pad = " " * (indent + 4)
    if isinstance(value, _Arguments):
        count = _tensor_count(value.tree)
        return _expression(codec.unflatten(value.tree, [_Slot(i) for i in range(count)]), indent)
    if isinstance(value, _Slot):
        return f"Slot({value.leaf})"
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        rows = [f"{pad}{_expression(k)}: {_expression(v, indent + 4)}," for k, v in value.items()]
        return "\n".join(["{", *rows, " " * indent + "}"])
    if isinstance(value, (list, tuple)):
        opening, closing = ("[", "]") if isinstance(value, list) else ("(", ",)" if len(value) == 1 else ")")
        items = [_expression(v, indent + 4) for v in value]
        line = f"{opening}{', '.join(items)}{closing}"
        if len(line) + indent <= 100 and "\n" not in line:
            return line
        return "\n".join([opening, *(f"{pad}{item}," for item in items), " " * indent + closing.lstrip(",")])
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    return repr(value)


def _tensor_count(tree: Any) -> int:
    if isinstance(tree, dict):
        if "t" in tree:
            return int(tree["t"]) + 1
        children: Iterable[Any] = tree["l"] if "l" in tree else (
            [x for pair in tree["d"] for x in pair] if "d" in tree else ())
        return max((_tensor_count(child) for child in children), default=0)
    return 0


def _tensor(value: torch.Tensor) -> str:
    dtype = codec.dtype_name(value.dtype)
    listable = (value.is_floating_point() and value.element_size() > 1) or value.dtype in (
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    if value.numel() <= LITERAL_ELEMENTS and listable:
        flat = value.detach().reshape(-1)
        items = [x if math.isfinite(x) else str(x) for x in flat.double().tolist()] if value.is_floating_point() else (
            flat.tolist())
        nan_bits = value.is_floating_point() and bool(torch.isnan(flat).any())
        if not nan_bits or bytes(codec.tensor_bytes(_rebuilt(items, value))) == bytes(codec.tensor_bytes(value)):
            return f'T("{dtype}", {list(value.shape)}, {items})'
    data = base64.b64encode(zlib.compress(bytes(codec.tensor_bytes(value)), 9)).decode()
    return f'T("{dtype}", {list(value.shape)}, "{data}")'


def _rebuilt(items: Sequence[Any], value: torch.Tensor) -> torch.Tensor:
    return torch.tensor([float(v) for v in items], dtype=torch.float64).to(value.dtype).reshape(value.shape)


def _text(source: str) -> str:
    """Source text as a literal that a person can read, where that is possible."""
    if "'''" not in source and not source.endswith("\\") and source.endswith("\n") and all(
            c.isprintable() or c in "\n\t" for c in source):
        # a raw string keeps its backslashes; the line break after the quotes is cut off again
        return f"r'''\n{source}'''[1:]"
    return repr(source)


def _packed(*, emulated: bool, compiled: bool = False) -> str:
    """The support package, as lines of text."""
    files = {"finding_support/__init__.py": ""}
    home = resources.files("assay.run")
    files["finding_support/poison.py"] = home.joinpath("poison.py").read_text(encoding="utf-8")
    if emulated:
        for each in home.joinpath("emulation").iterdir():
            if each.name.endswith(".py"):
                files[f"finding_support/emulation/{each.name}"] = each.read_text(encoding="utf-8")
    if compiled:
        for name in ("occupancy", "compile_only"):
            text = home.joinpath(f"{name}.py").read_text(encoding="utf-8").replace(_EXTENSIONS, _NO_EXTENSIONS)
            files[f"finding_support/{name}.py"] = text.replace("assay.run.", "finding_support.")
    data = lzma.compress(repr(dict(sorted(files.items()))).encode(), preset=9)
    text = base64.b85encode(data).decode()
    return "\n".join(text[i:i + 110] for i in range(0, len(text), 110))


def _head(found: FindingRecord, verdict: VerdictRecord, bundle: Bundle, shown: Any) -> str:
    environment = verdict.report.environment
    finding = found.finding
    lines = [
        f"Finding {found.id}: {finding.slug} ({finding.gate}): {REASONS[finding.reason]} [{finding.reason.value}]",
        "",
        f"The obligation: {GATES[finding.slug].obligation}." if finding.slug in GATES else "",
        f"The task: {verdict.task.id}; the candidate: {verdict.candidate.id}.",
        f"The probe: {describe_probe(bundle.probe)}.",
        f"Then: expected {shown.expected}, got {shown.actual}.",
        "Found with " + ", ".join(f"{name} {environment[name]}" for name in ("torch", "triton", "python")
                                  if environment.get(name)) + f" on {verdict.report.scope}.",
        "",
        "Run it with python. It needs torch, and triton where the candidate does. Exit status: 1 while the fault is",
        "there, 0 when it is gone, 3 when nothing can be said here. --candidate FILE tries another version.",
        f"Written by Assay {__version__}; it does not need Assay.",
    ]
    wrapped = "\n".join("\n".join(textwrap.wrap(line, 115)) for line in lines)
    return f'r"""{wrapped.replace(chr(34) * 3, chr(39) * 3)}\n"""'
