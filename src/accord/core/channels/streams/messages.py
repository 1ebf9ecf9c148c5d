"""Messages about streams between neighbours on a distribution tree."""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.channels.trees.tree import Digest, Tree

Stamp = tuple[int, str, int, int]  # `OrderPosition` of `ordering.messages`


class StreamId(msgspec.Struct, frozen=True, array_like=True):
    """Identity of a stream; of two streams of a source, the later has the larger numbers."""

    source: str
    incarnation: int
    serial: int

    def is_after(self, other: StreamId) -> bool:
        return (self.incarnation, self.serial) > (other.incarnation, other.serial)


class StreamState(msgspec.Struct, frozen=True, array_like=True):
    """The sender's view of a stream: all below `base` is confirmed, `top` is the last number.

    `turn` counts the trees that the source has chosen for the stream; `digest` is the latest.
    """

    key: StreamId
    base: int
    top: int
    turn: int
    digest: Digest
    tree: Tree | None = None


class StreamHeader(msgspec.Struct, frozen=True, array_like=True):
    """Header of an event in a stream; the event's own number is its sequence number."""

    state: StreamState
    deadline_us: int = 0
    stamp: Stamp | None = None


class StreamHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag="sync"):
    """Down the tree: the extent of the stream; the receiver replies with an `Ack`.

    `said_us` is the sender's clock; `took_us` is the response time it has measured recently.
    """

    state: StreamState
    said_us: int = 0
    took_us: int = 0


class Nack(msgspec.Struct, frozen=True, array_like=True, tag="nack"):
    """One hop towards the source: missing sequence numbers, as inclusive ranges."""

    key: StreamId
    ranges: tuple[tuple[int, int], ...]


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """One hop towards the source: cumulative acks of the sender and all nodes beyond it.

    `base` is the sender's. `said_us` echoes the `StreamHeartbeat` being answered, or is 0.
    """

    key: StreamId
    base: int
    through: dict[str, int]
    said_us: int = 0


class Have(msgspec.Struct, frozen=True, array_like=True, tag="have"):
    """Acknowledges a tree; with `is_missing`, requests it."""

    digest: Digest
    is_missing: bool = False


Message = StreamHeartbeat | Nack | Ack | Have

NOTHING: Final = StreamState(StreamId("", 0, 0), 1, 0, 0, b"")  # until the event is sent

encode: Final = msgspec.msgpack.Encoder().encode
notes: Final = msgspec.msgpack.Decoder(StreamHeader)
messages: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
