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

MOST: Final = 16_384
_MORE: Final = 8  # as many checkpoints as streams
_LOOKED_AT: Final = 16  # candidates for eviction per call


class InboundStreams(dict[tuple[str, str], SourceStream]):
    """Streams by channel and source, in order of last use or examination.

    `past` holds the checkpoints of evicted streams.
    """

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self.past: dict[tuple[str, str], StreamCheckpoint] = {}
        self._most = most

    def hear(self, channel: str, key: StreamId, base: int, now_us: int) -> SourceStream | None:
        """Get or create a source's stream, perhaps with another key; None if there is no room."""
        place = (channel, key.source)
        known = self.pop(place, None)
        if known is None:
            past = self.past.get(place)
            if past is not None and past.key.is_after(key):
                return None
            if len(self) >= self._most and not self._make_room(now_us):
                return None
            known = SourceStream(channel, key, base, now_us)
            past = self.past.pop(place, None)
            if past is not None and past.key == key:
                known.go_on(past)
        self[place] = known
        return known

    def forget(self, stream: SourceStream) -> None:
        """Replace a stream by its checkpoint."""
        place = (stream.channel, stream.key.source)
        del self[place]
        while len(self.past) >= _MORE * self._most:
            del self.past[next(iter(self.past))]
        self.past[place] = stream.past()

    def forget_past(self, nodes: Container[str]) -> None:
        """Drop the checkpoints of sources that are not in `nodes`."""
        for place in [each for each in self.past if each[1] not in nodes]:
            del self.past[place]

    def left(self, is_member: Callable[[str], bool]) -> None:
        """Clear `is_wanted` where this node left: events that pass meanwhile are not missed."""
        for stream in self.values():
            stream.is_wanted = stream.is_wanted and is_member(stream.channel)
        for place, past in self.past.items():
            if past.is_wanted and not is_member(place[0]):
                self.past[place] = past._replace(is_wanted=False)

    def check_invariants(self) -> None:
        assert len(self) <= self._most
        assert len(self.past) <= _MORE * self._most
        for place, stream in self.items():
            assert place == (stream.channel, stream.key.source)
            assert place not in self.past
            stream.check_invariants()

    def _make_room(self, now_us: int) -> bool:
        def is_free(stream: SourceStream) -> bool:
            is_quiet = not stream.lacks() and now_us - stream.heard_us >= QUIET_US
            return is_quiet or stream.has_nothing_to_do()

        place = find_evictable(self, is_free, _LOOKED_AT)
        if place is None:
            return False
        self.forget(self[place])
        return True
