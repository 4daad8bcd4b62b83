"""A sheet for judging findings by hand, and the precision that the filled sheet gives."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.audit.outcome import BATTERY
from assay.audit.run import column
from assay.audit.sampling import draw, stratum
from assay.audit.settings import Settings
from assay.audit.statistics import Rate, stratified
from assay.audit.store import Kept, Store
from assay.audit.summary import all_records
from assay.audit.tables import RATE_COLUMNS, Table, rate_cells
from assay.contract import Contract
from assay.contract.toml import write as write_contract
from assay.errors import InputError
from assay.report.words import REASONS, printable
from assay.vocabulary import Reason

FIELDS = ("id", "stratum", "population", "label", "gate", "reason", "tier", "where", "expected", "got", "replay",
          "human", "remark")
"""Columns of a sheet. A person fills `human`, and may fill `remark`."""
WORDS = {"yes": "holds", "y": "holds", "holds": "holds", "right": "holds", "1": "holds", "true": "holds",
         "no": "false alarm", "n": "false alarm", "false alarm": "false alarm", "wrong": "false alarm",
         "0": "false alarm", "false": "false alarm", "unclear": "unclear", "?": "unclear"}
"""What may be written into `human`: whether the verdict holds."""


@dataclass(frozen=True)
class Entry:
    """One row of a sheet, with its sources.

    Attributes:
        fields: by name, see `FIELDS`.
        reference: source of the reference.
        candidate: source of the candidate.
        findings: every finding in one line each.
        contract: the contract of its verdict as TOML; empty for the default one.
    """

    fields: dict[str, str]
    reference: str
    candidate: str
    findings: tuple[str, ...]
    contract: str = ""


def sample(store: Store, wanted: int, *, stratify: tuple[str, ...] = (), seed: int | None = None,
           label: str = "rejected") -> list[Entry]:
    """Draw decided rows for judging by hand.

    Args:
        store: the audit.
        wanted: how many rows.
        stratify: columns of the corpus, or `gate` or `tier` of the first finding, to draw in proportion to.
        seed: of the draw; None takes the audit's.
        label: `rejected` asks whether findings hold, `contract` whether passing does.

    Raises:
        InputError: no such row, or no such column.
    """
    settings = Settings.from_json(store.get("settings") or "{}")
    items = []
    for found in all_records(store):
        if found.row["status"] == "decided" and found.row["label"] == label:
            kept = store.row(found.row["id"])
            assert kept is not None
            values = [_value(kept, found.findings, name) for name in stratify]
            items.append((stratum(values) if values else "all", kept.id))
    if not items:
        raise InputError(f"no row of this audit has the label {label}", str(store.folder), "run it first")
    sizes = Counter(name for name, _ in items)
    names = {id: name for name, id in items}
    drawn = draw(items, wanted, settings.seed if seed is None else seed)  # type: ignore[arg-type]
    return [_entry(store, id, names[id], sizes[names[id]]) for id in drawn]


def _value(kept: Kept, findings: list[dict[str, Any]], name: str) -> str:
    if name in ("gate", "tier", "reason"):
        key = "slug" if name == "gate" else name
        return str(findings[0][key]) if findings else "none"
    return column(kept, name)


def _entry(store: Store, id: str, name: str, population: int) -> Entry:
    kept = store.row(id)
    outcome = store.outcomes(id)[BATTERY][0]
    assert kept is not None
    report = outcome["report"]
    findings = report["findings"]
    first = findings[0] if findings else {}
    place = folder_of(kept)
    command = ["assay", "verify", f"{place}/reference.py", f"{place}/candidate.py", "--seed", str(report["seed"]),
               "--tier", report["tier"]]
    command += ["--device", "cpu" if report["scope"] == "cpu-emulation" else "cuda", "--no-store"]
    contract = Contract.from_data(report["contract"], id)
    clauses = "" if contract == Contract() else write_contract(contract)
    if clauses:
        command += ["--contract", f"{place}/contract.toml"]
    if first:
        command += ["--only", first["slug"]]
    where = first.get("output") or ""
    if first.get("index") is not None:
        where += str(list(first["index"]))
    fields = {
        "id": id, "stratum": name, "population": str(population), "label": report["label"],
        "gate": first.get("slug", ""), "reason": first.get("reason", ""), "tier": first.get("tier", ""),
        "where": where, "expected": _line(first.get("expected")), "got": _line(first.get("actual")),
        "replay": shlex.join(command), "human": "", "remark": ""}
    return Entry(fields, store.source(kept.reference) or "", store.source(kept.candidate) or "",
                 tuple(_finding(f) for f in findings), clauses)


def folder_of(kept: Kept) -> str:
    """Folder of a row's sources beside the sheet: its place and its name, as far as a path can hold it."""
    return f"sources/{kept.position:06d}-{re.sub(r'[^A-Za-z0-9._-]+', '_', kept.id)[:60]}"


