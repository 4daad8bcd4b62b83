"""Inline SVG for pages and notebooks: error maps, inputs with special values, one row of the precision plot.

Colours come from classes that the page's style sheet defines. Text is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from assay.report.exhibit import CERTAIN, EXACT, UNDECIDED, ErrorMap, PrecisionFingerprint, SpecialInput
from assay.report.words import printable

SIDE = 288.0
"""Pixels of the longer side of a map that stands beside text."""
LARGEST_CELL = 18.0
SMALLEST_STRIP = 22.0
"""Pixels of the shorter side of a map, so that a single row can be seen."""
EDGE = 14.0
"""Pixels kept free above and to the left for the ends of the scales."""
STEPS = 6
"""Colours for what is outside the tolerance, from the least to the most wrong of one map."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Scale:
    """Colour of each cell of one map.

    Attributes:
        band: class by cell.
        legend: class and meaning of each band that the map shows.
    """

    band: dict[str, str]
    legend: tuple[tuple[str, str], ...]


def scale(error_map: ErrorMap) -> Scale:
    """Bands of a map: what is outside the tolerance takes all colours, however near or far it is."""
    seen = {cell for row in error_map.rows for cell in row}
    band: dict[str, str] = {}
    legend: list[tuple[str, str]] = []

    def add(name: str, words: str, cells: str) -> None:
        if seen & set(cells):
            legend.append((name, words))
            band.update(dict.fromkeys(cells, name))

    add("exact", "no difference", EXACT)
    add("within", "within tolerance", _LETTERS.lower())
    wrong = sorted(_LETTERS.index(cell) for cell in seen if cell in _LETTERS)
    if wrong:
        low, span = wrong[0], wrong[-1] - wrong[0] + 1
        count = min(STEPS, span)
        for step in range(count):
            first, after = low + step * span // count, low + (step + 1) * span // count
            name = f"over{4 if count == 1 else 1 + round(step * (STEPS - 1) / (count - 1))}"
            add(name, _times(first, after), _LETTERS[first:after])
    add("certain", "wrong at any tolerance", CERTAIN)
    add("undecided", "undecided", UNDECIDED)
    return Scale(band, tuple(legend))


def _times(first: int, after: int) -> str:
    """Error ÷ tolerance from 2^first to 2^after in words."""
    low, high = _short(2.0**first), _short(2.0**after)
    return f"over {low}×" if after == len(_LETTERS) else f"{low}–{high}×"


