"""What the two ends of a link say to each other about the link itself."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from accord.core.links.errors import CloseReason, LinkError

MAGIC: Final = "accord link"
MIN_VERSION: Final = 1
MAX_VERSION: Final = 1
NONCE_BYTES: Final = 32

# Features of a Hello, each with a number; unknown ones mean nothing.
DATAGRAM_PORT: Final = "udp"
MESSAGE_BYTES: Final = "bytes"
KEEPALIVE_US: Final = "keepalive"
GROUP: Final = "group"  # the multicast group a node is in, and its key
SECONDARY: Final = "secondary"  # it has parents, and no map


class Hello(Struct, frozen=True, array_like=True, tag="hello"):
    """Who speaks, and which versions of the protocol it can."""

    magic: str
    least: int
    most: int
    node: str
    incarnation: int
    nonce: bytes
    has_key: bool
    features: dict[str, int]


class Proof(Struct, frozen=True, array_like=True, tag="proof"):
    """That its sender has the shared key, and means just this conversation."""

    mac: bytes


class LinkClose(Struct, frozen=True, array_like=True, tag="ended"):
    """The last words of who ends or refuses a link."""

    why: str
    problem: str


class DatagramReport(Struct, frozen=True, array_like=True, tag="heard"):
    """Of the datagrams so far: how many came, and the highest number."""

    received: int
    highest: int


class MulticastReport(Struct, frozen=True, array_like=True, tag="group"):
    """Of what the other side sends to their group: how many came, and the highest number.

    Of its own, those from the number `first` on are for this link.
    """

    first: int
    received: int
    highest: int


LinkMessage = Hello | Proof | LinkClose | DatagramReport | MulticastReport

_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[LinkMessage]] = msgspec.msgpack.Decoder(LinkMessage)


def encode_link_message(message: LinkMessage) -> bytes:
    return _encode(message)


def decode_link_message(body: memoryview) -> LinkMessage:
    try:
        return _decoder.decode(body)
    except (ValueError, RecursionError, OverflowError) as error:
        raise LinkError(
            CloseReason.GARBAGE, f"expected a message about the link: {error}"
        ) from None
