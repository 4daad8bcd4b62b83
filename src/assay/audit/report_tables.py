"""The statistics of an audit as tables, in the order in which a reader asks."""

from __future__ import annotations

from collections import Counter

from assay.audit.classes import CLASSES
from assay.audit.floors import CHANNELS, COMPOSITIONS, POLICIES
from assay.audit.outcome import LEFT_BEFORE, Status
from assay.audit.statistics import Rate
from assay.audit.summary import GROUPS, OUTCOMES, THRESHOLDS, TIERS, Class, Summary
from assay.audit.tables import RATE_COLUMNS, Table, percent, rate_cells
from assay.report.words import TIERS as TIER_WORDS
from assay.vocabulary import Tier

MOST = 40
"""Lines of a table of groups; the rest is counted in its note."""

STATUS_WORDS: dict[Status, str] = {
    Status.NOT_ACCEPTED: "not accepted by the corpus",
    Status.NOT_SELECTED: "not drawn into the sample",
    Status.NOT_AUDITABLE: "not auditable: a source, inputs or an entry point are missing",
    Status.REFERENCE_BROKEN: "the reference cannot be run",
    Status.TOOLCHAIN: "toolchain artefact: does not compile or import here",
    Status.WEIGHTS: "weights not comparable with the reference's",
    Status.SCREENED_OUT: "failed the screen, battery not run",
    Status.NOT_DECIDED: "not decided: nothing wrong found, a blocking gate open",
    Status.PENDING: "not run yet",
    Status.DECIDED: "decided",
}


def tables(summary: Summary) -> list[Table]:
    """Every table that this audit has something for."""
    found = [funnel(summary)]
    if summary.about["mode"] != "screen":
        found += [verdicts(summary), tiers(summary), floors(summary), channels(summary), gates(summary),
                  reasons(summary), sole(summary)]
    found.append(classes(summary))
    if summary.screens:
        found.append(screen_outcomes(summary))
    found += screens(summary) if summary.about["mode"] == "both" else []
    if summary.speedups:
        found.append(fast(summary))
    found += [groups(summary, name) for name in GROUPS if summary.groups[name]]
    return found


def funnel(summary: Summary) -> Table:
    """Where rows left, and how many are left after each step."""
    left = summary.rows
    rows = [("rows of the corpus", "", f"{left:,}", "")]
    for status, words in STATUS_WORDS.items():
        count = summary.statuses[status.value]
        if status is Status.DECIDED or not count:
            continue
        left -= count
        why = "; ".join(f"{n:,} {text}" for text, n in summary.notes[status.value].most_common(3))
        rows.append((words, f"−{count:,}", f"{left:,}", why))
    rows.append((STATUS_WORDS[Status.DECIDED], "", f"{summary.statuses[Status.DECIDED.value]:,}", ""))
    return Table("Funnel", ("step", "#rows", "#left", "most often"), tuple(rows), "", "funnel")


def verdicts(summary: Summary) -> Table:
    """The headline, over what was decided and over everything that ran."""
    whole = summary.whole
    ran = sum(count for status, count in summary.statuses.items()
              if status not in LEFT_BEFORE and status not in (Status.PENDING, Status.SCREENED_OUT))
    rows: tuple[tuple[str, ...], ...] = (
        ("rejected, of decided", *rate_cells(summary.rate(whole.rejected))),
        ("rejected, of all that ran", *rate_cells(Rate(whole.rejected, ran))),
        ("contract, of decided", *rate_cells(summary.rate(whole.decided - whole.rejected))),
        ("contract, of all that ran", *rate_cells(Rate(whole.decided - whole.rejected, ran))),
        ("strict floor, of decided", *rate_cells(summary.rate(whole.strict))),
    )
    screened_out = summary.statuses[Status.SCREENED_OUT.value]
    if screened_out:
        rows = (*rows, ("failed the screen, of all that ran",
                        *rate_cells(Rate(screened_out, ran + screened_out))))
    scopes = ", ".join(f"{name} ({count:,})" for name, count in summary.scopes.most_common())
    return Table("Verdicts", ("verdict", *RATE_COLUMNS), rows, f"Decided on {scopes or 'nothing yet'}.", "verdicts")


