"""The published audit's figures as tables: what derives, what cannot, and what one clause changes."""

from __future__ import annotations

from collections.abc import Sequence

from assay.audit.published import ALTERNATIVES, Figure, Outcome, Value, summary
from assay.audit.tables import Table

WORDS = {"derived": "derived", "differs": "DIFFERS", "not derivable": "not derivable"}


def tables(outcomes: Sequence[Outcome]) -> list[Table]:
    """One table of figures and one of the clauses that change the headline."""
    rows = tuple((o.figure.group, o.figure.name, shown(o.figure, o.figure.published),
                  "" if o.derived is None else shown(o.figure, o.derived), WORDS[o.status])
                 for o in outcomes)
    counts = summary(outcomes)
    note = (f"{counts['derived']} derived, {counts['differs']} different, {counts['not_derivable']} cannot be "
            f"derived from the rows; {counts['change_with_a_clause']} change with a clause.")
    return [Table("Published figures, re-derived from the rows",
                  ("group", "figure", "#published", "#from the rows", "status"), rows, note, "figures"),
            _changes(outcomes), _reasons(outcomes)]


def _changes(outcomes: Sequence[Outcome]) -> Table:
    rows = []
    for outcome in outcomes:
        figure = outcome.figure
        if figure.group in ("rates", "gates", "sensitivity") and outcome.derived is not None:
            lead = (figure.name, shown(figure, outcome.derived))
            for clause, value in outcome.changes.items():
                rows.append((*lead, clause, shown(figure, value)))
                lead = ("", "")
    note = f"One clause changed at a time: {', '.join(ALTERNATIVES)}."
    return Table("Figures that change with a clause", ("figure", "#published clauses", "other clause", "#becomes"),
                 tuple(rows), note, "clauses")


def _reasons(outcomes: Sequence[Outcome]) -> Table:
    rows = tuple((o.figure.name, shown(o.figure, o.figure.published), o.figure.why_not)
                 for o in outcomes if o.derived is None)
    return Table("Figures that the rows cannot give", ("figure", "#published", "why"), rows, "", "not-derivable")


def shown(figure: Figure, value: Value) -> str:
    """A value as the published account writes it."""
    if isinstance(value, tuple):
        return f"{value[0]:,}/{value[1]:,}"
    return f"{value:,.{figure.digits}f}"
