"""The streams of which this node is the source, by channel.

When there are many, a new stream evicts one that is idle and unused for long; a few candidates are
examined per call, different ones each time. A stream with dropped members is kept longer: its
successor would wait for them again, and not report to them what they have missed.
"""

from __future__ import annotations

from typing import Final

from accord.core.channels.streams.messages import StreamId
from accord.core.channels.streams.stream_sender import StreamSender
from accord.core.model.bounded import find_evictable

MAX_STREAMS: Final = 16_384
_MAX_UNACKED: Final = 1_024  # idle streams kept for dropped members
_SCANNED: Final = 64


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
        channel = find_evictable(self, _is_free, _SCANNED)
        if channel is not None:
            del self[channel]


def _is_free(sender: StreamSender) -> bool:
    return sender.is_confirmed() and not sender.has_unacked() and not sender.stream.heartbeats