def _line(value: Any) -> str:
    return "" if value is None else printable(" ".join(str(value).split()))[:200]


def _finding(finding: dict[str, Any]) -> str:
    words = REASONS.get(Reason(finding["reason"]), finding["reason"])
    error = f", error {finding['error']:.3g} against {finding['tolerance']:.3g}" \
        if finding["error"] is not None and finding["tolerance"] is not None else ""
    return (f"{finding['slug']} ({finding['tier']}): {words}; expected {_line(finding['expected'])}, "
            f"got {_line(finding['actual'])}{error}; probe {finding['probe']}")


def write(entries: list[Entry], target: Path) -> list[Path]:
    """Write a sheet and the sources it names; the files written.

    `.html` is for reading beside the sources, and a `.csv` to fill is written next to it; `.csv` and `.md` are
    that file alone. Sources go into `sources/` beside it.

    Raises InputError where the files cannot be written or the ending is another.
    """
    if target.suffix not in (".html", ".csv", ".md"):
        raise InputError(f"no form of a sheet has the ending `{target.suffix}`", str(target), "use .html, .csv or .md")
    written = [target]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            place = target.parent / _folder(entry)
            place.mkdir(parents=True, exist_ok=True)
            (place / "reference.py").write_text(entry.reference, encoding="utf-8")
            (place / "candidate.py").write_text(entry.candidate, encoding="utf-8")
            if entry.contract:
                (place / "contract.toml").write_text(entry.contract, encoding="utf-8")
        if target.suffix == ".md":
            target.write_text(as_markdown(entries), encoding="utf-8")
            return written
        filled = target.with_suffix(".csv")
        if filled.exists() and any(row["human"].strip() for row in read(filled)):
            raise InputError("somebody has filled this sheet already", str(filled), "give another name")
        filled.write_text(as_csv(entries), encoding="utf-8")
        if target.suffix == ".html":
            from assay.audit.page import environment

            target.write_text(environment().get_template("sheet.html.j2").render(entries=entries),
                              encoding="utf-8")
            written.append(filled)
    except OSError as error:
        raise InputError(f"cannot write the sheet: {error.strerror or error}", str(target),
                         "give a folder that can be written") from None
    return written


def _folder(entry: Entry) -> str:
    return shlex.split(entry.fields["replay"])[2].removesuffix("/reference.py")


