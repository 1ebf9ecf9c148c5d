"""Bounded table of the streams that a node receives, with checkpoints of evicted ones.

When the table is full, a new stream evicts one that has been silent for long or has nothing to do.
A few candidates are examined per call, different ones each time; if none qualifies, the new
stream's source has to wait. Checkpoints (delivered up to which number) are kept for many more
streams.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from accord.core.channels.streams.messages import StreamId
from accord.core.channels.streams.source_stream import SourceStream, StreamCheckpoint
from accord.core.channels.streams.stream_relay import QUIET_US
from accord.core.model.bounded import find_evictable

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
