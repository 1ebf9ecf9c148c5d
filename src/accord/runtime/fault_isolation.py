"""Fault isolation: confines an unexpected exception to one event, client or component.

Foreign input can fail in unforeseen ways. Work for others continues, and each kind of failure is
logged once: one that repeats with every message would otherwise fill the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accord.core.monitoring.counters import Counters
from accord.core.overlay.signalling import TransitEvent
from accord.runtime.logs import Log

FAILED: Final = "delivery failed"
_KINDS: Final = 1_000  # remembered as logged

Kind = tuple[str, type[BaseException], str, int]  # operation, exception type, file and line


class FaultIsolation:
    """`count` is the total number of failures."""

    def __init__(self, log: Log) -> None:
        self.count = 0
        self._log = log
        self._logged: dict[Kind, bool] = {}

    def failed(self, what: str, error: Exception, **fields: object) -> None:
        self.count += 1
        kind = (what, type(error), *_raised_at(error))
        if kind not in self._logged:
            while len(self._logged) >= _KINDS:
                del self._logged[next(iter(self._logged))]
            self._logged[kind] = True
            self._log.failure(what, error, **fields)

    def deliver(
        self, events: list[TransitEvent], hand: Callable[[TransitEvent], None], counters: Counters
    ) -> None:
        """Pass on each item once: all are removed first, and one that fails is shed."""
        taken = list(events)
        events.clear()
        for event in taken:
            try:
                hand(event)
            except Exception as error:  # fault isolation: the others continue
                counters.count_shed(FAILED, event.source)
                self.failed("event: delivery failed", error)

    def run(self, what: str, call: Callable[[], None]) -> None:
        """Call it, and log any exception."""
        try:
            call()
        except Exception as error:  # fault isolation: the caller continues
            self.failed(what, error)


def _raised_at(error: Exception) -> tuple[str, int]:
    """File and line where it was raised."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return ("", 0) if at is None else (at.tb_frame.f_code.co_filename, at.tb_lineno)
