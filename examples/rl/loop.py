"""A toy training loop that shows what a reward teaches.

A policy chooses among ten fixed kernels for one task: one right, five that cheat (right on the usual check, wrong
beyond it), four that are wrong. It is a softmax over ten numbers, trained with REINFORCE (Williams 1992) from a
uniform start: the gradient of log p(choice) times reward less a running mean. Two rewards are compared, each made of
real verdicts:

- the screen alone: 1 for a kernel that passes it, 0 for one that fails;
- `assay.reward`: the stages of a verdict.

Writes the verdicts, and what each policy does, as JSON and as a plot.

    python examples/rl/loop.py --json result.json --svg plot.svg
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
KINDS = ("right", "cheat", "wrong")
COLOURS = {"right": "#2a7f62", "cheat": "#c8553d", "wrong": "#8a8a8a"}


def judged(tier: str) -> list[dict[str, Any]]:
    """Each candidate once, by the screen and by a verdict: name, kind and what either reward pays."""
    from assay.pool import Job, Pool
    from assay.reward import reward_of
    from assay.task import load_candidate, load_task
    from assay.verify import Options
    from assay.vocabulary import EffortTier

    task = load_task(HERE / "reference.py")
    options = Options(device="cpu", tier=EffortTier(tier), seed=1)
    paths = sorted((HERE / "candidates").glob("*.py"))
    jobs = [Job(id=f"{kind}:{path.stem}", task=task, candidate=load_candidate(path), options=options, kind=kind)
            for path in paths for kind in ("screen", "verify")]
    with Pool() as pool:
        done = {answer.job.id: answer for answer in pool.run(jobs)}
    rows = []
    for path in paths:
        screen, report = done[f"screen:{path.stem}"].screened, done[f"verify:{path.stem}"].verdict
        reward = reward_of(report)
        rows.append({
            "candidate": path.stem, "kind": path.stem.split("_")[0], "screen_passed": screen.passed,
            "screen_reward": float(screen.passed), "label": report.label.value, "stage": reward.stage.value,
            "contract_reward": reward.value, "gates": sorted({f.slug for f in report.findings}),
        })
    return rows


def trained(rewards: np.ndarray, *, steps: int, batch: int, rate: float, seed: int) -> np.ndarray:
    """Probabilities after each step, `[steps + 1, candidates]`, of a policy that is paid `rewards`."""
    source = np.random.default_rng(seed)
    logits = np.zeros(len(rewards))
    baseline = 0.0
    history = []
    for _ in range(steps + 1):
        chance = np.exp(logits - logits.max())
        chance /= chance.sum()
        history.append(chance)
        choices = source.choice(len(rewards), size=batch, p=chance)
        gained = rewards[choices]
        # d log p(c) / d logits = onehot(c) - p
        advantage = gained - baseline
        gradient = np.zeros_like(logits)
        np.add.at(gradient, choices, advantage)
        gradient -= advantage.sum() * chance
        logits = logits + rate * gradient / batch
        baseline += 0.1 * (gained.mean() - baseline)
    return np.array(history)


def study(rows: list[dict[str, Any]], *, steps: int, batch: int, rate: float, seeds: int) -> dict[str, Any]:
    """Mean over seeds: how much of the policy is right, cheats and is wrong at each step, and what it is paid."""
    kinds = np.array([row["kind"] for row in rows])
    found: dict[str, Any] = {}
    for name in ("screen", "contract"):
        paid = np.array([row[f"{name}_reward"] for row in rows])
        runs = np.array([trained(paid, steps=steps, batch=batch, rate=rate, seed=seed) for seed in range(seeds)])
        shares = {kind: runs[:, :, kinds == kind].sum(axis=2) for kind in KINDS}
        found[name] = {
            "reward": (runs @ paid).mean(axis=0).tolist(),
            **{kind: share.mean(axis=0).tolist() for kind, share in shares.items()},
            "right_at_end": [float(share) for share in shares["right"][:, -1]],
        }
    return found


def plot(curves: dict[str, Any], path: Path) -> None:
    """Two panels, one for each reward: what the policy does over time, and what it is paid."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "assay", "svg.fonttype": "none", "font.family": "sans-serif"})
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.1), sharey=True, layout="constrained")
    titles = {"screen": "Paid by the screen alone", "contract": "Paid by assay.reward"}
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        curve = curves[name]
        steps = range(len(curve["reward"]))
        for kind in KINDS:
            axis.plot(steps, curve[kind], color=COLOURS[kind], linewidth=2, label=f"share {kind}")
        axis.plot(steps, curve["reward"], color="#555555", linestyle=":", label="mean reward")
        axis.set_title(title, fontsize=11)
        axis.set_xlabel("step")
        axis.set_ylim(-0.02, 1.02)
        axis.grid(alpha=0.25)
    axes[1].legend(fontsize=8, loc="center", bbox_to_anchor=(0.75, 0.72))
    figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")


def commit() -> str | None:
    """The commit of the checkout; None where there is none."""
    try:
        done = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short=12", "HEAD"], capture_output=True,
                              text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def main() -> int:
    """Judge, train, write; 1 when the screen's policy is mostly right or the contract's is not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--svg", type=Path, help="write the plot here")
    parser.add_argument("--tier", default="quick", help="effort of the verdicts")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    rows = judged(options.tier)
    for row in rows:
        print(f"{row['candidate']:<20} screen {'pass' if row['screen_passed'] else 'fail'} -> {row['screen_reward']:.2f}"
              f"   {row['label']:<9} {row['stage']:<9} -> {row['contract_reward']:.3f}   {', '.join(row['gates'])}")
    settings = {"steps": options.steps, "batch": 16, "rate": 1.0, "seeds": options.seeds}
    curves = study(rows, **settings)
    metrics = {}
    for name, curve in curves.items():
        for what in ("reward", *KINDS):
            metrics[f"{name}_{what}_start"] = curve[what][0]
            metrics[f"{name}_{what}_end"] = curve[what][-1]
        metrics[f"{name}_right_end_min"] = min(curve["right_at_end"])
        print(f"{name}: reward {curve['reward'][0]:.2f} -> {curve['reward'][-1]:.2f}, right "
              f"{curve['right'][0]:.2f} -> {curve['right'][-1]:.2f}, cheating "
              f"{curve['cheat'][0]:.2f} -> {curve['cheat'][-1]:.2f}")
    if options.json:
        record = {
            "name": "reward-toy", "device": f"{platform.machine()} CPU", "driver": None,
            "python": platform.python_version(), "torch": metadata.version("torch"),
            "triton": metadata.version("triton"), "assay": metadata.version("assay"), "commit": commit(),
            "date": date.today().isoformat(), "command": "python examples/rl/loop.py " + " ".join(
                f"--{name} {value}" for name, value in vars(options).items() if name not in ("json", "svg")),
            "settings": settings, "metrics": metrics, "rows": rows,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.svg:
        plot(curves, options.svg)
    good = metrics["contract_right_end"] > 0.9 and metrics["screen_cheat_end"] > 0.5
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
