"""A verdict as one file for a reviewer or a buyer: what was checked, on what, what failed before, what was left out."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from assay.contract import Contract
from assay.evidence import tensors
from assay.evidence.certificate import Sources, bound, digest, exclusions, statistics
from assay.evidence.store import Store
from assay.report.model import GateResult, Report, canonical_json
from assay.report.phrases import verdict_text
from assay.report.words import OUTCOMES, REASONS, printable
from assay.vocabulary import Outcome

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of every file: the earliest that the format knows, so that the same content makes the same bytes."""
CORPUS_FINDINGS = 200
NUMBERED = {"nonfinite": "Exceptional values", "subnormals": "Subnormal numbers", "repeatability": "Repeatability",
            "statelessness": "Statelessness", "batch_invariance": "Batch invariance", "streams": "Streams"}
"""Gates that a reader asks about by what they are for."""


def dossier(report: Report, sources: Sources, *, certificate: str | None = None, public_key: bytes | None = None,
            corpus: Mapping[str, bytes] | None = None) -> bytes:
    """A zip of everything about one verdict; the same bytes for the same arguments.

    Args:
        report: the verdict.
        sources: the files it is about.
        certificate: the signed envelope, where there is one.
        public_key: PEM of the key that signed it.
        corpus: inputs on which candidates of the task failed, by path below `failures/`.
    """
    from assay.report import html

    plain = report.model_copy(update={"names": None}) if report.names is None else report
    files: dict[str, bytes] = {
        "report.json": report.to_json().encode(),
        "report.html": html.render(plain).encode(),
        f"sources/reference/{sources.reference[0]}": sources.reference[1],
        f"sources/candidate/{sources.candidate[0]}": sources.candidate[1],
        "contract.toml": (sources.contract[1] if sources.contract else _contract(report)),
    }
    if certificate is not None:
        files["certificate.json"] = certificate.encode()
    if public_key is not None:
        files["public-key.pem"] = public_key
    files |= {f"failures/{name}": data for name, data in (corpus or {}).items()}
    files["README.md"] = readme(report, sources, certified=certificate is not None,
                                failures=sorted(n for n in corpus or {} if n.endswith("finding.json"))).encode()
    files["SHA256SUMS"] = "".join(f"{digest(data)}  {name}\n" for name, data in sorted(files.items())).encode()
    return zipped(files)


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Files as a zip, in the order of their names, without times or owners."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            archive.writestr(entry, files[name])
    return out.getvalue()


def _contract(report: Report) -> bytes:
    from assay.contract.toml import write

    return write(Contract.from_data(report.contract), head=("The contract of this verdict.",)).encode()


def failure_corpus(store: Store, task: str) -> dict[str, bytes]:
    """What candidates of a task failed on, as a store has it: for each finding its record and its tensors.

    Args:
        store: the store.
        task: digest of the task.
    """
    found: dict[str, bytes] = {}
    count = 0
    for verdict in store.verdicts(task=task):
        for record in store.findings(verdict.id):
            folder = f"{record.finding.slug}-{record.id[:12]}"
            if f"{folder}/finding.json" in found:
                continue
            if count == CORPUS_FINDINGS:
                return found
            count += 1
            bundle = record.minimal or record.bundle
            found[f"{folder}/finding.json"] = canonical_json({
                "candidate": verdict.candidate, "label": verdict.label, "scope": verdict.scope,
                "finding": record.finding.model_dump(mode="json"),
                "replay": bundle.model_dump(mode="json") if bundle is not None else None,
            }).encode()
            kept = store.tensors(record)
            if kept:
                found[f"{folder}/tensors.safetensors"] = tensors.encode(kept)
    return found


def readme(report: Report, sources: Sources, *, certified: bool, failures: Sequence[str]) -> str:
    """The page to read first, in Markdown."""
    lines = [f"# Evidence on {_text(sources.candidate[0])}", "", f"**{_text(verdict_text(report))}.**", ""]
    if certified:
        lines += ["`certificate.json` is signed. With the signer's public key from a source that you trust:", "",
                  "    assay verify-certificate certificate.json --public-key KEY.pub.pem \\",
                  f"        --candidate 'sources/candidate/{sources.candidate[0]}' "
                  f"--reference 'sources/reference/{sources.reference[0]}'", ""]
    else:
        lines += ["This bundle is **not certified**: nobody has signed it.", ""]
    lines += ["## What was compared", "",
              f"- reference operator: `{_text(report.task.id)}`, `sources/reference/` (SHA-256 "
              f"`{digest(sources.reference[1])}`)",
              f"- candidate: `{_text(report.candidate.entry)}` in {report.candidate.language}, `sources/candidate/` "
              f"(SHA-256 `{digest(sources.candidate[1])}`)"]
    if report.candidate.kernels:
        lines.append(f"- kernels seen running: {', '.join(f'`{_text(name)}`' for name in report.candidate.kernels)}")
    lines += [f"- compiled for {_text(b.target)}: `{_text(b.kernel)}`, SHA-256 `{b.sha256}`"
              for b in report.candidate.binaries]
    lines += ["", "## Where it has to be right", "", *_envelope(report), "", "## Rules of arithmetic", "",
              *_rules(report.contract), "", "## What the gates say", "",
              "| gate | outcome | probes | |", "|---|---|---|---|"]
    lines += [f"| {gate.slug} | {OUTCOMES[gate.outcome]} | {gate.probes_run}/{gate.probes_planned} | "
              f"{_text(_gate_note(gate))} |" for gate in report.gates]
    lines += ["", "## Exceptional values and repeatability", "", *_asked(report)]
    lines += ["", "## How much was tried", "", *_statistics(report)]
    lines += ["", "## What was excluded", ""]
    lines += [f"- {_text(item['what'])}: {_text(item['why'])}" + (f" ({_text(item['note'])})" if item["note"] else "")
              for item in exclusions(report)] or ["- nothing"]
    lines += ["", "## Decided on", ""]
    lines += [f"- {name}: {_text(_value(value))}" for name, value in sorted(report.environment.items())
              if value is not None]
    lines += ["", "## Failures", ""]
    if failures:
        lines += [f"`failures/` holds {len(failures)} inputs on which candidates of this reference failed, this one or "
                  "others: the record of each, and where it was kept the inputs, the expected and the actual outputs "
                  "as safetensors."]
    else:
        lines += ["No failure of a candidate of this reference was on record."]
    return "\n".join(lines) + "\n"


