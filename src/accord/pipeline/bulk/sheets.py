"""Plain predicates as columns, matched against whole batches of events.

A sheet holds clauses on the same attributes: some must equal constants (its points), others lie
within bounds (its ranges). Clauses are grouped by equal constants and channel filter, so that an
event meets few of them. What remains is to compare the event's numbers with the bounds of its
group, which numpy does in one of two ways. If many events of a batch meet a large group: as a table
with a row for each event and a column for each clause, at about a nanosecond a cell plus ten
microseconds of set-up. Small groups are concatenated, so that all events of a batch go through them
in one pass: twenty times the cost per pair, but a single set-up.

In a table, clauses are ordered by their lowest value in the first range, and events by their value
there, so a strip of neighbouring events needs only a contiguous part of the clauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accord.core.model.channels import ChannelMap
from accord.pipeline.bulk.events import Codes, Events, Integers, Numbers, is_absent

Pairs = tuple[Integers, Integers]  # batch rows and predicate positions, in parallel
Floats = NDArray[np.float64]

# From this many pairs on, a table costs less than a share of the common pass.
_TABLE_PAIRS: Final = 1_024
_STRIP_CELLS: Final = 1 << 14
_STRIP_EVENTS: Final = 32  # at least
_MOST_PAIRS: Final = 1 << 20  # compared at a time
_SHORT: Final = 1 << 16  # numbers below this use radix sort


@dataclass(frozen=True)
class Sheet:
    """Clauses in columns. Group g has those from `starts[g]` up to `starts[g + 1]`.

    `filters` are the channel filters in use, `group_filters` the index of each group's own, and
    `group_points` its constants, a column for each point. `positions` are those of the predicates.
    `lows` and `highs` have a row for each of `ranges`. `peaks` is the running maximum, within the
    group, of the upper bound in the first range: no clause before the first peak above a value
    matches that value.
    """

    points: tuple[tuple[str, str], ...]  # names, and kinds of value
    ranges: tuple[str, ...]
    filters: tuple[str, ...]
    starts: Integers
    group_filters: Integers
    group_points: tuple[pa.Array, ...]
    positions: Integers
    lows: Floats
    highs: Floats
    peaks: Floats

    def find(self, events: Events) -> Iterator[Pairs]:
        """Return pairs of event and matching predicate, unordered."""
        codes = [events.channels, *(events.codes(name, kind) for name, kind in self.points)]
        meetings = self._meet(_sort_rows(codes), codes)
        numbers = [events.numbers(name) for name in self.ranges]
        clauses = self.starts[meetings.groups + 1] - self.starts[meetings.groups]
        is_table = meetings.counts * clauses >= _TABLE_PAIRS
        if not numbers:
            is_table[:] = False
        for place in np.flatnonzero(is_table).tolist():
            first, group = int(meetings.firsts[place]), int(meetings.groups[place])
            rows = meetings.order[first : first + int(meetings.counts[place])]
            yield from self._find_in_table(rows, group, numbers)
        rows, groups = meetings.strung(~is_table)
        yield from self._find_in_passes(rows, groups, numbers)

    @cached_property
    def _groups(self) -> list[dict[Any, int]]:
        """For each filter, its groups by their constants."""
        tables: list[dict[Any, int]] = [{} for _ in self.filters]
        columns = [column.to_pylist() for column in self.group_points]
        keys = columns[0] if len(columns) == 1 else [*zip(*columns, strict=True)]
        for group, number in enumerate(self.group_filters.tolist()):
            tables[number][keys[group] if keys else ()] = group
        return tables

    @cached_property
    def _filters(self) -> ChannelMap[list[int]]:
        filters: ChannelMap[list[int]] = ChannelMap()
        for number, pattern in enumerate(self.filters):
            filters.set(pattern, [number])
        return filters

    def _meet(self, kinds: _Sorted, codes: Sequence[Codes]) -> _Meetings:
        """Find the groups met by events that agree in channel and points."""
        tables = self._groups
        selected: dict[int, list[dict[Any, int]]] = {}
        samples = kinds.order[kinds.firsts]
        channels = codes[0].of_rows[samples].tolist()
        columns = [
            [part.values[code] for code in part.of_rows[samples].tolist()] for part in codes[1:]
        ]
        keys = columns[0] if len(columns) == 1 else [*zip(*columns, strict=True)]
        met: list[tuple[int, int]] = []
        for number, channel in enumerate(channels):
            filters = selected.get(channel)
            if filters is None:
                found = self._filters.select(codes[0].values[channel])
                filters = selected[channel] = [tables[each] for (each,) in found]
            key = keys[number] if keys else ()
            for table in filters:
                if (group := table.get(key)) is not None:
                    met.append((number, group))
        places, groups = np.array(met, np.int64).reshape(-1, 2).T
        return _Meetings(kinds.order, kinds.firsts[places], kinds.counts[places], groups)

    def _find_in_table(
        self, rows: Integers, group: int, numbers: Sequence[Numbers]
    ) -> Iterator[Pairs]:
        start, end = int(self.starts[group]), int(self.starts[group + 1])
        columns = [column[rows] for column in numbers]
        whole = np.flatnonzero(~np.any([is_absent(column) for column in columns], axis=0))
        order = whole[np.argsort(columns[0][whole], kind="stable")]
        rows, columns = rows[order], [column[order] for column in columns]
        peaks, lows = self.peaks[start:end], self.lows[0, start:end]
        size = max(_STRIP_EVENTS, _STRIP_CELLS // (end - start))
        for top in range(0, len(rows), size):
            strip = [column[top : top + size, np.newaxis] for column in columns]
            first = start + int(np.searchsorted(peaks, strip[0][0, 0], "right"))
            last = start + int(np.searchsorted(lows, strip[0][-1, 0], "right"))
            for left in range(first, last, _MOST_PAIRS // _STRIP_EVENTS):
                right = min(last, left + _MOST_PAIRS // _STRIP_EVENTS)
                hits = self._compare(strip, left, right)
                events, clauses = np.divmod(hits, right - left)
                yield rows[top + events], self.positions[left + clauses]

    def _compare(self, strip: Sequence[Numbers], left: int, right: int) -> Integers:
        """Return the cells of a table, numbered row by row, whose event and clause match."""
        cells: Any = True
        for axis, values in enumerate(strip):
            cells &= values >= self.lows[axis, left:right]
            cells &= values < self.highs[axis, left:right]
        return np.flatnonzero(cells)

    def _find_in_passes(
        self, rows: Integers, groups: Integers, numbers: Sequence[Numbers]
    ) -> Iterator[Pairs]:
        sizes = self.starts[groups + 1] - self.starts[groups]
        ends = np.cumsum(sizes)
        top = 0
        while top < len(rows):
            limit = _MOST_PAIRS + (int(ends[top - 1]) if top else 0)
            bottom = max(top + 1, int(np.searchsorted(ends, limit, "right")))
            part = slice(top, bottom)
            events = np.repeat(rows[part], sizes[part])
            clauses = _string(self.starts[groups[part]], sizes[part])
            for axis, column in enumerate(numbers):
                values = column[events]
                # On object arrays numpy warns of NaN, which marks an absent number.
                with np.errstate(invalid="ignore"):
                    hits = np.flatnonzero(
                        (values >= self.lows[axis][clauses]) & (values < self.highs[axis][clauses])
                    )
                events, clauses = events[hits], clauses[hits]
            yield events, self.positions[clauses]
            top = bottom


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows ordered so that equal ones are adjacent: `counts[k]` of them from `firsts[k]`."""

    order: Integers
    firsts: Integers
    counts: Integers


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Equal rows, from `firsts` on in `order`, and a group that they meet."""

    order: Integers
    firsts: Integers
    counts: Integers
    groups: Integers

    def strung(self, chosen: NDArray[np.bool_]) -> tuple[Integers, Integers]:
        """The rows of the chosen meetings one by one, each with its group."""
        firsts, counts = self.firsts[chosen], self.counts[chosen]
        return self.order[_string(firsts, counts)], np.repeat(self.groups[chosen], counts)


def _sort_rows(parts: Sequence[Codes]) -> _Sorted:
    """Sort rows by their codes in all `parts`, without those that lack one."""
    combined, size = parts[0].of_rows, len(parts[0].values)
    for part in parts[1:]:
        is_whole = (combined >= 0) & (part.of_rows >= 0)
        combined = np.where(is_whole, combined * len(part.values) + part.of_rows, -1)
        size *= len(part.values)
        if size > max(_SHORT, 2 * len(combined)):
            distinct, combined = np.unique(combined, return_inverse=True)
            has_none = len(distinct) and distinct[0] < 0
            combined, size = combined - has_none, len(distinct) - has_none
    short = combined.astype(np.uint16) if size < _SHORT else combined
    order = np.argsort(short, kind="stable")
    counts = np.bincount(combined + 1, minlength=1)
    # Rows that lack a code come first or, as short numbers, last.
    firsts = np.concatenate(([0], np.cumsum(counts[1:])))[:-1]
    firsts += 0 if size < _SHORT else counts[0]
    used = np.flatnonzero(counts[1:])
    return _Sorted(order, firsts[used], counts[1:][used])


def _string(firsts: Integers, counts: Integers) -> Integers:
    """Concatenated ranges: from each of `firsts`, `counts` numbers."""
    before = np.cumsum(counts) - counts
    return np.repeat(firsts - before, counts) + np.arange(int(counts.sum()))
