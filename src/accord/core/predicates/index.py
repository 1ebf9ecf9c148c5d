"""Live matching: which of many predicates match this event?

Predicates are grouped by the channel filter they are registered for and, within it, by importance.
An event visits the groups whose filter selects its channel, the most important first, so that a
limit on work cuts off the unimportant ones; the answer says where.

Not safe for use from several threads at once.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from accord.core.model.channels import ChannelMap, problem_with_filter
from accord.core.model.document import Document
from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.predicates.clause import Clause, NameBits, View
from accord.core.predicates.partition import Partition, remove
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.terms import to_terms

_REMEMBERED_CHANNELS: Final = 10_000
_REMEMBERED_LENGTH: Final = 256


@dataclass(frozen=True, slots=True)
class Matches:
    """What matched, most important first.

    `work` is what it took, in steps: partitions, blocks and single clauses looked at. Where a limit
    cut the answer short, `cut_at` is the importance of the first group that was not answered in
    full: whatever is more important is complete, and of what is as or less important some may be
    missing.
    """

    keys: list[Hashable]
    work: int
    cut_at: int | None = None


@dataclass(slots=True)
class _Entry:
    group: _Group
    clauses: list[Clause]
    has_paths: bool


@dataclass(slots=True)
class _Group:
    """The predicates of one channel filter and importance."""

    channel: str
    importance: int
    partition: Partition
    size: int = 0


class Index:
    """Predicates under keys of the caller's choice, to be matched against events."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}
        self._groups: ChannelMap[dict[int, _Group]] = ChannelMap()
        self._selected: dict[str, list[_Group]] = {}
        self._name_bits = NameBits()
        self._with_paths = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def add(
        self, key: Hashable, predicate: Predicate, *, channel: str = "#", importance: int = 0
    ) -> None:
        """Register `predicate` under a new `key`, for the channels that `channel` selects."""
        if key in self._entries:
            raise ValueError(f"key {key!r} is registered already")
        if problem := problem_with_filter(channel):
            raise ValueError(problem)
        terms = to_terms(predicate.tree)
        clauses = [Clause(key, term, self._name_bits, is_only=len(terms) == 1) for term in terms]
        group = self._group(channel, importance)
        for clause in clauses:
            group.partition.add(clause)
        entry = _Entry(group, clauses, any(term.paths for term in terms))
        self._entries[key] = entry
        group.size += 1
        self._with_paths += entry.has_paths

    def remove(self, key: Hashable) -> None:
        """Take `key` out again; KeyError where it is not registered."""
        entry = self._entries.pop(key)
        self._with_paths -= entry.has_paths
        for clause in entry.clauses:
            remove(clause)
        entry.group.size -= 1
        if not entry.group.size:
            self._drop(entry.group)

    def match(self, event: Event, *, limit: int | None = None) -> Matches:
        """The keys of all predicates that match `event`, within `limit` units of work."""
        return self.match_values(event.channel, event.values, event.metadata, limit=limit)

    def match_values(
        self,
        channel: str,
        values: Mapping[str, Value],
        document: Document | None = None,
        *,
        limit: int | None = None,
    ) -> Matches:
        """As `match`, for whoever has the parts of an event and not the event."""
        view = View(
            values,
            document,
            self._name_bits,
            has_paths=self._with_paths > 0,
            limit=math.inf if limit is None else limit,
        )
        for group in self._select(channel):
            group.partition.collect(view)
            if view.work > view.limit:
                return Matches(view.found, view.work, group.importance)
        return Matches(view.found, view.work)

    def match_all(self, events: Iterable[Event], *, limit: int | None = None) -> list[Matches]:
        """One answer per event; `limit` is for each of them."""
        return [self.match(event, limit=limit) for event in events]

    def _select(self, channel: str) -> list[_Group]:
        selected = self._selected.get(channel)
        if selected is None:
            groups = [group for found in self._groups.select(channel) for group in found.values()]
            selected = sorted(groups, key=lambda group: -group.importance)
            if len(self._selected) >= _REMEMBERED_CHANNELS:
                self._selected.clear()
            if len(channel) <= _REMEMBERED_LENGTH:
                self._selected[channel] = selected
        return selected

    def _group(self, channel: str, importance: int) -> _Group:
        groups = self._groups.get(channel)
        if groups is None:
            groups = {}
            self._groups.set(channel, groups)
        group = groups.get(importance)
        if group is None:
            group = groups[importance] = _Group(channel, importance, Partition())
            self._selected.clear()
        return group

    def _drop(self, group: _Group) -> None:
        groups = self._groups.get(group.channel)
        assert groups is not None
        del groups[group.importance]
        if not groups:
            self._groups.remove(group.channel)
        self._selected.clear()
