"""Clauses as columns and bitmaps, matched against whole batches of events.

A clause is a conjunction: attributes that equal constants (its equalities), and numbers or times
within bounds (its axes). Clauses on the same attributes share a table, in which those with equal
constants and channel filter are a group: an event meets few groups.

Which clauses of a group have an event within their bounds is found by bit vectors (as packets are
classified by many ranges). Each axis is divided into cells, and each cell has a bitmap of the
clauses that reach into it; the AND of the bitmaps of the event's cells leaves few candidates, 64
clauses per step, whose bounds are then compared exactly. In a large group a summary, with a bit for
each word of 64 clauses, first finds the words worth reading: within a group, clauses are ordered by
their lower bound on the most selective axis, so a narrow range has its bits in few words.
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
from accord.pipeline.bulk.events import CodedColumn, Events, Floats, Integers
from accord.pipeline.bulk.text_patterns import Column

Pairs = tuple[Integers, Integers]  # batch rows and predicate positions, in parallel
Words = NDArray[np.uint64]

WORD_BITS: Final = 64
_SUMMARISED: Final = 4  # words of a group from which on its summary is read first
_MAX_WORDS: Final = 1 << 17  # read at a time
_MAX_CODE: Final = 1 << 40
_ALL: Final = np.uint64(2**WORD_BITS - 1)


@dataclass(frozen=True)
class CellBitmaps:
    """The cells of one axis: cell c ends at `edges[c]`.

    Bit i of row c in `clauses` is set if clause i reaches into the cell; bit i of row c in
    `summary`, if word i of that row is not 0.
    """

    edges: Floats
    clauses: Words
    summary: Words


@dataclass(frozen=True)
class ClauseTable:
    """Clauses of one signature. Group g has those from `starts[g]` up to `starts[g + 1]`.

    `filters` are the channel filters in use, `group_filters` the index of each group's own, and
    `group_constants` its constants, a column for each equality. `positions` are those of the
    predicates. `lows`, `highs` and `cells` have a row for each of `axes`: `low <= value < high`.
    """

    equalities: tuple[Column, ...]
    axes: tuple[Column, ...]
    filters: tuple[str, ...]
    starts: Integers
    group_filters: Integers
    group_constants: tuple[pa.Array, ...]
    positions: Integers
    lows: Floats
    highs: Floats
    cells: tuple[CellBitmaps, ...]

    def find(self, events: Events, part: slice) -> Iterator[Pairs]:
        """Return pairs of event and matching predicate for the events in `part`, unordered."""
        numbers = [events.axis(name, kind)[part] for name, kind in self.axes]
        cells = [
            np.searchsorted(each.edges, column, "right")
            for each, column in zip(self.cells, numbers, strict=True)
        ]
        is_whole = np.ones(part.stop - part.start, np.bool_)
        for column in numbers:
            is_whole &= ~np.isnan(column)
        rows, groups = self._meet(events, part, is_whole)
        firsts, ends = self.starts[groups], self.starts[groups + 1]
        words = (ends - 1) // WORD_BITS - firsts // WORD_BITS + 1
        is_large = words >= (_SUMMARISED if self.axes else np.inf)
        for chosen, step in ((~is_large, 1), (is_large, WORD_BITS)):
            meetings = _Meetings(rows[chosen], firsts[chosen], ends[chosen])
            for some in meetings.divided(words[chosen] // step + 1):
                read = self._summarised(some, cells) if step > 1 else _concatenated(*some.words)
                yield from self._compare(some, read, cells, numbers, part.start)

    def _summarised(self, meetings: _Meetings, cells: Sequence[Integers]) -> Pairs:
        """The words that the summaries leave, as pairs of meeting and word."""
        firsts, ends = meetings.words
        which, words = _concatenated(firsts // WORD_BITS, (ends - 1) // WORD_BITS + 1)
        summaries = [each.summary for each in self.cells]
        masks = _intersect(summaries, cells, meetings.rows[which], words)
        return _set_bits(masks, which, words, firsts, ends)

    def _compare(
        self,
        meetings: _Meetings,
        read: Pairs,
        cells: Sequence[Integers],
        numbers: Sequence[Floats],
        first_row: int,
    ) -> Iterator[Pairs]:
        """Compare events with the clauses in the words to `read`."""
        bitmaps = [each.clauses for each in self.cells]
        for top in range(0, len(read[0]), _MAX_WORDS):
            which, words = (part[top : top + _MAX_WORDS] for part in read)
            masks = _intersect(bitmaps, cells, meetings.rows[which], words)
            which, clauses = _set_bits(masks, which, words, meetings.firsts, meetings.ends)
            rows = meetings.rows[which]
            for axis, column in enumerate(numbers):
                values = column[rows]
                is_within = values >= self.lows[axis][clauses]
                is_within &= values < self.highs[axis][clauses]
                hits = np.flatnonzero(is_within)
                rows, clauses = rows[hits], clauses[hits]
            yield rows + first_row, self.positions[clauses]

    @cached_property
    def _groups(self) -> list[dict[Any, int]]:
        """For each filter, its groups by their constants."""
        tables: list[dict[Any, int]] = [{} for _ in self.filters]
        columns = [column.to_pylist() for column in self.group_constants]
        keys = [*zip(*columns, strict=True)] if columns else [()] * len(self.group_filters)
        for group, number in enumerate(self.group_filters.tolist()):
            tables[number][keys[group]] = group
        return tables

    @cached_property
    def _filters(self) -> ChannelMap[list[int]]:
        filters: ChannelMap[list[int]] = ChannelMap()
        for number, pattern in enumerate(self.filters):
            filters.set(pattern, [number])
        return filters

    def _meet(self, events: Events, part: slice, is_whole: NDArray[np.bool_]) -> Pairs:
        """Pairs of event and group that agree in channel and equalities."""
        codes = [events.channels, *(events.codes(name, kind) for name, kind in self.equalities)]
        combined = np.where(is_whole, _combine(codes, part), -1)
        distinct, samples, kinds = np.unique(combined, return_index=True, return_inverse=True)
        columns = [column.values_at(part.start + samples) for column in codes]
        selected: dict[str, list[dict[Any, int]]] = {}
        found: list[tuple[int, int]] = []
        for number, (code, channel, *key) in enumerate(
            zip(distinct.tolist(), *columns, strict=True)
        ):
            if code < 0:
                continue
            tables = selected.get(channel)
            if tables is None:
                numbers = [each for (each,) in self._filters.select(channel)]
                tables = selected[channel] = [self._groups[each] for each in numbers]
            for table in tables:
                if (group := table.get(tuple(key))) is not None:
                    found.append((number, group))
        met, groups = np.array(found, np.int64).reshape(-1, 2).T
        starts = np.searchsorted(met, np.arange(len(distinct) + 1))
        rows, places = _concatenated(starts[kinds], starts[kinds + 1])
        return rows, groups[places]


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Events, each with a group that it meets: the clauses from `firsts` up to `ends`."""

    rows: Integers
    firsts: Integers
    ends: Integers

    @property
    def words(self) -> Pairs:
        """The first word of each group, and the one after its last."""
        return self.firsts // WORD_BITS, (self.ends - 1) // WORD_BITS + 1

    def divided(self, sizes: Integers) -> Iterator[_Meetings]:
        """The same in parts of limited size."""
        sums = np.cumsum(sizes)
        top = 0
        while top < len(sums):
            limit = _MAX_WORDS + (int(sums[top - 1]) if top else 0)
            bottom = max(top + 1, int(np.searchsorted(sums, limit, "right")))
            part = slice(top, bottom)
            yield _Meetings(self.rows[part], self.firsts[part], self.ends[part])
            top = bottom


