"""Jobs for worker processes: their messages, framing and outcomes.

A frame is a length in four bytes and a message in MessagePack. To each order a worker replies with
any number of `ConditionEvaluated`, then one `Shaped`, `Evaluated` or `Failed`.

Worker processes import this: keep it light.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from accord.core.model.document import Condition
from accord.core.model.units import DEFAULT_IMPORTANCE
from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.core.scheduling.tasks import WorkerJob
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


UNKNOWN_US: Final = 20_000  # assumed cost of a job before any was measured

FailureKind = Literal["failed", "too long", "died", "shed", "expired", "closed"]


class JobFailure(Struct, frozen=True):
    """Why a job has no result."""

    kind: FailureKind
    reason: str


Values = list[bool | None]
JobOutcome = Content | Values | JobFailure


class JobPriority(Struct, frozen=True, kw_only=True):
    """Decides when a job runs; `due_ms` is 0 if it has no deadline."""

    queued_ms: int
    importance: int = DEFAULT_IMPORTANCE
    due_ms: int = 0
    channel: str = ""
    cost_us: int = UNKNOWN_US
    number: int = 0


def shape_job(
    content: Content,
    shape: ShapingTarget,
    priority: JobPriority,
    done: Callable[[Content | JobFailure, int], None],
) -> WorkerJob:
    """The job to shape `content`; `done` gets the result and the microseconds spent."""
    work = ShapeWork(content, shape.shaper, shape.max_bytes, shape.max_pixels, shape.argument)
    return _job(work, content.size, priority, done)


def xpath_job(
    source: bytes,
    conditions: Sequence[Condition],
    priority: JobPriority,
    done: Callable[[Values | JobFailure, int], None],
) -> WorkerJob:
    """The job to evaluate `conditions` on a document; the cheapest should come first.

    `done` gets a value for each, None if the time ran out before it was known.
    """
    return _job(XPathWork(source, tuple(conditions)), len(source), priority, done)


def _job(
    work: ShapeWork | XPathWork,
    size: int,
    priority: JobPriority,
    done: Callable[[Content | JobFailure, int], None] | Callable[[Values | JobFailure, int], None],
) -> WorkerJob:
    return WorkerJob(
        work,
        done,
        size,
        priority.cost_us,
        priority.importance,
        priority.queued_ms,
        priority.due_ms,
        priority.channel,
        priority.number,
    )
