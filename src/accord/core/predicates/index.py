"""Index for live matching: finds the predicates, of many, that match an event.

Predicates are grouped by the channel filter they are registered for and, within it, by importance.
An event visits the groups whose filter selects its channel, most important first, so that a limit
on work cuts off the unimportant ones; the result includes where.

An engine does the matching: `compiled` in C, or `interpreted` if the extension was not built.
Messages that are not decoded yet are matched one read at a time (`match_frames`), straight from
their bytes.

Not thread-safe.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from accord.core.model.channels import ChannelMap, problem_with_filter
from accord.core.model.document import Document
from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.predicates.interpreted import Interpreted
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.terms import to_terms

try:
    from accord.core.predicates.compiled import Compiled as _Engine
except ImportError:
    _Engine = Interpreted  # type: ignore[assignment,misc]

_REMEMBERED_CHANNELS: Final = 10_000
_REMEMBERED_LENGTH: Final = 256


@dataclass(frozen=True, slots=True)
class Matches:
    """Keys that matched, most important first.

    `work` counts steps: partitions, blocks and single clauses visited, and long texts compared. If
    a limit cut the result short, `cut_at` is the importance of the first incomplete group:
    everything more important is complete, and of what is as or less important some may be missing.
    """

    keys: list[Hashable]
    work: int
    cut_at: int | None = None


@dataclass(frozen=True, slots=True)
class FrameMatches:
    """Keys that matched in each of several messages.

    `answers` are the distinct sets of keys, most important first, and `which` is the index of each
    message's set. The first, UNDECIDED (of `frames`), is empty: it stands for the `undecided`
    messages, which need decoding or more work than the limit.
    """

    answers: list[tuple[Any, ...]]
    which: memoryview[int]
    work: int
    undecided: int


@dataclass(slots=True)
class _Group:
    """The predicates of one channel filter and importance."""

    channel: str
    importance: int
    root: Any
    size: int = 0


class Index:
    """Predicates under keys of the caller's choice, to be matched against events."""

    def __init__(self, engine: Any = None) -> None:
        """`engine` is for tests: another than the fastest available."""
        self._engine = _Engine() if engine is None else engine
        self._entries: dict[Hashable, tuple[_Group, Any]] = {}
        self._groups: ChannelMap[dict[int, _Group]] = ChannelMap()
        self._selected: dict[str, tuple[list[_Group], tuple[Any, ...]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def add(
        self, key: Hashable, predicate: Predicate, *, channel: str = "#", importance: int = 0
    ) -> None:
        """Registers `predicate` under a new `key`, for the channels that `channel` selects."""
        if key in self._entries:
            raise ValueError(f"key {key!r} is registered already")
        if problem := problem_with_filter(channel):
            raise ValueError(problem)
        terms = to_terms(predicate.tree)
        group = self._group(channel, importance)
        self._entries[key] = group, self._engine.add(group.root, key, terms)
        group.size += 1

    def remove(self, key: Hashable) -> None:
        """Removes `key`; KeyError if it is not registered."""
        group, handle = self._entries.pop(key)
        self._engine.remove(handle)
        group.size -= 1
        if not group.size:
            self._drop(group)

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
        """As `match`, from the parts of an event."""
        groups, roots = self._select(channel)
        keys, work, answered = self._engine.match(roots, values, document, limit)
        return Matches(keys, work, groups[answered].importance if answered < len(groups) else None)

    def match_frames(
        self, channel: str, data: bytes, spans: Any, *, limit: int | None = None
    ) -> FrameMatches:
        """As `match`, for messages whose MQTT 5 properties are in `data`.

        `spans` is a buffer of native 32-bit numbers: for each message, where its properties start
        (after their length) and end. The caller has validated them. `limit` is per message.
        """
        _, roots = self._select(channel)
        if not roots:
            count = memoryview(spans).nbytes // 8
            return FrameMatches([(), ()], memoryview(array("I", [1]) * count), 0, 0)
        answers, which, work, undecided = self._engine.match_frames(roots, data, spans, limit)
        return FrameMatches(answers, memoryview(which).cast("I"), work, undecided)

    def match_all(self, events: Iterable[Event], *, limit: int | None = None) -> list[Matches]:
        """One result per event; `limit` is per event."""
        return [self.match(event, limit=limit) for event in events]

    def _select(self, channel: str) -> tuple[list[_Group], tuple[Any, ...]]:
        selected = self._selected.get(channel)
        if selected is None:
            groups = [group for found in self._groups.select(channel) for group in found.values()]
            groups.sort(key=lambda group: -group.importance)
            selected = groups, tuple(group.root for group in groups)
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
            group = groups[importance] = _Group(channel, importance, self._engine.root())
            self._selected.clear()
        return group

    def _drop(self, group: _Group) -> None:
        groups = self._groups.get(group.channel)
        assert groups is not None
        self._engine.drop(group.root)
        del groups[group.importance]
        if not groups:
            self._groups.remove(group.channel)
        self._selected.clear()