def _envelope(report: Report) -> list[str]:
    domain: dict[str, Any] = report.contract.get("domain") or {}
    lines = []
    for name, size in (domain.get("sizes") or {}).items():
        words = [f"from {size['minimum']}" if size.get("minimum") is not None else "",
                 f"to {size['maximum']}" if size.get("maximum") is not None else "",
                 f"multiples of {size['multiple_of']}" if size.get("multiple_of", 1) != 1 else "",
                 "fixed" if size.get("fixed") else ""]
        lines.append(f"- size `{name}`: {' '.join(w for w in words if w) or 'any that the reference admits'}")
    for name, leaf in (domain.get("inputs") or {}).items():
        said = {k: v for k, v in leaf.items() if v not in (None, [], ())}
        lines.append(f"- input `{name}`: {_text(json.dumps(said, sort_keys=True)) if said else 'as the task makes it'}")
    shapes = next((gate for gate in report.gates if gate.slug == "shapes"), None)
    if not lines:
        lines.append("- the contract names no sizes: every size that the reference admits, from the task's own on")
    if shapes is not None:
        lines.append(f"- sizes tried: {shapes.probes_run} of {shapes.probes_planned} planned "
                     f"({OUTCOMES[shapes.outcome]}{f'; {_text(shapes.note)}' if shapes.note else ''})")
    return lines


def _rules(contract: Mapping[str, Any]) -> list[str]:
    numerics, exceptional = contract.get("numerics") or {}, contract.get("exceptional") or {}
    rows = {
        "dtypes beside the task's own": ", ".join((contract.get("domain") or {}).get("dtypes") or ()) or "none",
        "output dtype": numerics.get("output_dtype"), "accumulation": numerics.get("accumulate"),
        "float32 products": numerics.get("matmul"), "fast math": numerics.get("fast_math"),
        "NaN": exceptional.get("nan"), "infinities": exceptional.get("inf"),
        "subnormals": exceptional.get("subnormals"), "determinism": contract.get("determinism"),
        "gradients": contract.get("gradients"), "aliasing": (contract.get("memory") or {}).get("aliasing"),
    }
    return [f"- {name}: {_text(_value(value))}" for name, value in rows.items() if value is not None]


def _asked(report: Report) -> list[str]:
    return [f"- {title}: {OUTCOMES[gate.outcome]}, {gate.probes_run} of {gate.probes_planned} probes"
            + (f"; {_text(_gate_note(gate))}" if _gate_note(gate) else "")
            for slug, title in NUMBERED.items() for gate in report.gates if gate.slug == slug]


def _statistics(report: Report) -> list[str]:
    found = statistics(report) if report.ok else None
    if found is None or not report.seed_nonce:
        return ["No statistical claim: the seed was given, or what was decided does not carry one."]
    k = found["randomProbesPassed"]
    return [f"{k} random in-domain probes passed. If their seed was hidden, the violation rate under the distribution "
            f"that they were drawn from is at most {bound(k):.4f} at {found['confidence']:.0%} confidence, by "
            f"1 - 0.05^(1/{k}); the rule of three says 3/{k} = {found['ruleOfThree']:.4f}. It says nothing about other "
            "distributions: those are what the other gates are for."]


def _gate_note(gate: GateResult) -> str:
    parts = [] if gate.blocking else ["advisory"]
    if gate.outcome is not Outcome.PASS and gate.reason is not None:
        parts.append(REASONS[gate.reason])
    if gate.note:
        parts.append(gate.note)
    return "; ".join(parts)


def _value(value: Any) -> str:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list | bool) else str(value)


def _text(text: str) -> str:
    """Text that a candidate may have chosen, harmless in Markdown."""
    flat = printable(" ".join(str(text).split()))
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "'")
