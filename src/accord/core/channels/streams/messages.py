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
    """State of a stream at its sender: all below `window_base` is confirmed, up to `top` sent.

    `tree_epoch` counts the trees that the source has chosen for the stream; `digest` is the latest.
    """

    key: StreamId
    window_base: int
    last_sent: int
    tree_epoch: int
    digest: Digest
    tree: Tree | None = None


class StreamHeader(msgspec.Struct, frozen=True, array_like=True):
    """Header of an event in a stream; the event's own number is its sequence number."""

    state: StreamState
    deadline_us: int = 0
    position: Stamp | None = None


class StreamHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag="sync"):
    """Down the tree: the extent of the stream; the receiver replies with an `Ack`.

    `sent_us` is the sender's clock; `response_us` is the response time it has measured recently.
    """

    state: StreamState
    sent_us: int = 0
    response_us: int = 0


class Nack(msgspec.Struct, frozen=True, array_like=True, tag="nack"):
    """One hop towards the source: missing sequence numbers, as inclusive ranges."""

    key: StreamId
    ranges: tuple[tuple[int, int], ...]


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """One hop towards the source: cumulative acks of the sender and all nodes beyond it.

    `window_base` is the sender's. `sent_us` echoes the `StreamHeartbeat` being answered, or is 0.
    """

    key: StreamId
    window_base: int
    acked_through: dict[str, int]
    echo_us: int = 0


class Have(msgspec.Struct, frozen=True, array_like=True, tag="have"):
    """Acknowledges a tree; with `is_missing`, requests it."""

    digest: Digest
    is_missing: bool = False


Message = StreamHeartbeat | Nack | Ack | Have

NOTHING: Final = StreamState(StreamId("", 0, 0), 1, 0, 0, b"")  # until the event is sent

encode: Final = msgspec.msgpack.Encoder().encode
headers: Final = msgspec.msgpack.Decoder(StreamHeader)
messages: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
