"""Common definitions of links: options, node names, traffic counters, and ports.

A port is the interface of a node's links to what is above them: the overlay, or a fake in tests.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from msgspec import Struct


class LinkOptions(Struct, frozen=True, kw_only=True):
    """Sizes in bytes, times in microseconds. The defaults suit everything but tests."""

    message_bytes: int = 16 << 20  # a frame, or a message reassembled from pieces
    piece_bytes: int = 64 << 10  # of data sent at a time: control waits for at most that much
    control_bytes: int = 8 << 20  # queue of control messages for a neighbour that does not read
    handshake_bytes: int = 4_096
    handshake_us: int = 5_000_000
    keepalive_us: int = 5_000_000  # maximum interval between two sends
    max_keepalive_us: int = 60_000_000  # upper limit for the peer's keepalive interval
    max_missed: int = 3  # keepalive intervals without data until a link times out
    datagram_bytes: int = 1_200
    report_us: int = 1_000_000  # interval of datagram reports


NAME_BYTES: Final = 64


def name_problem(name: str) -> str:
    """The problem with a node's name; empty if it is valid."""
    if not name:
        return "the node's name is empty"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "the node's name is no valid text"
    if size > NAME_BYTES:
        return f"the node's name has {size} bytes, at most {NAME_BYTES} are allowed"
    if any(character.isspace() or not character.isprintable() for character in name):
        return f"the node's name {name!r} contains spaces or control characters"
    return ""


class OverlayPort(Protocol):
    """The overlay as links use it; times are microseconds of one monotonic clock."""

    # Control messages with their neighbours; drained by the driver of the links.
    sends: list[tuple[str, Any]]

    def link_up(self, neighbour: str, now_us: int) -> None:
        """A connection to `neighbour` is up; messages in flight on an earlier one are lost."""

    def link_down(self, neighbour: str, now_us: int) -> None: ...

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        """A control or data message arrived; only between `link_up` and `link_down`."""

    def advance(self, now_us: int) -> None: ...

    def next_due_us(self) -> int | None:
        """When to call `advance`; None: not before another call."""

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        """Encoded data for `neighbour`: at least `bytes_wanted` if queued, up to a message more."""

    def take_datagrams(self, neighbour: str, bytes_wanted: int, message_bytes: int) -> list[bytes]:
        """Like `take`, but only messages that tolerate loss, each up to `message_bytes`.

        Called before `take`, and only while datagrams get through: `take` returns the rest,
        including messages that tolerate loss. Returns nothing if no message tolerates loss.
        """


class MulticastPort(Protocol):
    """The overlay as links use it if the node is in a multicast group."""

    def set_group_reach(self, neighbours: list[str], message_bytes: int) -> None:
        """Set the neighbours that receive the group now, and the largest message."""

    def take_multicast(self, bytes_wanted: int) -> list[bytes]:
        """Encoded data for several neighbours at once; data for a single one is left to `take`."""

    def receive_multicast(self, neighbour: str, message: Any, now_us: int) -> None:
        """A neighbour's message to the group arrived, for this node or for others."""


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
