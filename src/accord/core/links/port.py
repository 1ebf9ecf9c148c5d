"""Ports between a node's links and what is above them: the overlay, or a fake in tests."""

from __future__ import annotations

from typing import Any, Protocol


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

    def reach_group(self, neighbours: list[str], message_bytes: int) -> None:
        """Set the neighbours that receive the group now, and the largest message."""

    def take_shared(self, bytes_wanted: int) -> list[bytes]:
        """Encoded data for several neighbours at once; data for a single one is left to `take`."""

    def receive_shared(self, neighbour: str, message: Any, now_us: int) -> None:
        """A neighbour's message to the group arrived, for this node or for others."""
