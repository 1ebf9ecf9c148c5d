"""What nodes next to each other on a tree say about the streams that pass them."""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.channels.trees.tree import Digest, Tree

Stamp = tuple[int, str, int, int]  # as in `ordering.stamps`


class StreamId(msgspec.Struct, frozen=True, array_like=True):
    """A stream of a source; of two that differ the later has the larger numbers."""

    source: str
    incarnation: int
    serial: int

    def is_after(self, other: StreamId) -> bool:
        return (self.incarnation, self.serial) > (other.incarnation, other.serial)


class StreamState(msgspec.Struct, frozen=True, array_like=True):
    """What the sender knows of a stream: all below `base` is done with, `top` is the last.

    `turn` counts the trees that the source has chosen for it, of which this is the latest.
    """

    key: StreamId
    base: int
    top: int
    turn: int
    digest: Digest
    tree: Tree | None = None


class StreamHeader(msgspec.Struct, frozen=True, array_like=True):
    """What travels with an event; its place in the stream is its number."""

    state: StreamState
    deadline_us: int = 0
    stamp: Stamp | None = None


class StreamHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag="sync"):
    """Down the tree: this much there is. Whoever hears it answers with an `Ack`.

    It was said at `said_us` by the clock of whoever says it; answers take `took_us` lately.
    """

    state: StreamState
    said_us: int = 0
    took_us: int = 0


class Nack(msgspec.Struct, frozen=True, array_like=True, tag="nack"):
    """One hop towards the source: these are missing here, from the first to the last of each."""

    key: StreamId
    ranges: tuple[tuple[int, int], ...]


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """One hop towards the source: through which number nodes have everything.

    They are the sender and all beyond it. `base` is the sender's. `said_us` is that of the
    `StreamHeartbeat` that it answers, 0 where it answers none.
    """

    key: StreamId
    base: int
    through: dict[str, int]
    said_us: int = 0


class Have(msgspec.Struct, frozen=True, array_like=True, tag="have"):
    """A tree has come, and need not come again; or `is_missing`, and is wanted."""

    digest: Digest
    is_missing: bool = False


Message = StreamHeartbeat | Nack | Ack | Have

NOTHING: Final = StreamState(StreamId("", 0, 0), 1, 0, 0, b"")  # until it is sent

encode: Final = msgspec.msgpack.Encoder().encode
notes: Final = msgspec.msgpack.Decoder(StreamHeader)
messages: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
