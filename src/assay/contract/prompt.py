"""The contract as instructions for whoever writes the kernel, and a verdict as feedback to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from assay.contract.inference import InferredContract
from assay.contract.model import Contract, InputDomain, SizeDomain
from assay.report.model import Finding, Report
from assay.vocabulary import Label, Outcome, Tier

Redaction = Literal["none", "kinds", "full"]
"""How much of a verdict is kept back: `none` tells all of it, with sizes, indices, values and probes; `kinds`
tells gates and kinds of fault only; `full` tells the label alone. The last two name no input that a probe
used, so that a generator cannot write for the probes."""

_OBLIGATIONS: dict[str, str] = {
    "shapes": "Be right at every size in the ranges above, not only at the native ones: sizes of one, odd "
              "sizes, sizes just below and above a block. Mask the tails.",
    "layouts": "Take the strides of every input from the input: it may be transposed, sliced, stepped, "
               "expanded (stride 0), channels-last, or start at any element of its storage.",
    "residency": "Return exactly the reference's shapes and dtypes, on the device of the inputs. A scalar "
                 "has shape `[]`, not `[1]`.",
    "output_aliasing": "Return fresh storage on every call: no view of an input unless the reference returns "
                       "one, no buffer that a later call overwrites.",
    "statelessness": "Keep nothing between calls: no result kept by shape, address or object identity. "
                     "Parameters may be replaced after construction.",
    "bounds": "Read and write inside the tensors given, nowhere else.",
    "initialization": "Write every element of every output; fresh memory holds anything.",
    "streams": "Launch on the current stream, and finish when it does.",
    "schedules": "Be right with every autotune configuration, and on the first call as on later ones.",
    "integrity": "Leave the process alone: no patching of torch, of timers or of the harness.",
    "faults": "Never crash, hang or leak on an input in the domain.",
    "reduction_order": "Keep the error of reductions within what their own rounding allows, at every length.",
}
"""What a gate asks, in words for a writer of kernels; others are told by their clause of the contract."""


def instructions(contract: Contract, *, reference: str, inferred: InferredContract | None = None) -> str:
    """The contract as instructions in Markdown.

    Args:
        contract: the obligations, merged from what was inferred and what a person wrote.
        reference: source of the reference.
        inferred: what the study showed, for native shapes and warnings.
    """
    sections = [
        "# Write a kernel that is the same program as this reference",
        f"```python\n{reference.strip()}\n```",
        "Define `class ModelNew` with the constructor and `forward` signature of `Model`. Name parameters "
        "and buffers as the reference does, so that its `state_dict` loads.",
        _section("Where it has to be right", _domain(contract, inferred)),
        _section("Arithmetic", _numerics(contract)),
        _section("Exceptional values", _exceptional(contract)),
        _section("Behaviour", _behaviour(contract)),
    ]
    if inferred is not None and inferred.warnings:
        sections.append(_section("Known of the reference", iter(inferred.warnings)))
    return "\n\n".join(sections) + "\n"


def _section(title: str, lines: Iterator[str]) -> str:
    return f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines)


def _domain(contract: Contract, inferred: InferredContract | None) -> Iterator[str]:
    observed = inferred.observed if inferred is not None else {}
    for name, size in contract.domain.sizes.items():
        native = observed.get(f"domain.sizes.{name}", "").split(" in the file")[0]
        yield f"Size `{name}`{f' (native {native})' if native else ''}: {_range(size)}."
    for name, clause in contract.domain.inputs.items():
        yield f"Input `{name}`: {_input(clause)}."
    for name, parameter in contract.domain.parameters.items():
        yield f"Parameter `{name}`: {parameter.dtype} [{', '.join(parameter.axes)}]."
    if contract.domain.parameters and contract.domain.vary_parameters:
        yield "Parameters and buffers may hold other values than after construction."
    if contract.domain.dtypes:
        yield f"Also in these dtypes: {', '.join(contract.domain.dtypes)}."
    if _asked(contract, "shapes") and any(not size.fixed for size in contract.domain.sizes.values()):
        yield _OBLIGATIONS["shapes"]
    if _asked(contract, "layouts"):
        yield _OBLIGATIONS["layouts"]


def _range(size: SizeDomain) -> str:
    if size.fixed:
        return "fixed"
    low = size.minimum if size.minimum is not None else 1
    text = f"{low} to {size.maximum}" if size.maximum is not None else f"{low} or more"
    if size.multiple_of > 1:
        text += f", a multiple of {size.multiple_of}"
    if size.tied:
        text += f", always equal to {', '.join(size.tied)}"
    return text


def _input(clause: InputDomain) -> str:
    text = f"{' or '.join(clause.dtypes) or 'the dtype of the task'} [{', '.join(clause.axes)}]"
    if clause.structure:
        text += ", " + ", ".join(trait.replace("_", " ") for trait in clause.structure)
    if clause.low is not None or clause.high is not None:
        low = f"{clause.low:g}" if clause.low is not None else "-∞"
        high = f"{clause.high:g}" if clause.high is not None else "∞"
        text += f", values from {low} to {high}"
    if clause.layouts is not None:
        text += f", layouts: {', '.join(clause.layouts) or 'contiguous only'}"
    return text


def _numerics(contract: Contract) -> Iterator[str]:
    clause = contract.numerics
    usual = "float32, or float64 for float64 inputs"
    accumulate = usual if clause.accumulate == "auto" else clause.accumulate
    yield f"Accumulate sums and products in {accumulate}."
    if clause.matmul == "tf32":
        yield "Products of float32 operands may use TF32."
    else:
        yield "Products of float32 operands are exact IEEE products: no TF32 (`input_precision=\"ieee\"`)."
    yield ("Approximate intrinsics are allowed." if clause.fast_math
           else "No approximate intrinsics; a polynomial in place of a function has to be as accurate.")
    if clause.autocast != "none":
        dtype = {"bf16": "bfloat16", "fp16": "float16"}[clause.autocast]
        yield (f"Under `torch.autocast` with {dtype}, outputs, their dtypes and gradients are the reference's as "
               "well: mark a custom backward with `torch.amp.custom_fwd` and `custom_bwd`.")
    if clause.output_dtype == "any":
        yield "The output dtype is free."
    if _asked(contract, "reduction_order"):
        yield _OBLIGATIONS["reduction_order"]
    determinism = {"bitwise": "The same input gives the same bits on every call: no atomics that race.",
                   "bounded": "Results of repeated calls may differ within rounding.",
                   "none": "Results of repeated calls may differ."}
    yield determinism[contract.determinism]
    if contract.batch_invariance:
        yield "A row's bits do not depend on the rows beside it, nor on how many there are."


def _exceptional(contract: Contract) -> Iterator[str]:
    clause = contract.exceptional
    for name, policy in (("A NaN", clause.nan), ("An infinity", clause.inf)):
        if policy == "ignore":
            yield f"{name} in an input: anything goes."
        else:
            yield (f"{name} in an input reaches the outputs that it reaches in the reference, and no others "
                   "change.")
    if clause.nan != "ignore":
        yield "Comparisons with NaN are false: mind `max`, `where`, `relu` and clamps."
    subnormals = {"preserve": "Subnormal numbers are kept.", "flush": "Subnormal numbers become zero.",
                  "either": "Subnormal numbers may be kept or become zero."}
    yield subnormals[clause.subnormals]


def _behaviour(contract: Contract) -> Iterator[str]:
    yield from (_OBLIGATIONS[slug] for slug in ("residency", "statelessness", "bounds", "initialization",
                                                "streams", "schedules", "integrity", "faults")
                if _asked(contract, slug))
    if contract.memory.aliasing != "allow" and _asked(contract, "output_aliasing"):
        yield _OBLIGATIONS["output_aliasing"]
    if contract.memory.inplace:
        yield f"These inputs may be changed, and no others: {', '.join(contract.memory.inplace)}."
    else:
        yield "Leave inputs and parameters as they are, bit for bit."
    if contract.memory.extra_bytes is not None:
        yield f"At most {contract.memory.extra_bytes} bytes of scratch memory."
    if contract.gradients == "training":
        yield "Outputs have gradients with respect to every input and parameter, as the reference's do."
    elif contract.gradients == "auto":
        yield "Gradients are not needed; where an output requires grad, its gradients have to be right."
    if contract.provenance != "none":
        yield "Your own kernels do the work; calling the reference's operation instead is no kernel."
    if contract.resources.targets:
        yield f"Fits on: {', '.join(contract.resources.targets)}."


def _asked(contract: Contract, slug: str) -> bool:
    policy = contract.policy
    return slug not in policy.advisory and (policy.blocking is None or slug in policy.blocking)


def feedback(report: Report, redaction: Redaction = "kinds") -> str:
    """A verdict as feedback in Markdown, with as much kept back as the redaction says."""
    verdict = {
        Label.CONTRACT: "Accepted: no obligation was found broken.",
        Label.SCREENED: "Not decided: nothing was found broken, but some obligations could not be checked.",
        Label.REJECTED: "Rejected: it is not the same program as the reference.",
    }
    lines = ["# Verdict", "", verdict[report.label]]
    if redaction == "full":
        return "\n".join(lines) + "\n"
    if report.findings:
        lines += ["", "## What is wrong", ""]
        lines += list(_told(report) if redaction == "none" else _kinds(report))
    undecided = [g.slug for g in report.gates if g.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)]
    if undecided:
        lines += ["", "Could not be decided: " + ", ".join(undecided) + "."]
    return "\n".join(lines) + "\n"


_TIERS = {Tier.WRONG: "wrong", Tier.VIOLATION: "breaks the contract", Tier.DIVERGENCE: "lower precision"}


def _kinds(report: Report) -> Iterator[str]:
    """Gates and kinds of fault, and nothing that tells a probe's inputs."""
    from assay.gates import GATES

    counted = Counter((f.slug, f.reason.value, f.tier) for f in report.findings)
    for slug, reason, tier in counted:
        obligation = GATES[slug].obligation if slug in GATES else ""
        yield f"- **{slug}** ({obligation}): {reason.replace('_', ' ')} — {_TIERS[tier]}"


