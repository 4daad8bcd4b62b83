"""How far surviving mutants are from what is legal, and what a narrow sum of gradients costs.

    python benchmarks/survivors.py [--out FILE]

For each mutant named below, the largest error against float64 of the reference at its own dtype, of the right kernel
and of the mutant: of outputs on some inputs, and of gradients. Then, of a bf16 convolution whose batch goes in two
halves, the share of weight gradients beyond half a unit in the last place of float64 twice over (the tolerance that
a single rounding has), where the halves' gradients are added in bf16 and where they are added before they are rounded.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch

from assay import corpus
from assay.mutants.experiments import Experiment, Laboratory, build, copies, leaves, set_weights, widened
from assay.mutants.trial import _gradients
from assay.mutants.witness import _load_file
from assay.run import emulation
from assay.scoreboard.cases import Case, mutants
from assay.scoreboard.controls import split
from common import write_result

MUTANTS = (
    ("attention", "half_operands", "weights.to(v.dtype), v"),
    ("avg_pool1d", "half_accumulator", "total"),
    ("softmax_trained", "narrow_intermediate", "weights / tl.sum"),
    ("rms_norm_trained", "narrow_intermediate", "tl.sum(up * hat"),
)
"""Subject in bfloat16, operator, and the beginning of what it changes; the first of these is meant."""
EXPERIMENTS = ("draw 1", "draw 2", "tenfold", "microscopic", "minute")
DRAWS = 400


def largest(got: torch.Tensor, want: torch.Tensor) -> float:
    """Largest error."""
    return float((got.double() - want.double()).abs().max()) if got.numel() else 0.0


def instance(module: Any, entry: str, experiment: Experiment) -> Any:
    """A program with the experiment's weights."""
    made = build(module, entry, experiment.module)
    set_weights(made, experiment.weights)
    return made


def compared(case: Case, lab: Laboratory, mutant: Any) -> list[dict[str, Any]]:
    """Errors of the reference, of the right kernel and of a mutant."""
    rows = []
    programs = ((None, "Model"), (lab.right, "ModelNew"), (mutant, "ModelNew"))

    def fresh(experiment: Experiment) -> list[Any]:
        return [instance(experiment.module if module is None else module, entry, experiment)
                for module, entry in programs]

    for experiment in lab.experiments:
        if experiment.name in EXPERIMENTS:
            want = experiment.expected[0].value
            with torch.no_grad():
                errors = [largest(leaves(p(*copies(experiment.inputs)))[0], want) for p in fresh(experiment)]
            rows.append(row(case, "output", experiment.name, errors, float(want.abs().max())))
        if "autograd.Function" in case.candidate and experiment.name in ("draw 1", "draw 2", "WIDTH=1", "COLS=1"):
            for spread in (False, True):
                wide = _gradients(widened(experiment.module, experiment.weights), experiment, spread, wide=True)
                found = [_gradients(p, experiment, spread) for p in fresh(experiment)]
                for number, want in enumerate(wide):
                    given = [gradients[number] for gradients in found]
                    if want is not None and all(g is not None for g in given):
                        errors = [largest(g, want) for g in given if g is not None]
                        about = f"gradient {number}" + (", expanded" if spread else "")
                        rows.append(row(case, about, experiment.name, errors, float(want.abs().max())))
    return rows


def row(case: Case, about: str, where: str, errors: list[float], size: float) -> dict[str, Any]:
    """One line of the result."""
    reference, right, mutant = errors
    return {"mutant": case.id, "about": about, "where": where, "size": size, "reference": reference, "right": right,
            "of_mutant": mutant}


def summed(folder: str) -> dict[str, float]:
    """Shares of gradients of the halved convolution beyond the tolerance of a single rounding."""
    entry = corpus.entry("conv1d", "bfloat16")
    load = _load_file(folder)
    reference = load(entry.reference, "reference")
    shares = {}
    for name, wide in (("narrow", False), ("wide", True)):
        module, beyond, count = load(split(entry, wide=wide), name), 0, 0
        for seed in range(DRAWS):
            torch.manual_seed(seed)
            (x,) = reference.get_inputs()
            candidate = module.ModelNew(*reference.get_init_inputs())
            exact = reference.Model(*reference.get_init_inputs()).double()
            exact.load_state_dict({n: w.double() for n, w in candidate.state_dict().items()})
            output = candidate(x)
            up = torch.randn_like(output.float()).to(output.dtype)
            output.backward(up)
            exact(x.double()).backward(up.double())
            for mine, theirs in zip(candidate.parameters(), exact.parameters(), strict=True):
                assert mine.grad is not None
                assert theirs.grad is not None
                error = (mine.grad.double() - theirs.grad).abs()
                beyond += bool((error > 2.0**-8 * theirs.grad.abs()).any())
                count += 1
        shares[f"gradients_beyond_{name}"] = beyond / count
    return shares | {"gradients": 2 * DRAWS}


def main() -> None:
    """Measure, print, and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    metrics: dict[str, float] = {}
    emulation.install()
    known = list(mutants())
    with tempfile.TemporaryDirectory() as folder:
        load = _load_file(folder)
        for subject, operator, change in MUTANTS:
            case = next(c for c in known if c.subject == subject and c.dtype == "bfloat16" and c.operator == operator
                        and c.mutant is not None and c.mutant.note.startswith((change, f"tl.dot({change}")))
            entry = corpus.entry(subject, "bfloat16")
            found = compared(case, Laboratory(entry.reference, entry.kernel, load), load(case.candidate, "mutant"))
            rows += found
            ordinary = [r for r in found if r["where"] not in ("minute", "WIDTH=1", "COLS=1")]
            worst = max((r["of_mutant"] / max(r["reference"], r["right"]) for r in ordinary if r["right"]),
                        default=math.nan)
            metrics[f"{subject}_times_legal"] = round(worst, 3)
        metrics |= summed(folder)
    for about, group in itertools.groupby(rows, lambda r: r["mutant"]):
        print(about)
        for r in group:
            print(f"  {r['about']:24} {r['where']:12} reference {r['reference']:.2e}  right {r['right']:.2e}  "
                  f"mutant {r['of_mutant']:.2e}  largest {r['size']:.2e}")
    print(metrics)
    print(f"written to {write_result('survivors', 'cpu', metrics, rows, out=options.out)}")


if __name__ == "__main__":
    main()
