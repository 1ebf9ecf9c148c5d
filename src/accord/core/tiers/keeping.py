"""What a parent keeps for one child, until the child has it.

Events are kept in the order in which they came, each at a place of its own. While the child's flow
comes from another parent they are only *offered*: by their names, and what the child has already is
forgotten. When this parent becomes the active one it offers all once more, and when the child has
answered it numbers what is left from 1 on and sends it; what the child confirms is forgotten. When
another takes over, what is not confirmed is offered again. So a change of parents costs nothing but
time.

What one source publishes to one channel is kept in its order. If the child has a later one of
them, it was meant to go on without the earlier: they are passed over, never handed over too late.

There is room for so many bytes and events. Beyond that the oldest that was not sent is given up:
only its name is kept, because the child may have it from elsewhere. If it turns out that it has
not, it is lost.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from accord.core.model.channels import filter_selects
from accord.core.overlay.signals import Carried
from accord.core.overlay.transit import EXPIRED
from accord.core.tiers.flows import WINDOW
from accord.core.tiers.messages import MOST_OFFERED, Down, Had, Key, Offer, Ranges, key_of, life_of
from accord.core.tiers.options import TierOptions

NO_ROOM: Final = "no room for a secondary node"
_OVERHEAD: Final = 200
_OFFERED: Final = MOST_OFFERED
_REOFFER: Final = 5  # rounds until what is not answered is offered again
_NAMES: Final = 8  # kept of events that were given up, for each that may be kept whole


class Entry:
    """`event` is None once it was given up; `number` is 0 until it is sent.

    All of one `line` come in their order; None where no order is promised.
    """

    __slots__ = ("at_us", "channel", "event", "key", "line", "number", "size")

    def __init__(self, event: Carried, now_us: int, *, is_in_order: bool) -> None:
        self.event: Carried | None = event
        self.key: Key = key_of(event)
        self.channel = event.channel
        line = (event.origin or event.source, life_of(event), event.channel)
        self.line = line if is_in_order else None
        self.size = len(event.payload) + len(event.block) + _OVERHEAD
        self.at_us = now_us
        self.number = 0


class Keeping:
    """`lost` and `losses` tell what the child does not get, and why; `top` is the last sent."""

    def __init__(self, options: TierOptions, now_us: int) -> None:
        self.entries: dict[int, Entry] = {}  # by place
        self.bytes = 0
        self.top = 0
        self.turn = 0
        self.is_active = False
        self.passed = 0  # which the child was not to get any more
        self.lost: dict[str, int] = {}
        self.losses: list[tuple[Carried, str]] = []
        self._options = options
        self._place = now_us  # so that no place is given twice
        self._whole = 0  # entries with their events
        self._through = 0
        self._unsent: deque[int] = deque()
        self._sent: dict[int, int] = {}  # the place of each number
        self._again: dict[int, bool] = {}
        self._offered = 0  # up to this place
        self._open: dict[int, Offer] = {}  # by their last places, that must be answered first
        self._rounds = 0

    def __len__(self) -> int:
        return len(self.entries)

    def put(self, event: Carried, now_us: int, *, is_in_order: bool = True) -> None:
        options = self._options
        entry = Entry(event, now_us, is_in_order=is_in_order)
        self._place += 1
        self.entries[self._place] = entry
        self.bytes += entry.size
        self._whole += 1
        self._unsent.append(self._place)
        while self._whole > options.kept_events or self.bytes > options.kept_bytes:
            if not self._give_up():
                break
        if len(self._unsent) > 2 * len(self.entries) + _OFFERED:
            unsent = [place for place, each in self.entries.items() if not each.number]
            self._unsent = deque(unsent)

    def begin(self, turn: int, *, is_active: bool) -> None:
        """The child has chosen its parents anew."""
        self.turn = turn
        self.is_active = is_active
        self.top = self._through = 0
        self._sent.clear()
        self._again.clear()
        self._unsent = deque(self.entries)
        self._offered = 0
        for entry in self.entries.values():
            entry.number = 0
        self._open = {offer.events[-1][0]: offer for offer in self._all()} if is_active else {}

    # ------------------------------------------------------------------------------- as the active

    def heard(self, through: int, missing: Ranges) -> None:
        """The child has all up to `through`."""
        while self._through < min(through, self.top):
            self._through += 1
            self._again.pop(self._through, None)
            place = self._sent.pop(self._through)
            self._forget(place)
        for first, last in missing:
            for number in range(max(first, self._through + 1), min(last, self.top) + 1):
                self._again[number] = True

    def has_more(self) -> bool:
        if not self.is_active or self._open:
            return False
        is_open = self.top < self._through + WINDOW
        return bool(self._again) or (is_open and bool(self._unsent))

    def take(self, bytes_wanted: int, now_us: int) -> list[Down]:
        """What to send next."""
        taken: list[Down] = []
        size = 0
        while size < bytes_wanted and self.has_more():
            if self._again:
                number = next(iter(self._again))
                del self._again[number]
            else:
                place = self._unsent.popleft()
                if not self._number(place, now_us):
                    continue
                number = self.top
            entry = self.entries[self._sent[number]]
            assert entry.event is not None
            age_us = entry.event.age_us + now_us - entry.at_us
            aged = msgspec.structs.replace(entry.event, age_us=age_us)
            taken.append(Down(self.turn, number, aged))
            size += entry.size
        return taken

    # ------------------------------------------------------------------------------- as the standby

    def offers(self) -> list[Offer]:
        """What to say of what is kept: what is new, and if that is much, all from time to time."""
        if self.is_active:
            return list(self._open.values())
        self._rounds += 1
        if len(self.entries) <= _OFFERED or self._rounds % _REOFFER == 0:
            self._offered = 0
        after, self._offered = self._offered, self._place
        return self._all(after)

    def had(self, message: Had) -> None:
        """The child has some, and nothing before them is for it any more."""
        if message.turn != self.turn or (self.is_active and message.last not in self._open):
            return
        self._open.pop(message.last, None)
        places = message.places
        latest: dict[tuple[str, int, str] | None, int] = {}
        for place in places:
            entry = self.entries.get(place)
            if entry is not None:
                latest[entry.line] = max(place, latest.get(entry.line, 0))
                self._forget(place)
        latest.pop(None, None)
        if not latest:
            return
        for place, entry in list(self.entries.items()):
            if place < latest.get(entry.line, 0):
                self.passed += 1
                self._forget(place)

    # -------------------------------------------------------------------------------------- within

    def keep_only(self, filters: list[str]) -> None:
        """The child wants nothing else any more; what the active one has sent it gets all the same.

        Else it would get, from this parent as the next one, what it was not to get from the other.
        """
        if not self.is_active:
            wanted: dict[str, bool] = {}
            for place, entry in list(self.entries.items()):
                channel = entry.channel
                if channel not in wanted:
                    wanted[channel] = any(filter_selects(each, channel) for each in filters)
                if not wanted[channel]:
                    self._forget(place)

    def advance(self, now_us: int) -> None:
        """Forget what is too old for anybody."""
        for place, entry in list(self.entries.items()):
            if entry.number == 0 and _is_expired(entry, now_us):
                self._lose(place, EXPIRED)

    def check_invariants(self) -> None:
        options = self._options
        whole = [entry for entry in self.entries.values() if entry.event is not None]
        assert self._whole == len(whole)
        assert self.bytes == sum(entry.size for entry in whole)
        assert len(self.entries) <= options.kept_events * (_NAMES + 1)
        assert list(self.entries) == sorted(self.entries)
        for number, place in self._sent.items():
            assert self.entries[place].number == number
            assert self._through < number <= self.top
        assert len(self._sent) == self.top - self._through
        assert all(number in self._sent for number in self._again)
        assert self.is_active or not self._open
        assert not (self._open and self.top)

    def _all(self, after: int = 0) -> list[Offer]:
        """Names of what is kept beyond a place."""
        names = [(place, *entry.key) for place, entry in self.entries.items() if place > after]
        return [
            Offer(self.turn, tuple(names[first : first + _OFFERED]))
            for first in range(0, len(names), _OFFERED)
        ]

    def _number(self, place: int, now_us: int) -> bool:
        """Give an event the next number; False where there is nothing to send of it."""
        entry = self.entries.get(place)
        if entry is None:
            return False
        if entry.event is None:
            self._count(NO_ROOM)
            self._forget(place)
            return False
        if _is_expired(entry, now_us):
            self._lose(place, EXPIRED)
            return False
        self.top += 1
        entry.number = self.top
        self._sent[self.top] = place
        return True

    def _give_up(self) -> bool:
        """The oldest that was not sent; False where all were."""
        while self._unsent:
            place = self._unsent.popleft()
            entry = self.entries.get(place)
            if entry is None or entry.event is None:
                continue
            if self.is_active:
                self._lose(place, NO_ROOM)
                return True
            entry.event = None
            self.bytes -= entry.size
            self._whole -= 1
            if len(self.entries) > self._options.kept_events * _NAMES:
                self._count(NO_ROOM)
                self._forget(next(iter(self.entries)))
            return True
        return False

    def _lose(self, place: int, cause: str) -> None:
        entry = self.entries[place]
        if entry.event is not None:
            self.losses.append((entry.event, cause))
        self._count(cause)
        self._forget(place)

    def _count(self, cause: str) -> None:
        self.lost[cause] = self.lost.get(cause, 0) + 1

    def _forget(self, place: int) -> None:
        entry = self.entries.pop(place)
        if entry.event is not None:
            self.bytes -= entry.size
            self._whole -= 1


def _is_expired(entry: Entry, now_us: int) -> bool:
    event = entry.event
    return event is not None and 0 < event.deadline_us <= event.age_us + now_us - entry.at_us