def _told(report: Report) -> Iterator[str]:
    """Every finding, with the inputs that show it."""
    for found in report.findings:
        yield f"- **{found.slug}**: {found.reason.value.replace('_', ' ')} — {_TIERS[found.tier]}"
        yield from (f"  - {text}" for text in _facts(report, found))


def _facts(report: Report, found: Finding) -> Iterator[str]:
    if found.output is not None:
        place = f" at {list(found.index)}" if found.index is not None else ""
        yield f"output `{found.output}`{place}: expected {found.expected}, got {found.actual}"
    else:
        yield f"expected {found.expected}, got {found.actual}"
    if found.error is not None and found.tolerance is not None:
        yield f"error {found.error:.3g}, tolerance {found.tolerance:.3g}"
    probe = report.probes.get(found.probe)
    if probe is None:
        return
    if probe.sizes:
        yield "sizes: " + ", ".join(f"{k}={v}" for k, v in sorted(probe.sizes.items()))
    draw = probe.draws[0]
    if draw.variant != "task":
        yield f"values: {draw.variant.replace('_', ' ')}"
    if draw.injections:
        yield "with " + ", ".join(f"{i.value} in input {i.leaf}" for i in draw.injections[:3])
    if any(layout != "task" for layout in draw.layouts):
        yield "layouts: " + ", ".join(draw.layouts)
