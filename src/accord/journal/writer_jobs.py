"""Entries of the writer's queue: records to commit, and jobs that run between commits."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

import msgspec

from accord.journal.errors import JournalError
from accord.journal.segment_log import SegmentLog


class WriterJob:
    """A job that the writer runs one step at a time, between commits."""

    def __init__(self, start: Callable[[SegmentLog], Generator[None, None, Any]]) -> None:
        self.future: Future[Any] = Future()
        self._start = start
        self._steps: Generator[None, None, Any] | None = None

    @property
    def error(self) -> BaseException | None:
        """Why the job failed, if it did."""
        is_over = self.future.done() and not self.future.cancelled()
        return self.future.exception() if is_over else None

    def step(self, log: SegmentLog) -> bool:
        """Run one step; returns whether there is more to do."""
        try:
            if self._steps is None:
                if not self.future.set_running_or_notify_cancel():
                    return False
                self._steps = self._start(log)
            next(self._steps)
        except StopIteration as end:
            self.future.set_result(end.value)
            return False
        except Exception as error:
            self.future.set_exception(error)
            return False
        return True

    def abandon(self, error: JournalError) -> None:
        if self._steps is not None:
            self._steps.close()
            self.future.set_exception(error)
        elif self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class CommitGroup(msgspec.Struct):
    """Records to be committed together, and the job to start after them."""

    records: list[bytes]
    size: int
    job: WriterJob | None = None
