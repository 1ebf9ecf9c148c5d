"""What went over a link, by class."""

from __future__ import annotations

from msgspec import Struct


class Count(Struct):
    frames: int = 0
    messages: int = 0
    bytes: int = 0  # headers included

    def add(self, frames: int, messages: int, size: int) -> None:
        self.frames += frames
        self.messages += messages
        self.bytes += size


class Direction(Struct):
    """`link` is what the two ends say about the link itself: greetings, keepalives, reports."""

    link: Count
    control: Count
    data: Count
    datagrams: Count

    def all(self) -> tuple[Count, ...]:
        return self.link, self.control, self.data, self.datagrams

    @property
    def bytes(self) -> int:
        return self.link.bytes + self.control.bytes + self.data.bytes + self.datagrams.bytes


class Traffic(Struct):
    sent: Direction
    received: Direction
    too_large: int = 0  # messages that the other side would not accept, and so were not sent

    def add(self, other: Traffic) -> None:
        for mine, others in ((self.sent, other.sent), (self.received, other.received)):
            for count, more in zip(mine.all(), others.all(), strict=True):
                count.add(more.frames, more.messages, more.bytes)
        self.too_large += other.too_large


def no_traffic() -> Traffic:
    return Traffic(sent=_nothing(), received=_nothing())


def _nothing() -> Direction:
    return Direction(link=Count(), control=Count(), data=Count(), datagrams=Count())
