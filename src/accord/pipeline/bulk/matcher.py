"""Matches a compiled set against a batch of events."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from accord.core.model.document import Document
from accord.core.predicates.index import Index
from accord.core.predicates.predicate import Predicate
from accord.pipeline.bulk.compiling import PredicateSet
from accord.pipeline.bulk.events import Events
from accord.pipeline.bulk.sheets import Pairs


class Matcher:
    """A worker's state for one set, kept between batches."""

    def __init__(self, predicates: PredicateSet) -> None:
        self.predicates = predicates

    def find(self, batch: pa.RecordBatch, declared: Collection[str]) -> Iterator[Pairs]:
        """Return pairs of event and matching predicate, unordered, each once."""
        events = Events(batch, declared)
        for sheet in self.predicates.sheets:
            yield from sheet.find(events)
        if self.predicates.others:
            yield self._find_in_index(events)

    @cached_property
    def _index(self) -> Index:
        index = Index()
        for other in self.predicates.others:
            # The tree is already canonical; canonicalising it would take longer than adding it.
            predicate = Predicate.__new__(Predicate)
            predicate.tree = other.tree
            index.add(other.position, predicate, channel=other.channel, importance=other.importance)
        return index

    def _find_in_index(self, events: Events) -> Pairs:
        index, codes = self._index, events.channels
        rows = np.flatnonzero(codes.of_rows >= 0)
        values = events.values(self.predicates.names, rows)
        documents: list[Document | None] = [None] * len(rows)
        if self.predicates.has_paths:
            documents = events.documents(rows)
        channels = [codes.values[code] for code in codes.of_rows[rows].tolist()]
        positions: list[int] = []
        counts: list[int] = []
        for channel, value, document in zip(channels, values, documents, strict=True):
            found = index.match_values(channel, value, document).keys
            positions += found  # type: ignore[arg-type]
            counts.append(len(found))
        return np.repeat(rows, counts), np.array(positions, np.int64)
