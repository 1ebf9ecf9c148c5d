"""Traffic counters of a link, by class of frame."""

from __future__ import annotations

from msgspec import Struct


class FrameCounts(Struct):
    """Counters of one class of frames."""

    frames: int = 0
    messages: int = 0
    bytes: int = 0  # headers included

    def add(self, frames: int, messages: int, size: int) -> None:
        self.frames += frames
        self.messages += messages
        self.bytes += size


class DirectionTraffic(Struct):
    """Counters of one direction; `link` counts handshakes, keepalives and reports."""

    link: FrameCounts
    control: FrameCounts
    data: FrameCounts
    datagrams: FrameCounts

    def all(self) -> tuple[FrameCounts, ...]:
        return self.link, self.control, self.data, self.datagrams

    @property
    def bytes(self) -> int:
        return self.link.bytes + self.control.bytes + self.data.bytes + self.datagrams.bytes


class LinkTraffic(Struct):
    """Counters of both directions of a link."""

    sent: DirectionTraffic
    received: DirectionTraffic
    too_large: int = 0  # messages not sent, as the peer would not accept them

    def add(self, other: LinkTraffic) -> None:
        for mine, others in ((self.sent, other.sent), (self.received, other.received)):
            for count, more in zip(mine.all(), others.all(), strict=True):
                count.add(more.frames, more.messages, more.bytes)
        self.too_large += other.too_large


def no_traffic() -> LinkTraffic:
    return LinkTraffic(sent=_nothing(), received=_nothing())


def _nothing() -> DirectionTraffic:
    return DirectionTraffic(
        link=FrameCounts(), control=FrameCounts(), data=FrameCounts(), datagrams=FrameCounts()
    )
