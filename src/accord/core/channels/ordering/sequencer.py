"""The sequencer of a channel: gives each source that asks the next places in the order.

It only counts; who has which place it knows for those who miss one. One that takes over asks all
nodes what they have of earlier epochs, and gives nothing before all of them have answered: from
then on nobody takes a place of an earlier epoch, and all that were taken are known. Only nodes that
are lost (`contacts`) are not waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from accord.core.channels.ordering.stamps import (
    MOST_PLACES,
    Ask,
    Between,
    Collected,
    Epoch,
    Grant,
    Held,
    Holders,
    epoch_of,
)

_HELD: Final = 1_024  # grants that are remembered
_SHOWN: Final = 64  # further back nobody waits for anything
COLLECT_US: Final = 500_000


class Sequencer:
    """`epoch` counts only when nobody is waited for any more."""

    def __init__(self, name: str, incarnation: int, now_us: int) -> None:
        self.epoch: Epoch = (0, name, incarnation)
        self.waiting: dict[str, bool] = {}  # nodes that have not answered
        self.asked_us = 0
        self.used_us = now_us
        self._next = 1
        self._held: deque[Held] = deque(maxlen=_HELD)
        self._grants: dict[tuple[str, int], Grant] = {}
        self._collected: dict[Held, bool] = {}
        self._wishes: dict[str, Ask] = {}  # of sources that asked too early

    @property
    def is_ready(self) -> bool:
        return self.epoch[0] > 0 and not self.waiting

    def begin(self, latest: Epoch, nodes: list[str]) -> None:
        """Start an epoch after `latest`; all `nodes` must say what they have of earlier ones."""
        self.epoch = (max(latest[0], self.epoch[0]) + 1, *self.epoch[1:])
        self.waiting = dict.fromkeys(nodes, True)
        self.asked_us = 0
        for held in self._held:
            self._collected[held] = True
        self._held.clear()
        self._grants.clear()
        self._next = 1

    def collected(self, node: str, message: Collected) -> bool:
        """An answer; False where it shows that others are further on."""
        if message.epoch != self.epoch:
            return True
        if message.latest > self.epoch:
            return False
        for held in message.held:
            self._collected[held] = True
        while len(self._collected) > 2 * _HELD:
            del self._collected[min(self._collected, key=_place)]
        self.waiting.pop(node, None)
        return True

    def wait_for_all_but(self, is_lost: Callable[[str], bool]) -> None:
        self.waiting = {each: True for each in self.waiting if not is_lost(each)}

    def wish(self, source: str, ask: Ask) -> None:
        """To be granted when it is ready."""
        if len(self._wishes) < _HELD:
            self._wishes[source] = ask

    def take_wishes(self) -> list[tuple[str, Ask]]:
        """None before it is ready."""
        if not self.is_ready:
            return []
        wishes, self._wishes = self._wishes, {}
        return list(wishes.items())

    def grant(self, source: str, ask: Ask, now_us: int) -> Grant:
        assert self.is_ready
        self.used_us = now_us
        key = (source, ask.incarnation)
        known = self._grants.get(key)
        if known is not None and known.request >= ask.request:
            return known
        count = max(1, min(ask.count, MOST_PLACES))
        held = Held(self.epoch, self._next, self._next + count - 1, source, ask.incarnation)
        self._next += count
        self._held.append(held)
        while len(self._grants) >= _HELD:
            del self._grants[next(iter(self._grants))]
        grant = self._grants[key] = Grant(ask.request, held)
        return grant

    def holders(self, ask: Between) -> Holders:
        """Who has the places between two, as far as that is known."""
        high = (epoch_of(ask.high), ask.high[3])
        known = [*sorted(self._collected, key=_place), *self._held]
        below = [held for held in known if (held.epoch, held.first) < high]
        if ask.low is not None:
            low = (epoch_of(ask.low), ask.low[3])
            below = [held for held in below if (held.epoch, held.last) > low]
        return Holders(ask.low, ask.high, tuple(below[-_SHOWN:]))

    def check_invariants(self) -> None:
        assert len(self._held) <= _HELD
        assert len(self._wishes) <= _HELD
        last = 0
        for held in self._held:
            assert held.epoch == self.epoch
            assert last < held.first <= held.last < self._next
            last = held.last


def _place(held: Held) -> tuple[Epoch, int]:
    return (held.epoch, held.first)
