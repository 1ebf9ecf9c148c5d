"""Matches a compiled set against a batch of events."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from accord.core.model.document import Document
from accord.core.predicates.index import Index
from accord.core.predicates.predicate import Predicate
from accord.pipeline.bulk.clause_tables import Pairs
from accord.pipeline.bulk.events import Events
from accord.pipeline.bulk.predicate_compiler import PredicateSet

_MAX_ROWS: Final = 1 << 17  # matched at a time
_MAX_PAIRS: Final = 1 << 21  # in memory, unless a single event has more


class Matcher:
    """A worker's state for one set, kept between batches."""

    def __init__(self, predicates: PredicateSet) -> None:
        self.predicates = predicates

    def find(
        self, batch: pa.RecordBatch, declared: Collection[str]
    ) -> Iterator[tuple[slice, Pairs]]:
        """Return pairs of event and matching predicate, each once, for one part after another.

        A part has as many events as limit its number of pairs. Pairs are unordered.
        """
        events = Events(batch, declared)
        top, count = 0, _MAX_ROWS
        while top < len(events):
            part = slice(top, min(top + count, len(events)))
            rows = part.stop - top
            pairs = self._find(events, part)
            if pairs is None:
                count = max(1, rows // 8)
                continue
            yield part, pairs
            top += rows
            count = min(_MAX_ROWS, max(1, _MAX_PAIRS * rows // (2 * max(1, len(pairs[0])))))

    def _find(self, events: Events, part: slice) -> Pairs | None:
        """The pairs of one part; None if they are too many."""
        pieces: list[Pairs] = []
        count = 0
        for piece in self._pieces(events, part):
            pieces.append(piece)
            count += len(piece[0])
            if count > _MAX_PAIRS and part.stop - part.start > 1:
                return None
        if not pieces:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        rows, positions = map(np.concatenate, zip(*pieces, strict=True))
        several = self.predicates.has_alternatives[positions]
        if not several.any():
            return rows, positions
        # An event may match several clauses of one predicate.
        size = len(self.predicates)
        found = np.sort(rows[several] * size + positions[several])
        distinct = found[np.flatnonzero(np.diff(found, prepend=-1))]
        return (
            np.concatenate((rows[~several], distinct // size)),
            np.concatenate((positions[~several], distinct % size)),
        )

    def _pieces(self, events: Events, part: slice) -> Iterator[Pairs]:
        for table in self.predicates.tables:
            yield from table.find(events, part)
        if self.predicates.indexed:
            yield self._find_in_index(events, part)

    @cached_property
    def _index(self) -> Index:
        index = Index()
        for each in self.predicates.indexed:
            # The tree is already canonical; canonicalising it would take longer than adding it.
            predicate = Predicate.__new__(Predicate)
            predicate.tree = each.tree
            index.add(each.position, predicate, channel=each.channel, importance=each.importance)
        return index

    def _find_in_index(self, events: Events, part: slice) -> Pairs:
        index = self._index
        channels = events.channels.values_at(np.arange(part.start, part.stop))
        values = events.values(self.predicates.indexed_names, part)
        documents: list[Document | None] = [None] * len(values)
        if self.predicates.has_paths:
            documents = events.documents(part)
        positions: list[int] = []
        counts: list[int] = []
        for channel, value, document in zip(channels, values, documents, strict=True):
            found = [] if channel is None else index.match_values(channel, value, document).keys
            positions += found  # type: ignore[arg-type]
            counts.append(len(found))
        rows = np.arange(part.start, part.stop)
        return np.repeat(rows, counts), np.array(positions, np.int64)
