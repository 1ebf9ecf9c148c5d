"""Bounds the cost of logging.

A separate thread writes records from a bounded queue, because a full pipe or a stopped terminal
would otherwise block the event loop. Repeats of a message are suppressed after the first few and
summarised later.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile

from accord.runtime.log_lines import FIELDS, MAX_VALUE_LENGTH


class RepeatLimiter:
    """Passes `burst` records of the same message per period, and counts the rest."""

    def __init__(
        self,
        *,
        burst: int = 50,
        period_s: float = 10.0,
        kinds: int = 1_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst, self._period_s, self._kinds, self._clock = burst, period_s, kinds, clock
        self._seen: dict[tuple[str, int, str], _Seen] = {}

    def admit(self, record: logging.LogRecord) -> bool:
        kind = (record.name, record.levelno, str(record.msg)[:MAX_VALUE_LENGTH])
        seen = self._seen.get(kind)
        if seen is None:
            if len(self._seen) >= self._kinds:
                kind = (record.name, record.levelno, "other messages")
            seen = self._seen.setdefault(kind, _Seen(self._clock()))
        seen.count += 1
        return seen.count <= self._burst

    def summaries(self, *, is_last: bool = False) -> list[logging.LogRecord]:
        """One record per message that was suppressed in a period now over; resets their counts."""
        due = self._clock() - self._period_s
        # In order of first occurrence, so the oldest come first.
        ended = list(takewhile(lambda kind: is_last or self._seen[kind].since_s <= due, self._seen))
        found = []
        for kind in ended:
            cut = self._seen.pop(kind).count - self._burst
            if cut > 0:
                name, level, message = kind
                summary = logging.LogRecord(name, level, "", 0, message, None, None)
                setattr(summary, FIELDS, {"repeated": cut, "within_s": self._period_s})
                found.append(summary)
        return found


class _Seen:
    __slots__ = ("count", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.count = 0


class BoundedHandler(logging.Handler):
    """Passes records to `target` in its own thread; drops them if the queue is full."""

    def __init__(
        self,
        target: logging.Handler,
        *,
        repetition: RepeatLimiter | None = None,
        waiting: int = 10_000,
        tick_s: float = 1.0,
    ) -> None:
        super().__init__()
        self.dropped = 0
        self._target = target
        self._repetition = repetition or RepeatLimiter()
        self._tick_s = tick_s
        self._queue: queue.Queue[logging.LogRecord | None] = queue.Queue(waiting)
        self._is_closed = False
        self._thread = threading.Thread(target=self._write, name="accord-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_closed or not self._repetition.admit(record):
            return
        # Formatted now: arguments may have changed when the thread writes the record.
        try:
            record.msg, record.args = record.getMessage(), None
        except Exception:  # mismatched arguments, from any library
            record.args = None
        if record.exc_info:
            record.exc_text = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            record.exc_info = None
        self._put(record)

    def close(self) -> None:
        """Write queued records, with a short timeout: the reader may be stopped."""
        if not self._is_closed:
            self._is_closed = True
            self.acquire()
            for record in self._repetition.summaries(is_last=True):
                self._put(record)
            self.release()
            with suppress(queue.Full):
                self._queue.put(None, timeout=1.0)
            self._thread.join(timeout=2.0)
            if not self._thread.is_alive():
                self._target.close()
        super().close()

    def _put(self, record: logging.LogRecord) -> None:
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def _write(self) -> None:
        while True:
            with suppress(queue.Empty):
                record = self._queue.get(timeout=self._tick_s)
                if record is None:
                    return
                self._target.handle(record)
            self._write_summaries()

    def _write_summaries(self) -> None:
        self.acquire()
        summaries = self._repetition.summaries()
        dropped, self.dropped = self.dropped, 0
        self.release()
        for record in summaries:
            self._target.handle(record)
        if dropped:
            record = logging.LogRecord(__name__, logging.WARNING, "", 0, "log lines lost", (), None)
            setattr(record, FIELDS, {"count": dropped})
            self._target.handle(record)
