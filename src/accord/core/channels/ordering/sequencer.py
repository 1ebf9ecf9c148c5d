"""The sequencer of a channel: gives each source that asks the next places in the order.

It only counts; who has which place it knows for those who miss one, however long ago it was given:
of the last grants exactly, of all earlier ones it knows from which place to which a source had
some. The source itself knows better. One that takes over asks all nodes what they have of earlier
epochs, and gives nothing before all of them have answered: from then on nobody takes a place of an
earlier epoch, and all that were taken and that somebody may still lack are known. Only nodes that
are lost (`contacts`) are left out, if all that answer say so too: who is merely cut off itself must
not go on without those that the others still take places from. Who was left out is told of the
epoch as soon as it can be reached, so that it does not take any more places of an earlier one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Final

from accord.core.channels.ordering.messages import (
    MAX_LOST,
    MAX_PLACES,
    MAX_SHOWN,
    Epoch,
    EpochPromise,
    HolderQuery,
    HolderReply,
    PositionGrant,
    PositionRange,
    PositionRequest,
    epoch_of,
    merged,
)

_HELD: Final = 1_024  # grants that are remembered one by one
_SOURCES: Final = 4_096  # the last that had places
COLLECT_US: Final = 500_000


class Sequencer:
    """`epoch` counts only when nobody is waited for any more."""

    def __init__(self, name: str, incarnation: int, now_us: int) -> None:
        self.epoch: Epoch = (0, name, incarnation)
        self.waiting: dict[str, bool] = {}  # nodes that have not answered
        self.left_out: dict[str, bool] = {}  # the value is whether it is time to tell them
        self._answered: dict[str, bool] = {}
        self.asked_us = 0
        self.used_us = now_us
        self._next = 1
        self._held: deque[PositionRange] = deque()
        self._older: dict[str, list[PositionRange]] = {}  # by source, one of an epoch
        self._grants: dict[tuple[str, int], PositionGrant] = {}
        self._wishes: dict[str, PositionRequest] = {}  # of sources that asked too early

    @property
    def is_ready(self) -> bool:
        return self.epoch[0] > 0 and not self.waiting

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self.waiting or self._wishes)

    def begin(self, latest: Epoch, nodes: list[str]) -> None:
        """Start an epoch after `latest`; all `nodes` must say what they have of earlier ones."""
        self.epoch = (max(latest[0], self.epoch[0]) + 1, *self.epoch[1:])
        self.waiting = dict.fromkeys(nodes, True)
        self.left_out = {}
        self._answered = {}
        self.asked_us = 0
        while self._held:
            self._blur()
        self._grants.clear()
        self._next = 1

    def collected(self, node: str, message: EpochPromise) -> bool:
        """An answer; False where it shows that others are further on."""
        if message.epoch != self.epoch:
            return True
        if message.latest > self.epoch:
            return False
        was_ready = self.is_ready
        if node in self.left_out:
            del self.left_out[node]
            self.waiting[node] = True
        if node not in self.waiting:
            return True
        self._remember(node, [held for held in message.held if held.source == node])
        if not was_ready:
            self.found(message.in_touch)
        if was_ready or {*self.lost} <= {*message.lost}:
            del self.waiting[node]
            self._answered[node] = True
        return True

    def leave_out(self, is_lost: Callable[[str], bool]) -> None:
        """Wait no more for those that are lost, as soon as all others have said so, too."""
        lost = [each for each in self.waiting if is_lost(each)]
        if lost:
            others = self._answered | self.waiting
            self.left_out |= dict.fromkeys(lost, False)
            self.waiting = {each: True for each in others if each not in self.left_out}
            self._answered = {}
        for each, is_found in self.left_out.items():
            self.left_out[each] = is_found and not is_lost(each)

    def found(self, nodes: Iterable[str]) -> None:
        """They can be reached: who was left out is waited for, or told when it is too late."""
        for each in [each for each in dict.fromkeys(nodes) if each in self.left_out]:
            if self.is_ready:
                self.left_out[each] = True
            else:
                del self.left_out[each]
                self.waiting[each] = True

    def join(self, nodes: Iterable[str]) -> None:
        """They were not known when the epoch began."""
        others = [each for each in nodes if each not in self._answered | self.waiting]
        self.left_out |= dict.fromkeys(others, False)
        self.found(others)

    @property
    def lost(self) -> tuple[str, ...]:
        """Who is left out if nobody objects."""
        return tuple(islice(self.left_out, MAX_LOST))

    @property
    def is_asking(self) -> bool:
        return bool(self.waiting) or any(self.left_out.values())

    def to_ask(self) -> list[str]:
        """Whose answer is wanted."""
        return [*self.waiting, *[each for each, is_found in self.left_out.items() if is_found]]

    def wish(self, source: str, ask: PositionRequest) -> None:
        """To be granted when it is ready."""
        if len(self._wishes) < _HELD:
            self._wishes[source] = ask

    def take_wishes(self) -> list[tuple[str, PositionRequest]]:
        """None before it is ready."""
        if not self.is_ready:
            return []
        wishes, self._wishes = self._wishes, {}
        return list(wishes.items())

    def grant(self, source: str, ask: PositionRequest, now_us: int) -> PositionGrant:
        assert self.is_ready
        self.used_us = now_us
        key = (source, ask.incarnation)
        known = self._grants.get(key)
        if known is not None and known.request >= ask.request:
            return known
        count = max(1, min(ask.count, MAX_PLACES))
        held = PositionRange(
            self.epoch, self._next, self._next + count - 1, source, ask.incarnation
        )
        self._next += count
        self._held.append(held)
        if len(self._held) > _HELD:
            self._blur()
        while len(self._grants) >= _HELD:
            del self._grants[next(iter(self._grants))]
        grant = self._grants[key] = PositionGrant(ask.request, held)
        return grant

    def holders(self, ask: HolderQuery) -> HolderReply:
        """Who has the places between two: of the next sources."""
        known = chain(*self._older.values(), self._held)
        found = [
            each for each in known if each.source > ask.after and each.is_between(ask.low, ask.high)
        ]
        sources = sorted({each.source: True for each in found})
        shown = dict.fromkeys(sources[:MAX_SHOWN], True)
        held = merged(each for each in found if each.source in shown)
        is_all = len(shown) == len(sources)
        is_of_earlier = ask.low is None or epoch_of(ask.low) < self.epoch
        left_out = self.lost if is_of_earlier else ()
        return HolderReply(ask.low, ask.high, ask.after, tuple(held), is_all, left_out)

    def check_invariants(self) -> None:
        assert not self.waiting.keys() & self.left_out.keys()
        assert not self._answered.keys() & (self.waiting.keys() | self.left_out.keys())
        assert len(self._held) <= _HELD
        assert len(self._older) <= _SOURCES
        for source, older in self._older.items():
            assert older
            assert older == merged(older)
            assert all(each.source == source and each.epoch <= self.epoch for each in older)
        assert len(self._wishes) <= _HELD
        last = 0
        for held in self._held:
            assert held.epoch == self.epoch
            assert last < held.first <= held.last < self._next
            last = held.last

    def _blur(self) -> None:
        """Of the earliest grant remember only that its source had some place up to there."""
        held = self._held.popleft()
        older = self._older.get(held.source, ())
        # What it had before it was started again will not come.
        current = [each for each in older if each.incarnation >= held.incarnation]
        self._remember(held.source, [*current, held])

    def _remember(self, source: str, places: list[PositionRange]) -> None:
        self._older.pop(source, None)
        if places:
            while len(self._older) >= _SOURCES:
                del self._older[next(iter(self._older))]
            self._older[source] = merged(places)