def _combine(columns: Sequence[CodedColumn], part: slice) -> Integers:
    """One code for each row's codes in all `columns`, -1 for rows that lack one."""
    combined, size = columns[0].codes[part], len(columns[0].values)
    for column in columns[1:]:
        codes, count = column.codes[part], len(column.values)
        if size * count > _MAX_CODE:
            distinct, combined = np.unique(combined, return_inverse=True)
            combined, size = np.where(distinct[combined] < 0, -1, combined), len(distinct)
        combined = np.where((combined >= 0) & (codes >= 0), combined * count + codes, -1)
        size *= count
    return combined


def _concatenated(firsts: Integers, ends: Integers) -> Pairs:
    """Ranges of numbers one after another, each number with the index of its range."""
    counts = ends - firsts
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) + (firsts - np.cumsum(counts) + counts)[which]


def _intersect(
    bitmaps: Sequence[Words], cells: Sequence[Integers], rows: Integers, words: Integers
) -> Words:
    """The AND of the given words of each row's bitmaps."""
    masks = np.full(len(rows), _ALL)
    for bitmap, cell in zip(bitmaps, cells, strict=True):
        masks &= bitmap.reshape(-1)[cell[rows] * bitmap.shape[1] + words]
    return masks


def _set_bits(
    masks: Words, which: Integers, words: Integers, firsts: Integers, ends: Integers
) -> Pairs:
    """The numbers of all bits set, those from `firsts` up to `ends` of each mask's meeting."""
    read = np.flatnonzero(masks)
    masks, which, words = masks[read], which[read], words[read] * WORD_BITS
    below = np.maximum(firsts[which] - words, 0).astype(np.uint64)
    above = np.maximum(words + WORD_BITS - ends[which], 0).astype(np.uint64)
    masks = masks & (_ALL << below) & (_ALL >> above)
    bits = np.flatnonzero(np.unpackbits(masks.view(np.uint8), bitorder="little"))
    places = bits >> 6
    return which[places], words[places] + (bits & (WORD_BITS - 1))
