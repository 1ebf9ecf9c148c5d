"""Outboxes of transit events: one for each neighbour, and one for a multicast group on a LAN.

Events leave by importance, then by due time. The time an event may spend at a hop is the hop's
share of its route's delay margin; this gives its due time here. An event past its due time is still
sent: only its own deadline makes it expire.

The multicast outbox sends an event to several neighbours in one datagram. Copies of an event for
several neighbours differ only in their routes and in the template's note. So the event is queued
once, with a `RecipientPart` per neighbour, by importance and due time as for a single neighbour. An
event that turns out to have one recipient only, and recipients that the group no longer reaches,
are served through their own outboxes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.overlay.budgets import Budgets
from accord.core.overlay.options import MULTICAST, TCP, TransportSelector
from accord.core.overlay.signalling import TransitEvent
from accord.core.scheduling.outbox import Outbox
from accord.core.scheduling.queue_entries import QueueEntry
from accord.core.scheduling.strategies import STRICT, Discipline

EXPIRED: Final = "deadline passed"
QUEUE_FULL: Final = "queue full"
LINK_DOWN: Final = "link down"
_SHARE: Final = 1 / 16
_HALF_US: Final = 1_000_000  # half-life of the queueing delay estimate
_OVERHEAD: Final = 100  # typical bytes besides the payload
OVERHEAD_BYTES: Final = 400  # upper bound, with long names and many routes


# Identifies a template's event: template, channel, source, sequence number.
Passed = tuple[str, str, str, int]


def _event_key(carried: TransitEvent) -> Passed:
    return carried.template, carried.channel, carried.source, carried.number


class QueuedTransitEvent(QueueEntry):
    """A transit event that waits for a link."""

    __slots__ = ("arrived_us", "carried")

    def __init__(self, carried: TransitEvent, due_us: int, now_us: int) -> None:
        super().__init__(
            len(carried.payload) + len(carried.block) + _OVERHEAD,
            1,
            carried.importance,
            now_us // 1000,
            due_us // 1000 if due_us else 0,
            carried.number,
        )
        self.carried = carried
        self.arrived_us = now_us


class NeighbourOutbox:
    """Events queued for one neighbour; `dropped` lists those not sent, with the cause."""

    def __init__(self, bytes_limit: int) -> None:
        self.outbox = new_outbox(bytes_limit)
        self.droppable = new_outbox(bytes_limit)  # events that may be sent as datagrams
        self.dropped: list[tuple[TransitEvent, str]] = []
        self.sent = 0
        self.waited_us = 0  # total queueing delay of those sent
        self._delay_us = 0.0  # smoothed queueing delay,
        self._updated_us = 0  # and when it was updated
        self._queued_keys: set[Passed] = set()  # queued events of templates

    def put(
        self, carried: TransitEvent, due_us: int, now_us: int, is_droppable: bool = False
    ) -> None:
        if carried.template:
            self._queued_keys.add(_event_key(carried))
        self._put(
            self.droppable if is_droppable else self.outbox,
            QueuedTransitEvent(carried, due_us, now_us),
        )

    def is_waiting(self, passed: Passed) -> bool:
        """Whether that event of a template is still queued."""
        return passed in self._queued_keys

    def take(self, bytes_wanted: int, now_us: int) -> list[TransitEvent]:
        """About `bytes_wanted` of events to send next, with their ages updated."""
        entries = self.outbox.take(bytes_wanted, 0)
        left = bytes_wanted - sum(entry.size for entry in entries)
        if left > 0 and not self.droppable.is_empty():
            entries += self.droppable.take(left, 0)
        return self._sent(entries, now_us)

    def take_droppable(
        self, bytes_wanted: int, message_bytes: int, now_us: int
    ) -> list[TransitEvent]:
        """Droppable events up to `message_bytes` each; larger ones move to the main outbox."""
        small: list[QueueEntry] = []
        while bytes_wanted > 0 and (entries := self.droppable.take(1, 0)):
            for entry in entries:
                assert isinstance(entry, QueuedTransitEvent)
                if entry.size + OVERHEAD_BYTES <= message_bytes:
                    small.append(entry)
                    bytes_wanted -= entry.size
                else:
                    self._put(self.outbox, entry)
        return self._sent(small, now_us)

    def _put(self, outbox: Outbox, entry: QueuedTransitEvent) -> None:
        shed = outbox.put(entry)
        if shed is not None:
            self._drop(shed, QUEUE_FULL)

    def _sent(self, entries: list[QueueEntry], now_us: int) -> list[TransitEvent]:
        taken: list[TransitEvent] = []
        for entry in entries:
            assert isinstance(entry, QueuedTransitEvent)
            waited_us = now_us - entry.arrived_us
            carried = entry.carried
            if carried.template:
                self._queued_keys.discard(_event_key(carried))
            age_us = carried.age_us + waited_us
            if 0 < carried.deadline_us <= age_us:
                aged = msgspec.structs.replace(carried, age_us=age_us)
                self.dropped.append((aged, EXPIRED))
                continue
            self.sent += 1
            self.waited_us += waited_us
            self._update_delay(waited_us, now_us)
            taken.append(msgspec.structs.replace(carried, age_us=age_us))
        return taken

    def queueing_delay_us(self, now_us: int) -> int:
        """Smoothed queueing delay; it decays, as a link that seems slow is no longer measured."""
        if not self._delay_us:
            return 0
        return int(self._delay_us * 0.5 ** (max(now_us - self._updated_us, 0) / _HALF_US))

    def reset_delay(self) -> None:
        """Reset the queueing delay: so far it was caused by the link being down."""
        self._delay_us = 0.0

    def _update_delay(self, waited_us: int, now_us: int) -> None:
        usual_us = self.queueing_delay_us(now_us)
        self._delay_us = usual_us + (waited_us - usual_us) * _SHARE
        self._updated_us = now_us

    def clear(self) -> None:
        """Drop all queued events: the link is down."""
        self._drop(self.outbox.drop_untracked(), LINK_DOWN)
        self._drop(self.droppable.drop_untracked(), LINK_DOWN)

    def is_empty(self) -> bool:
        return self.outbox.is_empty() and self.droppable.is_empty()

    def check_invariants(self) -> None:
        self.outbox.check_invariants()
        self.droppable.check_invariants()
        assert not self._queued_keys or not self.is_empty()

    def _drop(self, entries: list[QueueEntry], cause: str) -> None:
        for entry in entries:
            assert isinstance(entry, QueuedTransitEvent)
            self.dropped.append((entry.carried, cause))
            self._queued_keys.discard(_event_key(entry.carried))


def new_outbox(bytes_limit: int) -> Outbox:
    return Outbox(
        bytes_limit=bytes_limit,
        tracked_limit=0,
        tracked_bytes_limit=0,
        discipline=Discipline(STRICT, by_due=True),
    )


class NeighbourOutboxes:
    """Outboxes of all connected neighbours."""

    def __init__(self, name: str, budgets: Budgets, *, bytes_limit: int) -> None:
        self.name = name
        self.budgets = budgets
        self.bytes_limit = bytes_limit
        self.transport_selector = TransportSelector()
        # Queues a copy for the multicast group; returns False if that is not possible.
        self.put_multicast: Callable[[str, TransitEvent, int, int], bool] | None = None
        self.all: dict[str, NeighbourOutbox] = {}
        self.ready: list[str] = []  # neighbours whose outbox became non-empty

    def open(self, neighbour: str) -> None:
        self.all[neighbour] = NeighbourOutbox(self.bytes_limit)

    def close(self, neighbour: str) -> list[tuple[TransitEvent, str]]:
        """Remove an outbox; returns its unsent events with the cause."""
        transit = self.all.pop(neighbour)
        transit.clear()
        return transit.dropped

    def forward(self, event: TransitEvent, routes: dict[str, list[int]], now_us: int) -> None:
        """Queue one copy of `event` per neighbour, with the routes that continue there."""
        trail = (*event.trail, (self.name, event.age_us))
        way = self.transport_selector.select(event, len(routes))
        put_shared = self.put_multicast if way == MULTICAST else None
        for neighbour, numbers in routes.items():
            transit = self.all.get(neighbour)
            if transit is not None:
                if transit.is_empty():
                    self.ready.append(neighbour)
                copy = msgspec.structs.replace(event, routes=tuple(numbers), trail=trail)
                due_us = self._due_us(event.source, numbers, now_us)
                if put_shared is None or not put_shared(neighbour, copy, due_us, now_us):
                    transit.put(copy, due_us, now_us, way != TCP)

    def budget_us(self, event: TransitEvent) -> int | None:
        """This hop's share of the delay margin of the event's routes: of the tightest."""
        found = [self.budgets.get((event.source, number)) for number in event.routes]
        return min((each.share_us for each in found if each is not None), default=None)

    def _due_us(self, source: str, numbers: list[int], now_us: int) -> int:
        """Due time by the smallest budget of the routes; 0 if none has one."""
        found = [self.budgets.get((source, number)) for number in numbers]
        tightest = min((each.budget_us for each in found if each is not None), default=None)
        return 0 if tightest is None else max(1, now_us + tightest)


MAX_SHARES: Final = 64
_SHARE_BYTES: Final = 24  # of a `RecipientPart`, besides name, routes and note
_ROUTE_BYTES: Final = 9


class RecipientPart(msgspec.Struct, frozen=True, array_like=True):
    """The part of a multicast event that is specific to one neighbour."""

    neighbour: str
    routes: tuple[int, ...]
    note: bytes


class MulticastEvent(msgspec.Struct, frozen=True, array_like=True, tag="shared"):
    """An event without routes and note, plus those of each neighbour."""

    event: TransitEvent
    parts: tuple[RecipientPart, ...]


def copy_for(shared: MulticastEvent, neighbour: str) -> TransitEvent | None:
    """The event as addressed to `neighbour`; None if it is not a recipient."""
    for share in shared.parts:
        if share.neighbour == neighbour:
            return msgspec.structs.replace(shared.event, routes=share.routes, header=share.note)
    return None


class _Shares:
    """Recipients of a queued event, and the size of its datagram."""

    __slots__ = ("by_neighbour", "due_us", "wire_bytes")

    def __init__(self, waiting: QueuedTransitEvent, due_us: int) -> None:
        carried = waiting.carried
        names = [carried.channel, carried.publisher, *(node for node, _ in carried.trail)]
        self.by_neighbour: dict[str, RecipientPart] = {}
        self.due_us = due_us
        self.wire_bytes = waiting.size + OVERHEAD_BYTES + sum(len(name.encode()) for name in names)


# Queues a copy in a neighbour's own outbox: neighbour, event, due time, time of arrival.
GiveOne = Callable[[str, TransitEvent, int, int], None]


class MulticastOutbox:
    """Events queued for the group; `dropped` lists those not sent, with the cause."""

    def __init__(self, bytes_limit: int) -> None:
        self.dropped: list[tuple[TransitEvent, str]] = []
        self.sent = 0  # events
        self.served = 0  # recipients of these events, in all
        self._outbox = new_outbox(bytes_limit)
        self._reached: dict[str, None] = {}  # neighbours that receive the group
        self._message_bytes = 0
        self._recipients: dict[QueuedTransitEvent, _Shares] = {}  # of all queued events
        self._last: QueuedTransitEvent | None = None  # if still queued

    def set_reached(self, neighbours: list[str], message_bytes: int) -> None:
        """Set the neighbours that receive the group, and the largest datagram."""
        self._reached = dict.fromkeys(neighbours)
        self._message_bytes = message_bytes

    def is_empty(self) -> bool:
        return self._outbox.is_empty()

    def put(self, neighbour: str, carried: TransitEvent, due_us: int, now_us: int) -> bool:
        """Queue a copy; False if it cannot be multicast."""
        if neighbour not in self._reached:
            return False
        share = RecipientPart(neighbour, carried.routes, carried.header)
        size = _SHARE_BYTES + len(neighbour) + len(share.note) + _ROUTE_BYTES * len(share.routes)
        waiting = self._last
        if waiting is None or not _is_same(waiting.carried, carried):
            waiting = QueuedTransitEvent(
                msgspec.structs.replace(carried, routes=(), header=b""), due_us, now_us
            )
            shares = _Shares(waiting, due_us)
            if shares.wire_bytes + size > self._message_bytes:
                return False
            self._queue(waiting, shares)
        else:
            shares = self._recipients[waiting]
            if (
                shares.wire_bytes + size > self._message_bytes
                or len(shares.by_neighbour) >= MAX_SHARES
                or neighbour in shares.by_neighbour
            ):
                return False
        shares.by_neighbour[neighbour] = share
        shares.wire_bytes += size
        return True

    def take(self, bytes_wanted: int, now_us: int, queue_single: GiveOne) -> list[MulticastEvent]:
        """About `bytes_wanted` of events to send next, with their ages updated."""
        self._last = None
        taken: list[MulticastEvent] = []
        while not taken and (entries := self._outbox.take(bytes_wanted, 0)):
            for entry in entries:
                assert isinstance(entry, QueuedTransitEvent)
                found = self._make_event(entry, now_us, queue_single)
                if found is not None:
                    taken.append(found)
        return taken

    def check_invariants(self) -> None:
        self._outbox.check_invariants()
        assert self._outbox.is_empty() == (not self._recipients)
        for shares in self._recipients.values():
            assert 0 < len(shares.by_neighbour) <= MAX_SHARES
        assert self._last is None or self._last in self._recipients
        assert self.served >= 2 * self.sent

    def _queue(self, waiting: QueuedTransitEvent, shares: _Shares) -> None:
        self._last = waiting
        self._recipients[waiting] = shares
        for entry in self._outbox.put(waiting) or ():
            assert isinstance(entry, QueuedTransitEvent)
            del self._recipients[entry]
            self.dropped.append((entry.carried, QUEUE_FULL))
            if entry is waiting:
                self._last = None

    def _make_event(
        self, waiting: QueuedTransitEvent, now_us: int, queue_single: GiveOne
    ) -> MulticastEvent | None:
        carried = waiting.carried
        shares = self._recipients.pop(waiting)
        age_us = carried.age_us + now_us - waiting.arrived_us
        if 0 < carried.deadline_us <= age_us:
            aged = msgspec.structs.replace(carried, age_us=age_us)
            self.dropped.append((aged, EXPIRED))
            return None
        reached = [
            share for share in shares.by_neighbour.values() if share.neighbour in self._reached
        ]
        if len(reached) < 2:
            reached = []  # a single recipient does not need the group
        for neighbour, share in shares.by_neighbour.items():
            if share not in reached:
                copy = msgspec.structs.replace(carried, routes=share.routes, header=share.note)
                queue_single(neighbour, copy, shares.due_us, waiting.arrived_us)
        if not reached:
            return None
        self.sent += 1
        self.served += len(reached)
        return MulticastEvent(msgspec.structs.replace(carried, age_us=age_us), tuple(reached))


def _is_same(one: TransitEvent, other: TransitEvent) -> bool:
    """Whether they are copies of one event that differ in their `RecipientPart` only."""
    return (
        one.number == other.number
        and one.source == other.source
        and one.incarnation == other.incarnation
        and one.template == other.template
        and one.channel == other.channel
        and one.follows_setup == other.follows_setup
        and one.sequences == other.sequences
        and one.age_us == other.age_us
    )
