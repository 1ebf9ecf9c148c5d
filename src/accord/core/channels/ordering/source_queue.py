"""A source on an ordered channel: events waiting for positions, and the positions it holds.

The source requests no more positions than it can send events at once, so that no member waits for a
position whose source is itself blocked. Events without a position wait here, bounded in number and
bytes. The queue also holds what any node knows of the order: the latest epoch seen, and the last
position received.

`OwnPositions` serves replies to sequencers and members. The node holds a position for each event
that some member may lack, and may yet be granted those it has requested. Earlier positions matter
to no node any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Final

import msgspec

from accord.core.channels.ordering.messages import (
    MAX_GRANT,
    NO_EPOCH,
    Epoch,
    OrderPosition,
    PositionGrant,
    PositionPending,
    PositionRange,
    PositionRequest,
    PositionVoid,
    epoch_of,
    merged,
)
from accord.core.channels.streams.source_stream import size_of
from accord.core.channels.streams.stream_sender import MAX_BYTES, StreamSender
from accord.core.channels.template import Context
from accord.core.model.units import NEVER_US
from accord.core.overlay.signalling import TransitEvent

_RETRY_US: Final = 500_000
_MAX_PENDING: Final = 1_024
_MORE: Final = 8  # hard limit, for publishers that were not paused in time
_NOTICE_INTERVAL_US: Final = 500_000


class SourceQueue:
    """Queue of one channel; `pending` holds events without a position, with their arrival times."""

    def __init__(self, incarnation: int, now_us: int) -> None:
        self.latest: Epoch = NO_EPOCH
        self.pending: deque[tuple[TransitEvent, int]] = deque()
        self.used_us = now_us
        self.request_us = NEVER_US  # next request; never while the window is full
        self.bytes = 0  # of `pending`
        self._last_granted: tuple[Epoch, int] = (NO_EPOCH, 0)  # the last granted position
        self._notice_us = -_NOTICE_INTERVAL_US  # when `CurrentEpoch` was last sent
        self._incarnation = incarnation
        # Above all requests of an evicted queue of this channel: a reply to one of them must not
        # match.
        self._request = now_us
        self._count = 0  # positions in the open request

    def has_room(self) -> bool:
        return len(self.pending) < _MAX_PENDING and self.bytes < MAX_BYTES

    def put(self, event: TransitEvent, now_us: int) -> bool:
        """Queue an event; False at the hard limit."""
        if len(self.pending) >= _MORE * _MAX_PENDING or self.bytes >= _MORE * MAX_BYTES:
            return False
        self.pending.append((event, now_us))
        self.bytes += size_of(event)
        self.resume(now_us)
        return True

    def resume(self, now_us: int) -> None:
        """Resume requests: the window may have room again."""
        if self.pending and self.request_us == NEVER_US:
            self.request_us = now_us

    def next_events(self) -> list[TransitEvent]:
        """The events to request positions for, if the window has room."""
        return [event for event, _ in islice(self.pending, MAX_GRANT)]

    def next_request(self, room: int, now_us: int) -> PositionRequest | None:
        """The request to send, repeated unchanged until granted; None if the window has no room."""
        assert self.pending
        if not self._count:
            self._count = min(len(self.pending), MAX_GRANT, room)
            self._request += 1
        if not self._count:
            self.request_us = NEVER_US
            return None
        self.request_us = now_us + _RETRY_US
        return PositionRequest(self._incarnation, self._request, self._count, self.latest)

    def next_index(self, held: PositionRange) -> int | None:
        """The first of these positions that an open request may still be granted."""
        if not self._count or held.epoch < self.latest:
            return None
        epoch, last = self._last_granted
        place = max(held.first, last + 1) if epoch == held.epoch else held.first
        return place if place <= held.last else None

    def on_grant(self, grant: PositionGrant, now_us: int) -> list[tuple[TransitEvent, int]]:
        """Return the events that got positions; none if the grant does not apply."""
        held = grant.held
        if grant.request != self._request or not self._count:
            return []
        if held.epoch < self.latest or held.last - held.first + 1 != self._count:
            self._request += 1  # outdated epoch: members would not wait for it
            self.request_us = now_us
            return []
        self.latest = held.epoch
        self._last_granted = (held.epoch, held.last)
        events = [self.pending.popleft() for _ in range(self._count)]
        self.bytes -= sum(size_of(event) for event, _ in events)
        self._count = 0
        self.request_us = now_us if self.pending else NEVER_US
        return events

    def on_epoch(self, epoch: Epoch, now_us: int) -> None:
        if epoch > self.latest:
            self.latest = epoch
            if self.pending:
                self.request_us = now_us  # a different sequencer than the one asked

    def may_send_notice(self, now_us: int) -> bool:
        """Rate-limit `CurrentEpoch` notices: whether one may be sent now."""
        if now_us - self._notice_us < _NOTICE_INTERVAL_US:
            return False
        self._notice_us = now_us
        return True

    def check_invariants(self) -> None:
        assert len(self.pending) <= _MORE * _MAX_PENDING
        assert self.bytes == sum(size_of(event) for event, _ in self.pending)
        assert self._count <= min(len(self.pending), MAX_GRANT)
        assert self.pending or self.request_us == NEVER_US
        assert not self._count or self.request_us < NEVER_US


class OwnPositions:
    """Positions of one node on all channels."""

    def __init__(
        self,
        context: Context,
        queues: Mapping[str, SourceQueue],
        senders: Mapping[str, StreamSender],
    ) -> None:
        self._context = context
        self._queues = queues
        self._senders = senders

    def is_own(self, held: PositionRange) -> bool:
        """Whether the range belongs to this incarnation of this node."""
        own = (self._context.name, self._context.incarnation)
        return (held.source, held.incarnation) == own

    def all(self, channel: str) -> tuple[PositionRange, ...]:
        """One range per epoch in which the node holds positions."""
        return tuple(merged(self._range_at(stamp) for stamp in self._sent_after(channel, 0)))

    def reply_to(
        self, member: str, channel: str, held: PositionRange
    ) -> PositionPending | PositionVoid:
        """Whether events at these positions will arrive at that member."""
        first = self._first_pending(member, channel, held) if self.is_own(held) else None
        if first is None:
            return PositionVoid(held)
        if first > held.first:
            return PositionVoid(msgspec.structs.replace(held, last=first - 1))
        return PositionPending(held)

    def _first_pending(self, member: str, channel: str, held: PositionRange) -> int | None:
        """The first of these positions whose event is, or may be, on its way to the member."""
        coming = [self._queues[channel].next_index(held)]
        sender = self._senders.get(channel)
        progress = None if sender is None else sender.members.get(member)
        if progress is not None:
            sent = self._sent_after(channel, progress.acked)
            coming += [each[3] for each in sent if epoch_of(each) == held.epoch]
        places = [each for each in coming if each is not None and held.first <= each <= held.last]
        return min(places, default=None)

    def _sent_after(self, channel: str, number: int) -> list[OrderPosition]:
        """Positions of events after `number` that some member may lack."""
        sender = self._senders.get(channel)
        notes = [] if sender is None else sender.headers_after(number)
        return [note.position for note in notes if note.position is not None]

    def _range_at(self, position: OrderPosition) -> PositionRange:
        place = position[3]
        return PositionRange(
            epoch_of(position), place, place, self._context.name, self._context.incarnation
        )
