"""Decimation: a series of readings with fewer of them, the telling ones.

A payload is a row of readings: a JSON array, lines of JSON or of CSV, or a JSON object with arrays
of the same length beside each other. Rows are kept or left out, never changed: what is sent is what
was measured, to the last digit.

Which rows: the first and the last, and from each of equal stretches those where some column is at
its minimum or maximum. So a peak stays a peak however few rows are left, which every n-th row would
not give. A column that never falls or never rises, as times and counters do, has nothing to
tell in this way and is not asked. Rows without numbers are thinned evenly.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.shaping.content import Content, ShapingError
from accord.shaping.rows import CSV, JSON, LINES, TYPES, Numbers, parse_rows, sniff_rows

MAX_ASKED: Final = 8  # columns whose extremes are kept
_TRIES: Final = 8
_FIT: Final = 0.98
_CLOSE: Final = 0.9  # of the target: more is not worth another try


class Decimation:
    """Leaves out readings."""

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
    # JSON is often said of lines of JSON too.
    return named if named in (CSV, LINES) else (sniffed or named if named == JSON else sniffed)


def decimate(payload: bytes, max_bytes: int, kind: str) -> bytes:
    """`payload` within `max_bytes`, if leaving out all but two rows is enough for that."""
    if not 0 < max_bytes < len(payload):
        return payload
    try:
        rows = parse_rows(payload, kind)
        columns = telling(rows.columns())
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
        shaped = rows.written(choose_rows(total, columns, count))
        if len(shaped) <= max_bytes:
            fitting = max(fitting, shaped, key=len)
            if len(shaped) >= _CLOSE * max_bytes:
                break
        else:
            smallest = min(smallest, shaped, key=len)
            missed = min(missed, count)
        # Rows are of about the same length, so this is close the second time.
        count = max(2, min(missed - 1, int(_FIT * count * max_bytes / len(shaped))))
    return fitting or smallest


def telling(columns: list[Numbers]) -> list[Numbers]:
    """The columns whose extremes say something."""
    return [column for column in columns if not _is_steady(column)][:MAX_ASKED]


def _is_steady(column: Numbers) -> bool:
    if all(a <= b for a, b in pairwise(column)):
        return True
    return all(a >= b for a, b in pairwise(column))


def choose_rows(total: int, columns: list[Numbers], count: int) -> list[int]:
    """At most `count` of `total` rows, in order; two at least."""
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
    """Where the first minimum and the first maximum stand."""
    places = range(start, end)
    return min(places, key=column.__getitem__), max(places, key=column.__getitem__)
