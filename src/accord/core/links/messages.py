"""Messages between the two ends of a link about the link itself."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from accord.core.links.errors import CloseReason, LinkError

MAGIC: Final = "accord link"
MIN_VERSION: Final = 1
MAX_VERSION: Final = 1
NONCE_BYTES: Final = 32

# Features in a Hello, each with a number; unknown ones are ignored.
DATAGRAM_PORT: Final = "udp"
MESSAGE_BYTES: Final = "bytes"
KEEPALIVE_US: Final = "keepalive"
GROUP: Final = "group"  # identifies the node's multicast group and its key
SECONDARY: Final = "secondary"  # the node has parents, and no link-state map


class Hello(Struct, frozen=True, array_like=True, tag="hello"):
    """Opens the handshake: the sender's name, incarnation, protocol versions and features."""

    magic: str
    min_version: int
    max_version: int
    node: str
    incarnation: int
    nonce: bytes
    has_key: bool
    features: dict[str, int]


class Proof(Struct, frozen=True, array_like=True, tag="proof"):
    """Proves that its sender has the shared key, for this session only."""

    mac: bytes


class LinkClose(Struct, frozen=True, array_like=True, tag="ended"):
    """Sent last by the end that closes or refuses a link, with the reason."""

    reason: str
    problem: str


class DatagramReport(Struct, frozen=True, array_like=True, tag="heard"):
    """Datagrams received so far: their count and the highest sequence number."""

    received: int
    highest: int


class MulticastReport(Struct, frozen=True, array_like=True, tag="group"):
    """Datagrams received from the peer's multicast: their count and highest sequence number.

    The sender's own datagrams belong to this link from the number `first` on.
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
