"""Runs in Spark's Python workers: matches batches of events with predicates kept in memory.

A worker runs many tasks. Unpacked predicates, and the index built for those without clauses, stay
in this module between tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from accord.core.model.errors import AccordError
from accord.pipeline.bulk.clause_tables import Pairs
from accord.pipeline.bulk.matcher import Matcher
from accord.pipeline.bulk.packed_sets import unpack
from accord.pipeline.bulk.predicate_compiler import PredicateSet
from accord.pipeline.bulk.predicate_folder import PredicateFolder

PREDICATE: Final = "predicate"
PREDICATES: Final = "predicates"
_ROWS: Final = 1 << 18  # gathered, if they are small
_BYTES: Final = 64 << 20
_OUT_ROWS: Final = 1 << 16
_OUT_BYTES: Final = 16 << 20
_MAX_MATCHERS: Final = 2

_matchers: dict[tuple[str, str], Matcher] = {}


class BrokeringError(AccordError):
    """The rows of a DataFrame are not events, or a result column's name is taken."""


class PredicateSource(Protocol):
    """A source of predicates, which may be updated."""

    def matcher(self) -> Matcher: ...


@dataclass(frozen=True)
class EmbeddedPredicates:
    """Predicates embedded in the task, the same for a whole query."""

    version: str
    data: bytes

    def matcher(self) -> Matcher:
        return _keep(("", self.version), lambda: Matcher(unpack(self.data)))


@dataclass(frozen=True)
class FolderPredicates:
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
    matcher = _matchers.pop(name, None)
    if matcher is None:
        while len(_matchers) >= _MAX_MATCHERS:
            del _matchers[next(iter(_matchers))]
        matcher = make()
    _matchers[name] = matcher  # most recently used
    return matcher


def check_names(predicates: PredicateSet, refused: Mapping[str, str]) -> None:
    """Refuse predicates on columns that are no attributes; `refused` has the types of those."""
    for name in sorted(predicates.names.intersection(refused)):
        raise BrokeringError(
            f"{name}: a predicate refers to this column; expected strings, numbers, booleans, "
            f"dates or times, got {refused[name]}"
        )


@dataclass(frozen=True)
class MatchTask:
    """The task: which columns are attributes, which to forward, and matches as lists or rows."""

    source: PredicateSource
    declared: tuple[str, ...]
    refused: Mapping[str, str]
    forwarded: tuple[str, ...]
    is_list: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in _gather(batches):
            matcher = self.source.matcher()
            check_names(matcher.predicates, self.refused)
            events, keys = batch.select(self.forwarded), matcher.predicates.keys
            add = _add_lists if self.is_list else _add_keys
            for part, pairs in matcher.find(batch, self.declared):
                yield from add(events, keys, part, pairs)


def _add_keys(
    events: pa.RecordBatch, keys: pa.Array, _part: slice, pairs: Pairs
) -> Iterator[pa.RecordBatch]:
    """One row per match."""
    rows, positions = map(pa.array, pairs)
    most = int(max(1, min(_OUT_ROWS, _OUT_BYTES * len(events) // max(1, events.nbytes))))
    for top in range(0, len(rows), most):
        found = events.take(rows[top : top + most])
        yield found.append_column(PREDICATE, keys.take(positions[top : top + most]))


def _add_lists(
    events: pa.RecordBatch, keys: pa.Array, part: slice, pairs: Pairs
) -> Iterator[pa.RecordBatch]:
    """One row per event, with all its matches, the most important first."""
    rows, positions = pairs
    order = np.lexsort((positions, rows))
    ends = np.searchsorted(rows[order], np.arange(part.start, part.stop + 1))
    lists = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), keys.take(pa.array(positions[order]))
    )
    yield events.slice(part.start, len(lists)).append_column(PREDICATES, lists)


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
