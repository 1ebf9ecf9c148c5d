"""Decimation: drops readings of a series and keeps the significant ones.

A payload is a series of readings: a JSON array, lines of JSON or of CSV, or a JSON object with
parallel arrays of the same length. Rows are kept or dropped, never changed: what is sent is what
was measured, to the last digit.

Min-max decimation: the first and last row are kept, and from each of equal intervals the rows where
a column has its minimum or maximum. So a peak stays a peak however few rows are left, unlike with
every n-th row. Monotonic columns, such as times and counters, have no significant extremes and are
not considered. Rows without numbers are thinned evenly.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.shaping.content import Content, ShapingError
from accord.shaping.rows import CSV, JSON, LINES, TYPES, Numbers, parse_rows, sniff_rows

MAX_INFORMATIVE: Final = 8  # columns whose extremes are kept
_TRIES: Final = 8
_FIT: Final = 0.98
_CLOSE: Final = 0.9  # of the target: closer is not worth another try


class Decimation:
    """Shaper for series of readings."""

    name = "decimation"

    def accepts(self, content_type: str, head: bytes) -> bool:
        return bool(_kind(content_type, head))

    def shape(self, content: Content, shape: ShapingTarget) -> Content:
        kind = _kind(content.content_type, content.payload)
        payload = decimate(content.payload, shape.max_bytes, kind)
        return Content(payload, content.content_type, content.properties)


def _kind(content_type: str, head: bytes) -> str:
    named = TYPES.get(content_type.partition(";")[0].strip().lower(), "")
    sniffed = sniff_rows(head)
    # The JSON content type is often used for lines of JSON, too.
    return named if named in (CSV, LINES) else (sniffed or named if named == JSON else sniffed)


def decimate(payload: bytes, max_bytes: int, kind: str) -> bytes:
    """`payload` within `max_bytes` if dropping rows achieves that, else the smallest try."""
    if not 0 < max_bytes < len(payload):
        return payload
    try:
        rows = parse_rows(payload, kind)
        columns = informative(rows.columns())
    except (ValueError, RecursionError) as error:
        raise ShapingError(f"expected a series of readings: {error}") from None
    total = len(rows.texts)
    if total <= 2:
        raise ShapingError(f"a series of {total} readings, nothing can be left out")
    room = max(1, max_bytes - rows.overhead)
    count = max(2, int(_FIT * total * room / max(1, len(payload) - rows.overhead)))
    fitting, smallest = b"", payload
    tried: set[int] = set()
    missed = total
    while len(tried) < _TRIES and count not in tried:
        tried.add(count)
        shaped = rows.encode(choose_rows(total, columns, count))
        if len(shaped) <= max_bytes:
            fitting = max(fitting, shaped, key=len)
            if len(shaped) >= _CLOSE * max_bytes:
                break
        else:
            smallest = min(smallest, shaped, key=len)
            missed = min(missed, count)
        # Rows have about the same length, so the second try is close.
        count = max(2, min(missed - 1, int(_FIT * count * max_bytes / len(shaped))))
    return fitting or smallest


def informative(columns: list[Numbers]) -> list[Numbers]:
    """The columns with significant extremes: those that are not monotonic."""
    return [column for column in columns if not _is_steady(column)][:MAX_INFORMATIVE]


def _is_steady(column: Numbers) -> bool:
    if all(a <= b for a, b in pairwise(column)):
        return True
    return all(a >= b for a, b in pairwise(column))


def choose_rows(total: int, columns: list[Numbers], count: int) -> list[int]:
    """At most `count` of `total` rows, in order; at least two."""
    count = max(2, count)
    if count >= total:
        return list(range(total))
    if not columns:
        return sorted({place * (total - 1) // (count - 1) for place in range(count)})
    chosen = {0, total - 1}
    stretches = (count - 2) // (2 * len(columns))
    if stretches:
        for stretch in range(stretches):
            start, end = stretch * total // stretches, (stretch + 1) * total // stretches
            for column in columns:
                chosen.update(_extremes(column, start, end))
    else:
        extremes = [place for column in columns for place in _extremes(column, 0, total)]
        for place in extremes[: count - 2]:
            chosen.add(place)
    return sorted(chosen)


def _extremes(column: Numbers, start: int, end: int) -> tuple[int, int]:
    """Indexes of the first minimum and the first maximum."""
    places = range(start, end)
    return min(places, key=column.__getitem__), max(places, key=column.__getitem__)
