"""Multicast outbox: events sent to several neighbours in one datagram, by IP multicast on a LAN.

Copies of an event for several neighbours differ only in their routes and in the template's note. So
the event is queued once, with a `RecipientPart` per neighbour, by importance and due time as for a
single neighbour. An event that turns out to have one recipient only, and recipients that the group
no longer reaches, are served through their own outboxes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.overlay.neighbour_outbox import (
    EXPIRED,
    OVERHEAD_BYTES,
    QUEUE_FULL,
    QueuedTransitEvent,
    new_outbox,
)
from accord.core.overlay.signalling import Carried

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

    event: Carried
    shares: tuple[RecipientPart, ...]


def share_of(shared: MulticastEvent, neighbour: str) -> Carried | None:
    """The event as addressed to `neighbour`; None if it is not a recipient."""
    for share in shared.shares:
        if share.neighbour == neighbour:
            return msgspec.structs.replace(shared.event, routes=share.routes, note=share.note)
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
GiveOne = Callable[[str, Carried, int, int], None]


class MulticastOutbox:
    """Events queued for the group; `dropped` lists those not sent, with the cause."""

    def __init__(self, bytes_limit: int) -> None:
        self.dropped: list[tuple[Carried, str]] = []
        self.sent = 0  # events
        self.served = 0  # recipients of these events, in all
        self._outbox = new_outbox(bytes_limit)
        self._reached: dict[str, None] = {}  # neighbours that receive the group
        self._message_bytes = 0
        self._shares: dict[QueuedTransitEvent, _Shares] = {}  # of all queued events
        self._last: QueuedTransitEvent | None = None  # if still queued

    def reach(self, neighbours: list[str], message_bytes: int) -> None:
        """Set the neighbours that receive the group, and the largest datagram."""
        self._reached = dict.fromkeys(neighbours)
        self._message_bytes = message_bytes

    def is_empty(self) -> bool:
        return self._outbox.is_empty()

    def put(self, neighbour: str, carried: Carried, due_us: int, now_us: int) -> bool:
        """Queue a copy; False if it cannot be multicast."""
        if neighbour not in self._reached:
            return False
        share = RecipientPart(neighbour, carried.routes, carried.note)
        size = _SHARE_BYTES + len(neighbour) + len(share.note) + _ROUTE_BYTES * len(share.routes)
        waiting = self._last
        if waiting is None or not _is_same(waiting.carried, carried):
            waiting = QueuedTransitEvent(
                msgspec.structs.replace(carried, routes=(), note=b""), due_us, now_us
            )
            shares = _Shares(waiting, due_us)
            if shares.wire_bytes + size > self._message_bytes:
                return False
            self._queue(waiting, shares)
        else:
            shares = self._shares[waiting]
            if (
                shares.wire_bytes + size > self._message_bytes
                or len(shares.by_neighbour) >= MAX_SHARES
                or neighbour in shares.by_neighbour
            ):
                return False
        shares.by_neighbour[neighbour] = share
        shares.wire_bytes += size
        return True

    def take(self, bytes_wanted: int, now_us: int, give_one: GiveOne) -> list[MulticastEvent]:
        """About `bytes_wanted` of events to send next, with their ages updated."""
        self._last = None
        taken: list[MulticastEvent] = []
        while not taken and (parcels := self._outbox.take(bytes_wanted, 0)):
            for parcel in parcels:
                assert isinstance(parcel, QueuedTransitEvent)
                found = self._ready(parcel, now_us, give_one)
                if found is not None:
                    taken.append(found)
        return taken

    def check_invariants(self) -> None:
        self._outbox.check_invariants()
        assert self._outbox.is_empty() == (not self._shares)
        for shares in self._shares.values():
            assert 0 < len(shares.by_neighbour) <= MAX_SHARES
        assert self._last is None or self._last in self._shares
        assert self.served >= 2 * self.sent

    def _queue(self, waiting: QueuedTransitEvent, shares: _Shares) -> None:
        self._last = waiting
        self._shares[waiting] = shares
        for parcel in self._outbox.put(waiting) or ():
            assert isinstance(parcel, QueuedTransitEvent)
            del self._shares[parcel]
            self.dropped.append((parcel.carried, QUEUE_FULL))
            if parcel is waiting:
                self._last = None

    def _ready(
        self, waiting: QueuedTransitEvent, now_us: int, give_one: GiveOne
    ) -> MulticastEvent | None:
        carried = waiting.carried
        shares = self._shares.pop(waiting)
        age_us = carried.age_us + now_us - waiting.arrived_us
        if 0 < carried.deadline_us <= age_us:
            self.dropped.append((carried, EXPIRED))
            return None
        reached = [
            share for share in shares.by_neighbour.values() if share.neighbour in self._reached
        ]
        if len(reached) < 2:
            reached = []  # a single recipient does not need the group
        for neighbour, share in shares.by_neighbour.items():
            if share not in reached:
                copy = msgspec.structs.replace(carried, routes=share.routes, note=share.note)
                give_one(neighbour, copy, shares.due_us, waiting.arrived_us)
        if not reached:
            return None
        self.sent += 1
        self.served += len(reached)
        return MulticastEvent(msgspec.structs.replace(carried, age_us=age_us), tuple(reached))


def _is_same(one: Carried, other: Carried) -> bool:
    """Whether they are copies of one event that differ in their `RecipientPart` only."""
    return (
        one.number == other.number
        and one.source == other.source
        and one.incarnation == other.incarnation
        and one.template == other.template
        and one.channel == other.channel
        and one.is_early == other.is_early
        and one.receipts == other.receipts
        and one.age_us == other.age_us
    )
