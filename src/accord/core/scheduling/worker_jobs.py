"""Work for a worker process, queued like any other task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accord.core.scheduling.tasks import Task


class WorkerJob(Task):
    """A job; `work` describes it in terms of its executor.

    `done` is called exactly once with the outcome and the microseconds spent. The cost of jobs is
    estimated per `channel`.
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