def as_csv(entries: list[Entry]) -> str:
    """A sheet as CSV. A cell that a spreadsheet would take for a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        writer.writerow({name: f"'{text}" if text[:1] in ("=", "+", "-", "@") and not _is_number(text) else text
                         for name, text in entry.fields.items()})
    return out.getvalue()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_markdown(entries: list[Entry]) -> str:
    """A sheet as Markdown: a table to fill, then the sources."""
    from assay.audit.tables import markdown

    table = Table("Sheet", FIELDS, tuple(tuple(e.fields[name] for name in FIELDS) for e in entries))
    parts = [markdown(table, 1)]
    for entry in entries:
        fence = "`" * (1 + max((len(m) for m in re.findall(r"`{3,}", entry.reference + entry.candidate)), default=2))
        parts.append("\n".join([f"## {entry.fields['id']}", "", *(f"- {line}" for line in entry.findings), "",
                                "Reference:", "", f"{fence}python", entry.reference.rstrip(), fence, "", "Candidate:",
                                "", f"{fence}python", entry.candidate.rstrip(), fence, ""]))
    return "\n".join(parts)


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a filled sheet, CSV or Markdown. Raises InputError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the sheet: {error}", str(path), "give the filled .csv or .md") from None
    if path.suffix == ".html":
        raise InputError("the page of a sheet is for reading", str(path), f"fill {path.with_suffix('.csv').name}")
    rows = _markdown_rows(text) if path.suffix == ".md" else list(csv.DictReader(io.StringIO(text)))
    if not rows or not {"id", "stratum", "population", "human"} <= set(rows[0]):
        raise InputError("no sheet of `assay audit sample`", str(path), "its columns are " + ", ".join(FIELDS))
    return [{name: (value or "") for name, value in row.items() if name is not None} for row in rows]


def _markdown_rows(text: str) -> list[dict[str, str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [dict(zip(cells[0], row, strict=False)) for row in cells[2:]] if len(cells) > 2 else []


@dataclass(frozen=True)
class Precision:
    """What a filled sheet says.

    Attributes:
        rate: rows that hold, of those that were judged either way.
        unclear: rows left open by the judge.
        empty: rows not judged.
        weighted: estimate over the whole population with its interval, where strata were drawn unequally.
        strata: by stratum, rows that hold of those judged.
        false_alarms: ids.
    """

    rate: Rate
    unclear: int
    empty: int
    weighted: tuple[float, float, float] | None
    strata: dict[str, Rate]
    false_alarms: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        weighted = None if self.weighted is None else dict(zip(("rate", "low", "high"), self.weighted, strict=True))
        return {"schema_version": 1, "precision": self.rate.to_json(), "weighted": weighted, "unclear": self.unclear,
                "empty": self.empty, "strata": {name: rate.to_json() for name, rate in self.strata.items()},
                "false_alarms": list(self.false_alarms)}


def precision(rows: list[dict[str, str]], where: str) -> Precision:
    """The precision that a filled sheet gives. Raises InputError for a word that is none of `WORDS`."""
    counts: dict[str, Counter[str]] = {}
    sizes: dict[str, int] = {}
    false_alarms = []
    for number, row in enumerate(rows, 2):
        said = row["human"].strip().lower()
        if said and said not in WORDS:
            raise InputError(f"`{row['human']}` in column human", f"{where}, row {number}",
                             "write yes (the verdict holds), no (a false alarm) or unclear")
        word = WORDS.get(said, "empty")
        counts.setdefault(row["stratum"], Counter())[word] += 1
        try:
            sizes[row["stratum"]] = int(row["population"])
        except ValueError:
            raise InputError(f"`{row['population']}` in column population", f"{where}, row {number}",
                             "leave that column as it was") from None
        if word == "false alarm":
            false_alarms.append(row["id"])
    strata = {name: Rate(c["holds"], c["holds"] + c["false alarm"]) for name, c in sorted(counts.items())}
    whole = Rate(sum(r.count for r in strata.values()), sum(r.total for r in strata.values()))
    weighted = stratified([(r.count, r.total, sizes[name]) for name, r in strata.items()]) if len(strata) > 1 else None
    return Precision(whole, sum(c["unclear"] for c in counts.values()), sum(c["empty"] for c in counts.values()),
                     weighted, strata, tuple(false_alarms))


def precision_table(found: Precision) -> Table:
    """A precision as a table."""
    rows = [("all", *rate_cells(found.rate))]
    if len(found.strata) > 1:
        rows += [(name, *rate_cells(rate)) for name, rate in found.strata.items()]
    note = f"{found.unclear:,} unclear and {found.empty:,} not judged are in no rate."
    if found.weighted is not None:
        value, low, high = (100 * x for x in found.weighted)
        note += f" Weighted by the size of the strata: {value:.1f} % ({low:.1f}–{high:.1f} %)."
    if found.false_alarms:
        note += f" False alarms: {', '.join(found.false_alarms)}."
    return Table("Precision", ("stratum", *RATE_COLUMNS), tuple(rows), note, "precision")
