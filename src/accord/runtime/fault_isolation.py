"""Failures that must not go further than what they are about: one event, one client, one part.

Whatever comes of somebody else can fail in ways that nobody thought of. What is due to others is
done all the same, and people are told once of each kind: a failure that repeats with every message
would otherwise fill the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accord.core.monitoring.counters import Counters
from accord.core.overlay.signalling import Carried
from accord.runtime.logs import Log

FAILED: Final = "could not be handed over"
_KINDS: Final = 1_000  # remembered

Kind = tuple[str, type[BaseException], str, int]  # what failed, how, and where


class FaultIsolation:
    """`count` is how many there were in all."""

    def __init__(self, log: Log) -> None:
        self.count = 0
        self._log = log
        self._told: dict[Kind, bool] = {}

    def failed(self, what: str, error: Exception, **fields: object) -> None:
        self.count += 1
        kind = (what, type(error), *_place(error))
        if kind not in self._told:
            while len(self._told) >= _KINDS:
                del self._told[next(iter(self._told))]
            self._told[kind] = True
            self._log.failure(what, error, **fields)

    def hand_over(
        self, events: list[Carried], hand: Callable[[Carried], None], counters: Counters
    ) -> None:
        """Each of them once: they are taken out first, and what fails is shed."""
        taken = list(events)
        events.clear()
        for event in taken:
            try:
                hand(event)
            except Exception as error:  # whatever it is, others go on
                counters.shed(FAILED, event.source)
                self.failed("an event could not be handed over", error)

    def run(self, what: str, call: Callable[[], None]) -> None:
        """Call it, whatever comes of that."""
        try:
            call()
        except Exception as error:  # whatever it is, others go on
            self.failed(what, error)


def _place(error: Exception) -> tuple[str, int]:
    """Where it was raised."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return ("", 0) if at is None else (at.tb_frame.f_code.co_filename, at.tb_lineno)
