"""Jobs for worker processes, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct

from accord.core.model.document import Condition
from accord.core.model.importance import DEFAULT_IMPORTANCE
from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.core.scheduling.worker_jobs import WorkerJob
from accord.runtime.worker_messages import ShapeWork, XPathWork
from accord.shaping.content import Content

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
    terms: JobPriority,
    done: Callable[[Content | JobFailure, int], None],
) -> WorkerJob:
    """The job to shape `content`; `done` gets the result and the microseconds spent."""
    work = ShapeWork(content, shape.shaper, shape.max_bytes, shape.max_pixels, shape.argument)
    return _job(work, content.size, terms, done)


def xpath_job(
    source: bytes,
    conditions: Sequence[Condition],
    terms: JobPriority,
    done: Callable[[Values | JobFailure, int], None],
) -> WorkerJob:
    """The job to evaluate `conditions` on a document; the cheapest should come first.

    `done` gets a value for each, None if the time ran out before it was known.
    """
    return _job(XPathWork(source, tuple(conditions)), len(source), terms, done)


def _job(
    work: ShapeWork | XPathWork,
    size: int,
    terms: JobPriority,
    done: Callable[[Content | JobFailure, int], None] | Callable[[Values | JobFailure, int], None],
) -> WorkerJob:
    return WorkerJob(
        work,
        done,
        size,
        terms.cost_us,
        terms.importance,
        terms.queued_ms,
        terms.due_ms,
        terms.channel,
        terms.number,
    )
