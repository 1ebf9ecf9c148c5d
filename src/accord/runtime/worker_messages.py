"""Messages between a node and its worker processes, and their framing.

A frame is a length in four bytes and a message in MessagePack. To each order a worker replies with
any number of `ConditionEvaluated`, then one `Shaped`, `Evaluated` or `Failed`.

Worker processes import this: keep it light.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from accord.core.model.document import Condition
from accord.shaping.content import Content

LENGTH: Final = 4
MAX_FRAME: Final = 64 * 1024 * 1024


class ShapeWork(Struct, frozen=True, tag="shape", array_like=True):
    """Make `content` smaller; the other fields are those of a ShapingTarget."""

    content: Content
    shaper: str
    max_bytes: int
    max_pixels: int
    argument: str


class XPathWork(Struct, frozen=True, tag="xpath", array_like=True):
    """Evaluate conditions on an XML document, in order."""

    source: bytes
    conditions: tuple[Condition, ...]


class Ready(Struct, frozen=True, tag="ready", array_like=True):
    """The worker has started."""


class ConditionEvaluated(Struct, frozen=True, tag="noted", array_like=True):
    """The next condition's value, sent immediately: the one after it may take too long."""

    value: bool | None


class Shaped(Struct, frozen=True, tag="shaped", array_like=True):
    content: Content
    spent_us: int


class Evaluated(Struct, frozen=True, tag="evaluated", array_like=True):
    """All conditions are evaluated."""

    spent_us: int


class Failed(Struct, frozen=True, tag="failed", array_like=True):
    problem: str
    spent_us: int


Work = ShapeWork | XPathWork
Reply = Ready | ConditionEvaluated | Shaped | Evaluated | Failed

_ENCODER: Final = msgspec.msgpack.Encoder()
_WORK: Final[msgspec.msgpack.Decoder[Work]] = msgspec.msgpack.Decoder(Work)
_REPLY: Final[msgspec.msgpack.Decoder[Reply]] = msgspec.msgpack.Decoder(Reply)


def frame(message: Work | Reply) -> bytearray:
    buffer = bytearray(LENGTH)
    _ENCODER.encode_into(message, buffer, LENGTH)
    buffer[:LENGTH] = (len(buffer) - LENGTH).to_bytes(LENGTH, "big")
    return buffer


def read_work(body: bytes) -> Work:
    return _WORK.decode(body)


def read_reply(body: bytes) -> Reply:
    """Raises msgspec.DecodeError: a broken worker may send anything."""
    return _REPLY.decode(body)
