"""Bounded table of the streams that a node receives, with checkpoints of evicted ones.

When the table is full, a new stream evicts one that has been silent for long or has nothing to do.
A few candidates are examined per call, different ones each time; if none qualifies, the new
stream's source has to wait. Checkpoints (delivered up to which number) are kept for many more
streams.

The streams of which this node is the source, by channel.

When there are many, a new stream evicts one that is idle and unused for long; a few candidates are
examined per call, different ones each time. A stream with dropped members is kept longer: its
successor would wait for them again, and not report to them what they have missed.

Budget of unconfirmed events of a node's publishers, over all channels of a template.

The budget is a fair quota: stalled channels leave room for the others. When a channel has no room,
its publishers are paused, each after the event it has just published, so a hard limit above the
budget absorbs those; beyond it nothing is accepted. A channel with nothing in flight may send one
event in any case, up to the hard limit.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from accord.core.channels.streams.messages import StreamId
from accord.core.channels.streams.source_stream import SourceStream, StreamCheckpoint
from accord.core.channels.streams.stream_relay import QUIET_US
from accord.core.channels.streams.stream_sender import StreamSender
from accord.core.model.bounded import FairQuota, find_evictable

MAX_STREAMS: Final = 16_384
_MORE: Final = 8  # as many checkpoints as streams
_SCANNED: Final = 16  # candidates for eviction per call


class InboundStreams(dict[tuple[str, str], SourceStream]):
    """Streams by channel and source, in order of last use or examination.

    `checkpoints` holds the checkpoints of evicted streams.
    """

    def __init__(self, most: int = MAX_STREAMS) -> None:
        super().__init__()
        self.checkpoints: dict[tuple[str, str], StreamCheckpoint] = {}
        self._most = most

    def get_or_create(
        self, channel: str, key: StreamId, window_base: int, now_us: int
    ) -> SourceStream | None:
        """Get or create a source's stream, perhaps with another key; None if there is no room."""
        place = (channel, key.source)
        known = self.pop(place, None)
        if known is None:
            past = self.checkpoints.get(place)
            if past is not None and past.key.is_after(key):
                return None
            if len(self) >= self._most and not self._make_room(now_us):
                return None
            known = SourceStream(channel, key, window_base, now_us)
            past = self.checkpoints.pop(place, None)
            if past is not None and past.key == key:
                known.restore(past)
        self[place] = known
        return known

    def evict(self, stream: SourceStream) -> None:
        """Replace a stream by its checkpoint."""
        place = (stream.channel, stream.key.source)
        del self[place]
        while len(self.checkpoints) >= _MORE * self._most:
            del self.checkpoints[next(iter(self.checkpoints))]
        self.checkpoints[place] = stream.checkpoint()

    def prune_checkpoints(self, nodes: Container[str]) -> None:
        """Drop the checkpoints of sources that are not in `nodes`."""
        for place in [each for each in self.checkpoints if each[1] not in nodes]:
            del self.checkpoints[place]

    def on_left(self, is_member: Callable[[str], bool]) -> None:
        """Clear `was_member` where this node left: events that pass meanwhile are not missed."""
        for stream in self.values():
            stream.was_member = stream.was_member and is_member(stream.channel)
        for place, past in self.checkpoints.items():
            if past.was_member and not is_member(place[0]):
                self.checkpoints[place] = past._replace(was_member=False)

    def check_invariants(self) -> None:
        assert len(self) <= self._most
        assert len(self.checkpoints) <= _MORE * self._most
        for place, stream in self.items():
            assert place == (stream.channel, stream.key.source)
            assert place not in self.checkpoints
            stream.check_invariants()

    def _make_room(self, now_us: int) -> bool:
        def is_free(stream: SourceStream) -> bool:
            is_quiet = not stream.is_incomplete() and now_us - stream.received_us >= QUIET_US
            return is_quiet or stream.is_idle()

        place = find_evictable(self, is_free, _SCANNED)
        if place is None:
            return False
        self.evict(self[place])
        return True


_MAX_UNACKED: Final = 1_024  # idle streams kept for dropped members
_OUTBOUND_SCANNED: Final = 64


class OutboundStreams(dict[str, StreamSender]):
    """Senders by channel, in order of last use or examination."""

    def __init__(self, node: str, incarnation: int, most: int = MAX_STREAMS) -> None:
        super().__init__()
        self._node = node
        self._incarnation = incarnation
        self._most = most
        self._serial = 0

    def get_or_create(self, channel: str, now_us: int) -> StreamSender:
        sender = self.pop(channel, None)
        if sender is None:
            if len(self) >= self._most:
                self._make_room()
            self._serial += 1
            sender = StreamSender(
                channel, StreamId(self._node, self._incarnation, self._serial), now_us
            )
        self[channel] = sender
        return sender

    def expire_idle(self, now_us: int) -> None:
        idle = [each for each in self.values() if each.is_idle(now_us)]
        unacked = [each for each in idle if each.has_unacked()]
        unacked.sort(key=lambda each: each.used_us)
        for sender in [each for each in idle if not each.has_unacked()] + unacked[:-_MAX_UNACKED]:
            del self[sender.stream.channel]

    def check_invariants(self) -> None:
        for channel, sender in self.items():
            assert sender.stream.channel == channel
            sender.check_invariants()

    def _make_room(self) -> None:
        channel = find_evictable(self, _is_free, _OUTBOUND_SCANNED)
        if channel is not None:
            del self[channel]


def _is_free(sender: StreamSender) -> bool:
    return sender.is_confirmed() and not sender.has_unacked() and not sender.stream.heartbeats


MAX_EVENTS: Final = 65_536
MAX_BYTES: Final = 256 << 20
_IN_FLIGHT_FACTOR: Final = 2  # hard limit, for publishers that were not paused in time


class InFlightBudget:
    """Number and bytes of unconfirmed events by channel."""

    def __init__(self, most: int = MAX_EVENTS, most_bytes: int = MAX_BYTES) -> None:
        self._quota = FairQuota(most, most_bytes)

    @property
    def total(self) -> tuple[int, int]:
        return self._quota.count, self._quota.bytes

    def of(self, channel: str) -> tuple[int, int]:
        return self._quota.held(channel)

    def has_room(self, channel: str) -> bool:
        is_free = self.of(channel)[0] == 0 and not self.is_overfull()
        return is_free or self._quota.has_room(channel)

    def is_overfull(self) -> bool:
        shares = self._quota
        return (
            shares.count >= _IN_FLIGHT_FACTOR * shares.most
            or shares.bytes >= _IN_FLIGHT_FACTOR * shares.most_bytes
        )

    def set_usage(self, channel: str, count: int, size: int) -> None:
        """Set a channel's usage."""
        held, held_bytes = self.of(channel)
        if (count, size) != (held, held_bytes):
            self._quota.change(channel, count - held, size - held_bytes)