def tiers(summary: Summary) -> Table:
    """Rejected rows by the heaviest of their findings."""
    rows = tuple((TIER_WORDS[Tier(tier)], *rate_cells(summary.rate(summary.whole.tiers[tier]))) for tier in TIERS)
    return Table("How the rejected weigh", ("heaviest finding", *RATE_COLUMNS), rows, "", "tiers")


def floors(summary: Summary) -> Table:
    """Every composition of the strict floor under every NaN policy."""
    rows = tuple(
        (name, policy, *rate_cells(summary.rate(summary.floors[name, policy])))
        for name in COMPOSITIONS for policy in POLICIES)
    note = "; ".join(f"{policy}: {words}" for policy, words in POLICIES.items())
    return Table("Strict floor: findings that need no tolerance", ("composition", "NaN policy", *RATE_COLUMNS), rows,
                 f"{note}.", "floors")


def channels(summary: Summary) -> Table:
    """What the strict floor is made of."""
    rows = []
    for policy in POLICIES:
        whole = summary.floors["strict floor", policy]
        for channel in CHANNELS:
            alone, rest = summary.alone[policy][channel], summary.left_out[policy, channel]
            if policy == "ignore" and channel == "nonfinite":
                continue
            rows.append((policy, channel, f"{whole - rest:,}", *rate_cells(summary.rate(rest))))
            assert whole - rest == alone
    return Table("Strict floor: one channel left out",
                 ("NaN policy", "without", "#decided by it alone", *RATE_COLUMNS), tuple(rows), "", "channels")


def gates(summary: Summary) -> Table:
    """Each gate's outcomes. The denominator of its rate is what it decided."""
    rows = []
    for slug, counts in summary.gates.items():
        rate = Rate(counts["fail"], counts["fail"] + counts["pass"])
        rows.append((summary.order[slug], slug, *(f"{counts[o]:,}" for o in OUTCOMES), *rate_cells(rate)[1:]))
    note = "The rate is fail of fail and pass; what a gate did not decide is beside it, never in it."
    return Table("Gates", ("id", "gate", "#fail", "#pass", "#undecided", "#n/a", "#error", "#rate", "#95%"),
                 tuple(rows), note, "gates")


def reasons(summary: Summary) -> Table:
    """Why gates failed or did not decide."""
    rows = []
    for slug in summary.gates:
        for outcome in ("fail", "inconclusive", "not_applicable", "error"):
            found = summary.reasons[slug, outcome]
            if found:
                rows.append((slug, outcome.replace("_", " "), f"{sum(found.values()):,}",
                             ", ".join(f"{reason} {count:,}" for reason, count in _ordered(found))))
    return Table("Reasons", ("gate", "outcome", "#rows", "reasons"), tuple(rows), "", "reasons")


def sole(summary: Summary) -> Table:
    """What one gate decides by itself, and what stays rejected without it."""
    rows = tuple((slug, f"{summary.gates[slug]['fail']:,}", *rate_cells(summary.rate(summary.sole[slug])),
                  *rate_cells(summary.rate(summary.without[slug]))[:2])
                 for slug in summary.gates if summary.gates[slug]["fail"])
    return Table("Rejected by one gate alone, and without it",
                 ("gate", "#fails", "#alone", "#rate", "#95%", "#rejected without it", "#rate"), rows, "", "sole")


def classes(summary: Summary) -> Table:
    """Rates by class of operation."""
    names = [n for n in CLASSES if n in summary.classes] + sorted(set(summary.classes) - set(CLASSES))
    rows = tuple(_group(name, summary.classes[name]) for name in names)
    return Table("Classes of operation", _GROUP_COLUMNS, rows, "", "classes")


_GROUP_COLUMNS = ("name", "#rows", "#decided", "#rejected", "#rate", "#95%", "#strict floor", "#rate",
                  "#wrong", "most often")


