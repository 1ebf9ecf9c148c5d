"""What a node's links need from whatever decides: the overlay, or a test's stand-in for it."""

from __future__ import annotations

from typing import Any, Protocol


class OverlayPort(Protocol):
    """Times are those of one clock that does not jump, in microseconds."""

    # Messages of control, each with the neighbour it is for: taken out by who drives the links.
    sends: list[tuple[str, Any]]

    def link_up(self, neighbour: str, now_us: int) -> None:
        """A connection to `neighbour` is there; nothing that was under way before has stayed."""

    def link_down(self, neighbour: str, now_us: int) -> None: ...

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        """A message of control or data; only between `link_up` and `link_down`."""

    def advance(self, now_us: int) -> None: ...

    def next_due_us(self) -> int | None:
        """When `advance` must be called; None: not before something else happens."""

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        """Data for `neighbour`, encoded: at least so many bytes if there are, one message more."""

    def take_datagrams(self, neighbour: str, bytes_wanted: int, message_bytes: int) -> list[bytes]:
        """As `take`, but only what tolerates loss, and no message above `message_bytes`.

        It is asked first, and only while datagrams get through: `take` is to give what is left,
        whatever it tolerates. Where nothing tolerates loss it gives nothing.
        """


class MulticastPort(Protocol):
    """The same for the multicast group of a node, where it is in one."""

    def reach_group(self, neighbours: list[str], message_bytes: int) -> None:
        """Those that hear what is sent there now, in messages of that size at most."""

    def take_shared(self, bytes_wanted: int) -> list[bytes]:
        """Data for several of them at once, encoded; what is not for several is kept for `take`."""

    def receive_shared(self, neighbour: str, message: Any, now_us: int) -> None:
        """What a neighbour has sent there, to this node or to others."""
