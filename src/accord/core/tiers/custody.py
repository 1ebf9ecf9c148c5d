"""Custody buffer of a parent for one child, and the duplicate filter of both.

The parent holds events until the child confirms them. They are held in order of arrival. While
another parent is active, only the inventory (event IDs) is sent, and what the child already has is
removed. On becoming active, the parent sends the full inventory once more; after the reply it
numbers the remaining events from 1, sends them, most important first (`priority_lanes`), and
removes what the child confirms. When another parent takes over, unconfirmed events return to the
inventory. Fail-over costs time, not events.

Events of one source on one channel stay in order. If the child has a later one, earlier ones are
skipped, never delivered late.

The buffer is bounded in bytes and events. For channels that must not lose events it accepts no more
at half the bound (`is_full`); the other half absorbs what could not be stopped in time. Other
channels use the rest and shed the least important first. An event evicted nevertheless leaves its
ID where the child may get it from the other parent, and is lost only if the child lacks it.

The duplicate filter (`SeenEvents`) remembers the IDs of recent events in two generations. Event IDs
are unique, so an event that arrives again by another path is recognised. When the younger
generation is full it replaces the older one. So at least one generation of IDs is remembered,
whatever their sources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.overlay.neighbour_outbox import EXPIRED
from accord.core.overlay.signalling import TransitEvent
from accord.core.tiers.messages import (
    MAX_OFFERED,
    DownstreamEvent,
    EventId,
    Inventory,
    InventoryReply,
    Ranges,
    TierOptions,
    child_incarnation_of,
    event_id_of,
)
from accord.core.tiers.priority_lanes import PriorityLanes
from accord.core.tiers.sliding_windows import WINDOW

NO_ROOM: Final = "child buffer full"
_OVERHEAD: Final = 200
_OFFERED: Final = MAX_OFFERED
_REOFFER: Final = 5  # rounds between full inventories, if they are large
_NAMES_PER_ROUND: Final = 64  # IDs that a slow link carries per round at least
_NAMES: Final = 8  # IDs of evicted events, per event that may be held


class CustodyEntry:
    """One event in custody; `event` is None after eviction for `cause`, `number` 0 until sent.

    Entries with the same `line` stay in order; None if the channel has no order. An entry that
    `is_promised` must not be lost.
    """

    __slots__ = (
        "at_us", "cause", "channel", "event", "is_promised", "key", "line", "number", "size",
    )  # fmt: skip

    def __init__(
        self, event: TransitEvent, now_us: int, *, is_in_order: bool, is_promised: bool
    ) -> None:
        self.event: TransitEvent | None = event
        self.cause = ""
        self.is_promised = is_promised
        self.key: EventId = event_id_of(event)
        self.channel = event.channel
        line = (event.child or event.source, child_incarnation_of(event), event.channel)
        self.line = line if is_in_order else None
        self.size = len(event.payload) + len(event.block) + _OVERHEAD
        self.at_us = now_us
        self.number = 0


class CustodyBuffer:
    """Custody buffer of one child; `top` is the last number sent.

    `lost` and `drops` record what the child does not get, and why. `moved_us` is when the child
    last confirmed something or the buffer was empty.
    """

    def __init__(self, options: TierOptions, now_us: int) -> None:
        self.entries: dict[int, CustodyEntry] = {}  # by place
        self.bytes = 0
        self.top = 0
        self.parent_epoch = 0
        self.is_active = False
        self.moved_us = now_us
        self.passed = 0  # skipped, as the child has later ones
        self.lost: dict[str, int] = {}
        self.drops: list[tuple[TransitEvent, str]] = []
        self._options = options
        self._place = now_us  # starts at the time, so that no place is reused
        self._whole = 0  # entries that still have their events
        self._promised = 0  # of those, entries that must not be lost
        self._promised_bytes = 0
        self._through = 0
        self._unsent = PriorityLanes()
        self._sent: dict[int, int] = {}  # place by number
        self._again: dict[int, bool] = {}
        self._offered = 0  # last place in an inventory
        self._open: dict[int, Inventory] = {}  # unanswered, by last place
        self._rounds = 0
        self._all_round = 0  # round of the last full inventory
        self._again_round = 0  # round in which a reply is due; 0 if none is

    def __len__(self) -> int:
        return len(self.entries)

    def is_full(self, events: int = 0, events_bytes: int = 0) -> bool:
        """Whether, after these, no more events that must not be lost should be accepted."""
        options = self._options
        events_bytes += events * _OVERHEAD
        return (
            2 * (self._promised + events) >= options.kept_events
            or 2 * (self._promised_bytes + events_bytes) >= options.kept_bytes
        )

    def behind_us(self, now_us: int) -> int:
        """Age in the buffer of the oldest event that the child lacks."""
        for entry in self.entries.values():
            return now_us - entry.at_us
        return 0

    def put(
        self,
        event: TransitEvent,
        now_us: int,
        *,
        is_in_order: bool = True,
        child_timeout_us: int = 0,
        is_elsewhere: bool = False,
    ) -> None:
        """Add an event, evicting others if necessary.

        `child_timeout_us` is how long a child that does not advance is waited for, or 0 if events
        may be lost. `is_elsewhere` means that the child may well get the event from its other
        parent.
        """
        was_full = self.is_full()
        is_late = was_full and now_us - self.moved_us >= child_timeout_us
        if not self._whole:
            self.moved_us = now_us
        is_promised = child_timeout_us > 0
        entry = CustodyEntry(event, now_us, is_in_order=is_in_order, is_promised=is_promised)
        self._place += 1
        self.entries[self._place] = entry
        self._count_in(entry, 1)
        self._wait(self._place, entry)
        while self._is_over() and (place := self._unsent.least()) is not None:
            self._give_up(place, is_elsewhere=is_elsewhere)
        # An event that arrives while there is room is kept, whatever its size.
        while is_promised and ((was_full and self._is_over()) or (is_late and self.is_full())):
            oldest = self._unsent.oldest(event.channel)
            if oldest is None:
                break
            self._give_up(oldest, is_elsewhere=is_elsewhere)

    def begin(self, parent_epoch: int, now_us: int, *, is_active: bool) -> None:
        """Start a new parent epoch."""
        self.parent_epoch = parent_epoch
        self.is_active = is_active
        self.moved_us = now_us
        self.top = self._through = 0
        self._sent.clear()
        self._again.clear()
        self._unsent = PriorityLanes()
        self._offered = 0
        for place, entry in self.entries.items():
            entry.number = 0
            if entry.event is not None:
                self._wait(place, entry)
        self._open = _by_last(self._all(0)) if is_active else {}
        self._again_round = 0

    # ------------------------------------------------------------------------------- active parent

    def on_ack(self, through: int, missing: Ranges, now_us: int) -> None:
        """Apply a cumulative acknowledgement and nacks."""
        while self._through < min(through, self.top):
            self.moved_us = now_us
            self._through += 1
            self._again.pop(self._through, None)
            place = self._sent.pop(self._through)
            self._forget(place)
        for first, last in missing:
            for number in range(max(first, self._through + 1), min(last, self.top) + 1):
                self._again[number] = True
        self._lose_names()

    def has_more(self) -> bool:
        if not self.is_active or self._open:
            return False
        is_open = self.top < self._through + WINDOW
        return bool(self._again) or (is_open and len(self._unsent) > 0)

    def take(self, bytes_wanted: int, now_us: int) -> list[DownstreamEvent]:
        """Events to send next, retransmissions first."""
        taken: list[DownstreamEvent] = []
        size = 0
        while size < bytes_wanted and self.has_more():
            if self._again:
                number = next(iter(self._again))
                del self._again[number]
            else:
                place = self._unsent.take()
                if _is_expired(self.entries[place], now_us):
                    self._lose(place, EXPIRED)
                    continue
                number = self.top = self.top + 1
                self.entries[place].number = number
                self._sent[number] = place
            entry = self.entries[self._sent[number]]
            assert entry.event is not None
            age_us = entry.event.age_us + now_us - entry.at_us
            aged = msgspec.structs.replace(entry.event, age_us=age_us)
            taken.append(DownstreamEvent(self.parent_epoch, number, aged))
            size += entry.size
        return taken

    # ------------------------------------------------------------------------------- standby parent

    def offers(self) -> list[Inventory]:
        """Inventories to send: new entries and, if there are many, all from time to time.

        No more are sent until a reply has arrived or is overdue: the link to the child may be slow.
        """
        self._rounds += 1
        if self._rounds < self._again_round:
            return []
        is_little = len(self.entries) <= _OFFERED
        if not self.is_active and (is_little or not self._open):
            if is_little or self._rounds >= self._all_round + _REOFFER:
                self._offered = 0
                self._all_round = self._rounds
            self._open = _by_last(self._all(self._offered))
            self._offered = self._place
            self._again_round = 0
        offers = list(self._open.values())
        if self._again_round:
            offers = offers[:1]
        self._wait_for_answers()
        return offers

    def on_inventory_reply(self, message: InventoryReply, now_us: int) -> None:
        """Remove what the child has, and what precedes it in the same line."""
        if message.parent_epoch != self.parent_epoch or (
            self.is_active and message.last not in self._open
        ):
            return
        if self._open.pop(message.last, None) is not None:
            self._wait_for_answers()
        latest: dict[tuple[str, int, str] | None, int] = {}
        for place in message.places:
            entry = self.entries.get(place)
            if entry is not None:
                self.moved_us = now_us
                latest[entry.line] = max(place, latest.get(entry.line, 0))
                self._forget(place)
        latest.pop(None, None)
        if latest:
            for place, entry in list(self.entries.items()):
                if place < latest.get(entry.line, 0):
                    self.passed += 1
                    self._forget(place)
        self._lose_names()

    # --------------------------------------------------------------------------------- maintenance

    def keep_only(self, wants: Callable[[str], bool]) -> None:
        """Drop events of channels that the child no longer wants, unless this parent is active.

        A standby would otherwise send, after a fail-over, what the active parent did not have to
        send.
        """
        if not self.is_active:
            wanted: dict[str, bool] = {}
            for place, entry in list(self.entries.items()):
                channel = entry.channel
                if channel not in wanted:
                    wanted[channel] = wants(channel)
                if not wanted[channel]:
                    self._forget(place)

    def advance(self, now_us: int) -> None:
        """Expire events that are past their deadline."""
        for place, entry in list(self.entries.items()):
            if entry.number == 0 and _is_expired(entry, now_us):
                if self.is_active:
                    self._lose(place, EXPIRED)
                else:
                    self._keep_name(place, EXPIRED)

    def check_invariants(self) -> None:
        options = self._options
        whole = [entry for entry in self.entries.values() if entry.event is not None]
        promised = [entry for entry in whole if entry.is_promised]
        largest = max((entry.size for entry in whole), default=0)
        assert self._whole == len(whole)
        assert self.bytes == sum(entry.size for entry in whole)
        assert self._promised == len(promised)
        assert self._promised_bytes == sum(entry.size for entry in promised)
        # Each kind of channel is within the limit, so both are within twice the limit.
        assert self._whole <= 2 * options.kept_events
        assert self.bytes <= 2 * options.kept_bytes + largest
        assert len(self.entries) <= self._whole + options.kept_events * _NAMES
        assert list(self.entries) == sorted(self.entries)
        for number, place in self._sent.items():
            assert self.entries[place].number == number
            assert self._through < number <= self.top
        assert len(self._sent) == self.top - self._through
        assert len(self._unsent) == self._whole - len(self._sent)
        self._unsent.check_invariants()
        assert all(number in self._sent for number in self._again)
        assert not (self.is_active and self._open and self.top)

    def _all(self, after: int) -> list[Inventory]:
        """Inventories of all entries after a place."""
        names = [(place, *entry.key) for place, entry in self.entries.items() if place > after]
        return [
            Inventory(self.parent_epoch, tuple(names[first : first + _OFFERED]))
            for first in range(0, len(names), _OFFERED)
        ]

    def _wait_for_answers(self) -> None:
        for offer in self._open.values():
            self._again_round = self._rounds + 1 + len(offer.events) // _NAMES_PER_ROUND
            return
        self._again_round = 0

    def _wait(self, place: int, entry: CustodyEntry) -> None:
        """Queue an entry for sending."""
        assert entry.event is not None
        self._unsent.put(
            place,
            entry.channel,
            entry.event.importance,
            is_in_order=entry.line is not None,
            is_droppable=not entry.is_promised,
        )

    def _is_over(self) -> bool:
        """Whether the buffer is over its bound; one event is always allowed."""
        options = self._options
        is_much = self._whole > options.kept_events or self.bytes > options.kept_bytes
        return is_much and self._whole > 1

    def _give_up(self, place: int, *, is_elsewhere: bool) -> None:
        if self.is_active and not is_elsewhere:
            self._lose(place, NO_ROOM)
        else:
            self._keep_name(place, NO_ROOM)

    def _keep_name(self, place: int, cause: str) -> None:
        """Evict an unsent event but keep its ID: the child may have it."""
        entry = self.entries[place]
        self._unsent.remove(place)
        self._count_in(entry, -1)
        entry.event, entry.cause = None, cause
        if len(self.entries) - self._whole > self._options.kept_events * _NAMES:
            self._lose_name(next(at for at, each in self.entries.items() if each.event is None))

    def _lose_names(self) -> None:
        """Count evicted events as lost that the child, after its replies, does not have."""
        if self.is_active and not self._open and len(self.entries) > self._whole:
            for place, entry in list(self.entries.items()):
                if entry.event is None:
                    self._lose_name(place)

    def _lose_name(self, place: int) -> None:
        self._count(self.entries.pop(place).cause)

    def _lose(self, place: int, cause: str) -> None:
        event = self.entries[place].event
        assert event is not None
        self.drops.append((event, cause))
        self._count(cause)
        self._forget(place)

    def _count(self, cause: str) -> None:
        self.lost[cause] = self.lost.get(cause, 0) + 1

    def _forget(self, place: int) -> None:
        entry = self.entries.pop(place)
        self._unsent.remove(place)
        if entry.event is not None:
            self._count_in(entry, -1)

    def _count_in(self, entry: CustodyEntry, sign: int) -> None:
        self._whole += sign
        self.bytes += sign * entry.size
        if entry.is_promised:
            self._promised += sign
            self._promised_bytes += sign * entry.size


def _by_last(offers: list[Inventory]) -> dict[int, Inventory]:
    return {offer.events[-1][0]: offer for offer in offers}


def _is_expired(entry: CustodyEntry, now_us: int) -> bool:
    event = entry.event
    return event is not None and 0 < event.deadline_us <= event.age_us + now_us - entry.at_us


GENERATION: Final = 32_768


class SeenEvents:
    """Set of recent event IDs of bounded size."""

    def __init__(self, generation: int = GENERATION) -> None:
        if generation < 1:
            raise ValueError(f"generation: expected at least 1, got {generation}")
        self._generation = generation
        self._younger: dict[EventId, bool] = {}
        self._older: dict[EventId, bool] = {}

    def is_new(self, key: EventId) -> bool:
        """Whether the ID was not seen before; it is added."""
        if key in self:
            return False
        self._younger[key] = True
        if len(self._younger) >= self._generation:
            self._older = self._younger
            self._younger = {}
        return True

    def __contains__(self, key: object) -> bool:
        return key in self._younger or key in self._older

    def __len__(self) -> int:
        return len(self._younger) + len(self._older)

    def check_invariants(self) -> None:
        assert len(self._younger) < self._generation
        assert len(self._older) in (0, self._generation)