def _group(name: str, group: Class) -> tuple[str, ...]:
    rejected, strict = Rate(group.rejected, group.decided), Rate(group.strict, group.decided)
    most = ", ".join(f"{reason} {count:,}" for reason, count in _ordered(group.reasons)[:2])
    return (name, f"{group.selected:,}", f"{group.decided:,}", f"{group.rejected:,}", *rate_cells(rejected)[1:],
            f"{group.strict:,}", percent(strict), f"{group.tiers['wrong']:,}", most)


def groups(summary: Summary, by: str) -> Table:
    """Rates by generator, run or month; months in order of time, others by size."""
    found = summary.groups[by]
    if by == "month":
        names = sorted(found)
    else:
        names = sorted(found, key=lambda name: (-found[name].selected, name))
    rest = len(names) - MOST
    note = f"{rest:,} smaller ones are not shown." if rest > 0 and by != "month" else ""
    shown = names if by == "month" else names[:MOST]
    return Table(f"By {by}", _GROUP_COLUMNS, tuple(_group(name, found[name]) for name in shown), note, by)


def screen_outcomes(summary: Summary) -> Table:
    """What each screen says by itself."""
    rows = []
    for variant, table in summary.screens.items():
        counts = table.outcomes
        rate = Rate(counts["fail"], counts["fail"] + counts["pass"])
        rows.append((variant, f"{counts['pass']:,}", f"{counts['fail']:,}",
                     f"{sum(counts.values()) - rate.total:,}", *rate_cells(rate)[1:]))
    return Table("Screens", ("variant", "#pass", "#fail", "#undecided", "#fails", "#95%"), tuple(rows), "", "screens")


def screens(summary: Summary) -> list[Table]:
    """Each screen against the battery, in both directions."""
    found = []
    for variant, table in summary.screens.items():
        cells, test = table.cells, table.test
        whole = sum(cells.values())
        rows = (
            ("both pass", *rate_cells(Rate(cells[True, True], whole))),
            ("screen passes, battery rejects", *rate_cells(Rate(cells[True, False], whole))),
            ("  of those, in the strict floor", *rate_cells(Rate(table.strict, cells[True, False]))),
            ("screen fails, battery passes", *rate_cells(Rate(cells[False, True], whole))),
            ("both fail", *rate_cells(Rate(cells[False, False], whole))),
            ("rejected among what the screen passes",
             *rate_cells(Rate(cells[True, False], cells[True, True] + cells[True, False]))),
        )
        share = "" if test.share is None else (
            f" Of the rows on which they differ the battery rejects {100 * test.share:.1f} % "
            f"({100 * test.low:.1f}–{100 * test.high:.1f} %, exact).")
        why = ", ".join(f"{reason} {count:,}" for reason, count in _ordered(table.first))
        note = (f"McNemar's exact test: {test.first:,} against {test.second:,}, p = {test.p:.2g}.{share} "
                f"{table.undecided:,} rows on which one of the two did not decide."
                + (f" Why the screen fails what the battery passes: {why}." if why else ""))
        found.append(Table(f"Screen {variant} against the battery", ("screen and battery", *RATE_COLUMNS), rows,
                           note, f"screen-{variant}"))
    return found


def fast(summary: Summary) -> Table:
    """fast_p: the share of rows faster than a threshold, as claimed and with a check in front."""
    rows = []
    for threshold in THRESHOLDS:
        counts = summary.fast[threshold]
        cells = [cell for name in ("claimed", "contract") for cell in rate_cells(Rate(counts[name], summary.speedups))]
        if summary.screened:
            cells += rate_cells(Rate(counts["screened"], summary.screened))
        rows.append((f"{threshold:g}", *cells))
    columns = ["#faster than", "#claimed", "#rate", "#95%", "#contract", "#rate", "#95%"]
    if summary.screened:
        columns += ["#screen", "#rate", "#95%"]
    return Table("fast_p", tuple(columns), tuple(rows),
                 f"Of {summary.speedups:,} rows with a speedup: as claimed, with the contract in front, with the "
                 "screen in front.", "fast")


def _ordered(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