def _short(value: float) -> str:
    """A number with two or three digits and k, M or G."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.0f}{unit}" if value >= 10 * size else f"{value / size:.2g}{unit}"
    return f"{value:.0f}"


def is_wide(error_map: ErrorMap) -> bool:
    """Whether a map is so much wider than high that it takes the whole width of the page."""
    down, across = _cells(error_map)
    return across > 16 and across >= 2.5 * down


def _cells(error_map: ErrorMap) -> tuple[int, int]:
    return len(error_map.rows), max((len(row) for row in error_map.rows), default=0)


def error_map_svg(error_map: ErrorMap, index: tuple[int, ...] | None = None) -> str:
    """A map as SVG, one path per band; the cell of the element `index` is outlined."""
    down, across = _cells(error_map)
    if not down or not across:
        return ""
    bands = scale(error_map).band
    wide = is_wide(error_map)
    width, height = (across, down) if wide else _sides(down, across)
    x, y = width / across, height / down
    runs: dict[str, list[str]] = {}
    for r, row in enumerate(error_map.rows):
        for start, length, name in _runs(row, bands):
            long = _n(length * x)
            runs.setdefault(name, []).append(f"M{_n(start * x)} {_n(r * y)}h{long}v{_n(y)}h-{long}z")
    paths = "".join(f'<path class="band-{name}" d="{"".join(parts)}"/>' for name, parts in runs.items())
    rows, columns = error_map.matrix
    marked = ""
    if (place := _cell(error_map, index)) is not None:
        out = 0.0 if wide else 1.5
        marked = (f'<rect class="mark" x="{_n(place[1] * x - out)}" y="{_n(place[0] * y - out)}" '
                  f'width="{_n(x + 2 * out)}" height="{_n(y + 2 * out)}"/>')
    label = _text(f"error map of {error_map.output}, {rows} by {columns} elements in {down} by {across} cells")
    body = (f'<g shape-rendering="crispEdges">{paths}</g>'
            f'<rect class="frame" width="{_n(width)}" height="{_n(height)}"/>{marked}')
    if wide:
        tall = min(180.0, max(28.0, 1000.0 / across * down))
        return (f'<svg class="map wide" role="img" aria-label="{label}" width="100%" height="{_n(tall)}" '
                f'viewBox="0 0 {_n(width)} {_n(height)}" preserveAspectRatio="none">{body}</svg>')
    return (f'<svg class="map" role="img" aria-label="{label}" width="{_n(width + EDGE + 2)}" '
            f'height="{_n(height + EDGE + 2)}" viewBox="-{_n(EDGE)} -{_n(EDGE)} {_n(width + EDGE + 2)} '
            f'{_n(height + EDGE + 2)}">{body}{_scales(width, height, rows, columns)}</svg>')


def _sides(down: int, across: int) -> tuple[float, float]:
    """Width and height in pixels: square cells, except that a strip is never too thin to be seen."""
    cell = min(LARGEST_CELL, SIDE / max(down, across))
    return max(across * cell, SMALLEST_STRIP), max(down * cell, SMALLEST_STRIP)


def _scales(width: float, height: float, rows: int, columns: int) -> str:
    """The first and last row and column, where there is more than one."""
    found = ""
    if columns > 1:
        found += '<text class="tick" x="0" y="-4">0</text>'
        if width > 40:
            found += f'<text class="tick" x="{_n(width)}" y="-4" text-anchor="end">{columns - 1:,}</text>'
    if rows > 1 and height > 40:
        found += f'<text class="tick" transform="translate(-4 {_n(height)}) rotate(-90)">{rows - 1:,}</text>'
    return found


def _runs(row: str, bands: dict[str, str]) -> list[tuple[int, int, str]]:
    """Start, length and band of each run of cells in one band."""
    found: list[tuple[int, int, str]] = []
    for column, cell in enumerate(row):
        name = bands.get(cell, "undecided")
        if found and found[-1][2] == name:
            start, length, _ = found[-1]
            found[-1] = (start, length + 1, name)
        else:
            found.append((column, 1, name))
    return found


def _cell(error_map: ErrorMap, index: Sequence[int] | None) -> tuple[int, int] | None:
    """Row and column of the cell that holds an element; None where it has no such element."""
    if index is None or len(index) != len(error_map.shape):
        return None
    row = 0
    for size, i in zip(error_map.shape[:-1], index[:-1], strict=True):
        row = row * size + i
    column = index[-1] if index else 0
    return row // error_map.cell[0], column // error_map.cell[1]


def special_input_svg(given: SpecialInput) -> str:
    """An input as a frame with a dot at each special value."""
    columns = given.shape[-1] if given.shape else 1
    rows = math.prod(given.shape[:-1])
    scale = min(160.0 / max(columns, 1), 72.0 / max(rows, 1))
    width, height = max(14.0, columns * scale), max(14.0, rows * scale)
    dots = []
    for value in given.values:
        row = 0
        for size, i in zip(given.shape[:-1], value.index[:-1], strict=False):
            row = row * size + i
        column = value.index[-1] if value.index else 0
        title = _text(f"{value.value} at [{', '.join(map(str, value.index))}]")
        dots.append(f'<circle class="dot" cx="{_n((column + 0.5) / columns * width)}" '
                    f'cy="{_n((row + 0.5) / rows * height)}" r="3.5"><title>{title}</title></circle>')
    label = _text(f"input {given.input}, special values")
    return (f'<svg class="input" role="img" aria-label="{label}" width="{_n(width + 10)}" height="{_n(height + 10)}" '
            f'viewBox="-5 -5 {_n(width + 10)} {_n(height + 10)}"><rect class="frame" width="{_n(width)}" '
            f'height="{_n(height)}"/>{"".join(dots)}</svg>')


def decades(seen: PrecisionFingerprint) -> tuple[int, int]:
    """Powers of ten between which the ratios of a fingerprint lie, 1 among them."""
    known = [m.ratio for m in seen.modes if m.ratio is not None and m.ratio > 0.0]
    low = min([-1, *(math.floor(math.log10(ratio)) for ratio in known)])
    high = max([1, *(math.ceil(math.log10(ratio)) for ratio in known)])
    return max(low, -12), min(high, 15)


def place(ratio: float | None, low: int, high: int) -> float:
    """Percent of the way from 10^low to 10^high; what is not finite lies at the end, zero at the start."""
    if ratio is None:
        return 100.0
    if ratio <= 0.0:
        return 0.0
    return min(100.0, max(0.0, 100.0 * (math.log10(ratio) - low) / (high - low)))


def precision_svg(ratio: float | None, low: int, high: int, *, allowed: bool, blind: bool) -> str:
    """One row of the precision plot: where the error lies against the tolerance of one arithmetic.

    Args:
        ratio: largest residual ÷ tolerance; None when not finite.
        low, high: decades at the ends.
        allowed: whether this arithmetic allows the error.
        blind: whether the probe could not have told it from the declared one.
    """
    one = place(1.0, low, high)
    lines = "".join(f'<line class="grid" x1="{_n(p)}%" x2="{_n(p)}%" y1="0" y2="24"/>'
                    for d in range(low + 1, high) if d != 0 for p in [place(10.0**d, low, high)])
    name = "allowed" if allowed else "refused"
    end = place(ratio, low, high)
    start, length = min(one, end), abs(end - one)
    return (f'<svg class="row" role="img" aria-hidden="true" width="100%" height="24">'
            f'<rect class="zone" x="0" y="0" width="{_n(one)}%" height="24"/>{lines}'
            f'<rect class="bar {name}" x="{_n(start)}%" y="10" width="{_n(length)}%" height="4"/>'
            f'<line class="one" x1="{_n(one)}%" x2="{_n(one)}%" y1="0" y2="24"/>'
            f'<circle class="point {name}{" blind" if blind else ""}" cx="{_n(end)}%" cy="12" r="5"/></svg>')


def _text(text: str) -> str:
    return escape(printable(text), quote=True)


def _n(value: float) -> str:
    """A number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
