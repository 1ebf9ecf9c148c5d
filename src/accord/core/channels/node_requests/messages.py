"""Requests between nodes: messages, their sizes, and the outcome of a request.

A request and its reply are control unicasts. What they carry is opaque here: the request of an
operation with the asker's rights, and its answer or problem as JSON. Answers are compressed.
"""

from __future__ import annotations

import zlib
from enum import Enum
from typing import Final

import msgspec

SERVICE: Final = "$requests"
MAX_REQUEST: Final = 128 << 10  # bytes of a request, with the asker's rights
MAX_REPLY: Final = 128 << 10  # bytes as sent: control, so it delays what is behind it on a link
MAX_ANSWER: Final = 2 << 20  # bytes of an answer before compression
MAX_TOPIC: Final = 200
MAX_ID: Final = 1 << 62
_LEVEL: Final = 1
_TOO_LARGE: Final = "the answer is too large to be sent between nodes"


class NodeQuestion(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A request of an operation of `topic`; `id` is the sender's, the same for a repetition."""

    id: int
    topic: str
    body: bytes
    rights: bytes


class NodeAnswer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """The compressed answer, or the problem if not `is_done`."""

    id: int
    is_done: bool
    packed: bytes


class AnswerPending(msgspec.Struct, frozen=True, array_like=True, tag="pending"):
    """The request is being performed."""

    id: int


NodeMessage = NodeQuestion | NodeAnswer | AnswerPending

encode: Final = msgspec.msgpack.Encoder().encode
bodies: Final[msgspec.msgpack.Decoder[NodeMessage]] = msgspec.msgpack.Decoder(NodeMessage)


class RequestResult(Enum):
    """How a request ended."""

    ANSWERED = "answered"
    REFUSED = "refused"  # by the other node
    UNKNOWN = "no such node"
    UNREACHABLE = "no path to the node"
    TOO_OLD = "the node does not know such requests"
    BUSY = "too many requests at once"
    TOO_LARGE = "the request is too large"
    TIMED_OUT = "no answer"
    UNREADABLE = "an answer that can't be read"


class RequestOutcome(msgspec.Struct, frozen=True):
    """The end of request `id` to `node`; `body` is the answer or the problem, as JSON."""

    id: int
    node: str
    result: RequestResult
    body: bytes = b""


class AnswerTooLargeError(ValueError):
    """An answer beyond what may be sent between nodes."""

    def __init__(self) -> None:
        super().__init__(_TOO_LARGE)


def pack(body: bytes) -> bytes:
    """Compress an answer; raises AnswerTooLargeError."""
    packed = zlib.compress(body, _LEVEL) if len(body) <= MAX_ANSWER else b""
    if not packed or len(packed) > MAX_REPLY:
        raise AnswerTooLargeError
    return packed


def unpack(packed: bytes) -> bytes | None:
    """The answer; None if it is damaged or too large."""
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(packed, MAX_ANSWER)
    except zlib.error:
        return None
    return body if unpacking.eof and not unpacking.unused_data else None


def is_valid(question: NodeQuestion) -> bool:
    size = len(question.body) + len(question.rights)
    return 0 <= question.id <= MAX_ID and len(question.topic) <= MAX_TOPIC and size <= MAX_REQUEST
