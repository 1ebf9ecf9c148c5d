"""Work for a worker process, waiting for its turn as any other task does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accord.core.scheduling.tasks import Task


class WorkerJob(Task):
    """`work` says what is to be done, in terms of whoever does it.

    `done` is told the outcome and the microseconds spent on it, once, whatever happens. What jobs
    cost is learned per `channel`.
    """

    def __init__(
        self,
        work: Any,
        done: Callable[[Any, int], None],
        size: int,
        cost_us: int,
        importance: int,
        queued_ms: int,
        due_ms: int = 0,
        channel: str = "",
        number: int = 0,
    ) -> None:
        super().__init__(size, cost_us, importance, queued_ms, due_ms, number=number)
        self.work = work
        self.done = done
        self.channel = channel
