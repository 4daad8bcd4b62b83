"""What a benchmark may rest on: a verdict with the label `contract`, from the store or made now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.contract import Contract, merge
from assay.evidence.errors import StoreError
from assay.evidence.store import Store
from assay.report.model import Report
from assay.reward.scoring import EMULATED
from assay.run.process import Zygote
from assay.run.references import References
from assay.task import Candidate, Task
from assay.verify import Options, Progress, verify_task
from assay.vocabulary import Label


@dataclass(frozen=True)
class Basis:
    """A verdict, and where it comes from.

    Attributes:
        report: the verdict.
        origin: `store` or `now`.
    """

    report: Report
    origin: str

    @property
    def holds(self) -> bool:
        """Whether the candidate has the label that timing needs."""
        return self.report.label is Label.CONTRACT

    def to_json(self) -> dict[str, Any]:
        """Label, scope, tier and origin, as JSON data."""
        return {"label": self.report.label.value, "scope": self.report.scope, "tier": self.report.tier,
                "origin": self.origin}


def basis_of(task: Task, candidate: Candidate, contract: Contract, options: Options, zygote: Zygote, *,
             references: References | None = None, progress: Progress | None = None) -> Basis:
    """The verdict that a benchmark rests on.

    One from the store counts where task, candidate and contract are the same, nothing was emulated, and the label is
    `contract`; anything else is decided anew. Arguments and errors as `assay.verify.verify_task`.
    """
    kept = _kept(task, candidate, contract, options.store)
    if kept is not None:
        return Basis(kept, "store")
    return Basis(verify_task(task, candidate, contract=contract, options=options, zygote=zygote,
                             references=references, progress=progress), "now")


def _kept(task: Task, candidate: Candidate, contract: Contract, directory: str | None) -> Report | None:
    if directory is None:
        return None
    wanted = merge(Contract.from_data(task.stated), contract).model_dump(mode="json")
    try:
        with Store.open(directory) as store:
            for seen in store.verdicts(task=task.digest, candidate=candidate.digest, label=Label.CONTRACT.value):
                report = store.verdict(seen.id).report
                if report.scope != EMULATED and report.contract == wanted:
                    return report
    except StoreError:
        # a store that cannot be read has no verdict to offer; what needs it says so elsewhere
        return None
    return None
