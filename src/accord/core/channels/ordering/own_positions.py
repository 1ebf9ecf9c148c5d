"""Positions that this node holds as a source, for replies to sequencers and members.

The node holds a position for each event that some member may lack, and may yet be granted those it
has requested. Earlier positions matter to no node any more.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from accord.core.channels.ordering.messages import (
    OrderPosition,
    PositionPending,
    PositionRange,
    PositionVoid,
    epoch_of,
    merged,
)
from accord.core.channels.ordering.source_queue import SourceQueue
from accord.core.channels.streams.stream_sender import StreamSender
from accord.core.channels.template import Context


class OwnPositions:
    """Positions of one node on all channels."""

    def __init__(
        self,
        context: Context,
        desks: Mapping[str, SourceQueue],
        senders: Mapping[str, StreamSender],
    ) -> None:
        self._context = context
        self._desks = desks
        self._senders = senders

    def is_own(self, held: PositionRange) -> bool:
        """Whether the range belongs to this incarnation of this node."""
        own = (self._context.name, self._context.incarnation)
        return (held.source, held.incarnation) == own

    def all(self, channel: str) -> tuple[PositionRange, ...]:
        """One range per epoch in which the node holds positions."""
        return tuple(merged(self._place(stamp) for stamp in self._sent_after(channel, 0)))

    def whether(
        self, member: str, channel: str, held: PositionRange
    ) -> PositionPending | PositionVoid:
        """Whether events at these positions will arrive at that member."""
        first = self._first_to_come(member, channel, held) if self.is_own(held) else None
        if first is None:
            return PositionVoid(held)
        if first > held.first:
            return PositionVoid(msgspec.structs.replace(held, last=first - 1))
        return PositionPending(held)

    def _first_to_come(self, member: str, channel: str, held: PositionRange) -> int | None:
        """The first of these positions whose event is, or may be, on its way to the member."""
        coming = [self._desks[channel].next_place(held)]
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
        notes = [] if sender is None else sender.notes_after(number)
        return [note.stamp for note in notes if note.stamp is not None]

    def _place(self, stamp: OrderPosition) -> PositionRange:
        place = stamp[3]
        return PositionRange(
            epoch_of(stamp), place, place, self._context.name, self._context.incarnation
        )
