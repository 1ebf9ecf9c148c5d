"""Runs in Spark's Python workers: matches batches of events with predicates kept in memory.

A worker runs many tasks. Unpacked predicates, and the index built for those that are not plain,
stay in this module between tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from accord.pipeline.bulk.folder import PredicateFolder
from accord.pipeline.bulk.matcher import Matcher
from accord.pipeline.bulk.sheets import Pairs
from accord.pipeline.bulk.storing import unpack

PREDICATE: Final = "predicate"
PREDICATES: Final = "predicates"
_ROWS: Final = 1 << 18  # matched at a time, if they are small
_BYTES: Final = 64 << 20
_OUT_ROWS: Final = 1 << 16
_OUT_BYTES: Final = 16 << 20
_LISTED: Final = 1 << 21  # approximate number of matches gathered for lists
_FIRST_LISTED: Final = 1 << 14
_KEPT: Final = 2  # sets of predicates

_kept: dict[tuple[str, str], Matcher] = {}


class Origin(Protocol):
    """A source of predicates, which may be updated."""

    def matcher(self) -> Matcher: ...


@dataclass(frozen=True)
class Carried:
    """Predicates embedded in the task, the same for a whole query."""

    version: str
    data: bytes

    def matcher(self) -> Matcher:
        return _keep(("", self.version), lambda: Matcher(unpack(self.data)))


@dataclass(frozen=True)
class Looked:
    """The latest version in a directory at each call."""

    path: str

    def matcher(self) -> Matcher:
        folder = PredicateFolder(self.path)
        number = folder.latest()
        try:
            return _keep((self.path, str(number)), lambda: Matcher(folder.read(number)))
        except FileNotFoundError:  # removed after several newer versions were published
            number = folder.latest()
            return _keep((self.path, str(number)), lambda: Matcher(folder.read(number)))


def _keep(name: tuple[str, str], make: Callable[[], Matcher]) -> Matcher:
    matcher = _kept.pop(name, None)
    if matcher is None:
        while len(_kept) >= _KEPT:
            del _kept[next(iter(_kept))]
        matcher = make()
    _kept[name] = matcher  # most recently used
    return matcher


@dataclass(frozen=True)
class Work:
    """The task: which columns are attributes, which to forward, and matches as lists or rows."""

    origin: Origin
    declared: tuple[str, ...]
    handed_on: tuple[str, ...]
    is_list: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in _gather(batches):
            matcher = self.origin.matcher()
            yield from self._listed(batch, matcher) if self.is_list else self._rows(batch, matcher)

    def _rows(self, batch: pa.RecordBatch, matcher: Matcher) -> Iterator[pa.RecordBatch]:
        """One row per match."""
        events = batch.select(self.handed_on)
        keys = matcher.predicates.keys
        most = _rows_within(_OUT_BYTES, events)
        for rows, positions in _regroup(matcher.find(batch, self.declared), most):
            found = events.take(pa.array(rows))
            yield found.append_column(PREDICATE, keys.take(pa.array(positions)))

    def _listed(self, batch: pa.RecordBatch, matcher: Matcher) -> Iterator[pa.RecordBatch]:
        """One row per event, with all its matches, the most important first."""
        keys = matcher.predicates.keys
        top, count = 0, _FIRST_LISTED
        while top < len(batch):
            part = batch.slice(top, count)
            rows, positions = _joined([*matcher.find(part, self.declared)])
            order = np.lexsort((positions, rows))
            ends = np.searchsorted(rows[order], np.arange(len(part) + 1))
            lists = pa.ListArray.from_arrays(
                pa.array(ends, pa.int32()), keys.take(pa.array(positions[order]))
            )
            yield part.select(self.handed_on).append_column(PREDICATES, lists)
            top += count
            # Limits the number of matches in memory.
            count = max(1, int(_LISTED * len(part) / max(len(rows), len(part))))


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine Spark's small batches: the cost per event falls with the batch size."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        size += batch.nbytes
        if rows >= _ROWS or size >= _BYTES:
            yield from _combined(waiting)
            waiting, rows, size = [], 0, 0
    yield from _combined(waiting)


def _combined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if batches:
        table = pa.Table.from_batches(batches).combine_chunks()
        yield from (batch for batch in table.to_batches() if len(batch))


def _rows_within(size: int, batch: pa.RecordBatch) -> int:
    return int(max(1, min(_OUT_ROWS, size * len(batch) // max(1, batch.nbytes))))


def _regroup(pieces: Iterable[Pairs], most: int) -> Iterator[Pairs]:
    """The same pairs, in batches of about `most`."""
    waiting: list[Pairs] = []
    count = 0
    for piece in pieces:
        waiting.append(piece)
        count += len(piece[0])
        if count >= most:
            rows, positions = _joined(waiting)
            for top in range(0, count, most):
                yield rows[top : top + most], positions[top : top + most]
            waiting, count = [], 0
    if count:
        yield _joined(waiting)


def _joined(pieces: list[Pairs]) -> Pairs:
    if not pieces:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows, positions = zip(*pieces, strict=True)
    return np.concatenate(rows), np.concatenate(positions)
