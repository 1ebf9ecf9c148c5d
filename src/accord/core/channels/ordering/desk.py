"""A source of an ordered channel: its events wait until they have their places.

Also what any node knows of the order: the latest epoch it has heard of, and the places it has.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from accord.core.channels.ordering.stamps import (
    MOST_HELD,
    MOST_PLACES,
    NO_EPOCH,
    Ask,
    Epoch,
    Grant,
    Held,
)
from accord.core.channels.streams.stream import NEVER
from accord.core.overlay.signals import Carried

_ASK_US: Final = 500_000
_ENOUGH: Final = 1_024
_MOST: Final = 8 * _ENOUGH
_TELL_US: Final = 500_000


class Desk:
    """Of one channel. `pending` are events without a place, with when they came."""

    def __init__(self, incarnation: int, now_us: int) -> None:
        self.latest: Epoch = NO_EPOCH
        self.pending: deque[tuple[Carried, int]] = deque()
        self.held: deque[Held] = deque(maxlen=MOST_HELD)
        self.used_us = now_us
        self.asks_us = NEVER  # when to ask again
        self._told_us = -_TELL_US  # when somebody was told of the latest epoch
        self._incarnation = incarnation
        self._request = 0
        self._count = 0  # that were asked for

    def has_room(self) -> bool:
        return len(self.pending) < _ENOUGH

    def put(self, event: Carried, now_us: int) -> bool:
        """False where too much waits already, from publishers that were not held back in time."""
        if len(self.pending) >= _MOST:
            return False
        self.used_us = now_us
        self.pending.append((event, now_us))
        if self.asks_us == NEVER:
            self.asks_us = now_us
        return True

    def ask(self, now_us: int) -> Ask:
        """What to ask the sequencer: the same until there is an answer."""
        assert self.pending
        if not self._count:
            self._request += 1
            self._count = min(len(self.pending), MOST_PLACES)
        self.asks_us = now_us + _ASK_US
        return Ask(self._incarnation, self._request, self._count, self.latest)

    def may_take(self, held: Held) -> bool:
        """Whether these places may be on their way here."""
        return self._count > 0 and held.epoch >= self.latest and held not in self.held

    def granted(self, grant: Grant, now_us: int) -> list[tuple[Carried, int]]:
        """The events that have their places now; none where the answer is not to be taken."""
        held = grant.held
        if grant.request != self._request or not self._count:
            return []
        if held.epoch < self.latest or held.last - held.first + 1 != self._count:
            self._request += 1  # of an epoch that is over: others would not wait for it
            self.asks_us = now_us
            return []
        self.latest = held.epoch
        self.held.append(held)
        events = [self.pending.popleft() for _ in range(self._count)]
        self._count = 0
        self.asks_us = now_us if self.pending else NEVER
        return events

    def heard_of(self, epoch: Epoch, now_us: int) -> None:
        if epoch > self.latest:
            self.latest = epoch
            if self.pending:
                self.asks_us = now_us  # another sequencer than the one that was asked

    def is_to_tell(self, now_us: int) -> bool:
        """Whether it is time to tell somebody of the latest epoch who does not know it."""
        if now_us - self._told_us < _TELL_US:
            return False
        self._told_us = now_us
        return True

    def check_invariants(self) -> None:
        assert len(self.pending) <= _MOST
        assert self._count <= len(self.pending)
        assert (self.asks_us == NEVER) == (not self.pending)
