"""Usage reports to publishers: the latest usage of each profile, rate-limited."""

from __future__ import annotations

from accord.core.model.units import NEVER_US
from accord.core.quality.messages import Notice, UsageChanged
from accord.core.quality.reactions import ProfileRef

Usage = tuple[int, float]  # number of expectations, and their total utility

_NONE: Usage = (0, 0.0)


class UsageReports:
    def __init__(self, every_us: int) -> None:
        self.due_us = NEVER_US
        self._every_us = every_us
        self._reported: dict[str, Usage] = {}  # by source; without unused ones
        self._changed: dict[str, tuple[ProfileRef, Usage]] = {}

    def update(self, subject: ProfileRef, usage: Usage, now_us: int) -> None:
        self._changed[subject.source] = subject, usage
        self.due_us = min(self.due_us, now_us + self._every_us)

    def remove(self, source: str) -> None:
        self._reported.pop(source, None)
        self._changed.pop(source, None)

    def take(self, now_us: int) -> list[Notice]:
        """Returns the reports due now."""
        if now_us < self.due_us:
            return []
        notices: list[Notice] = []
        for source, (subject, usage) in self._changed.items():
            if self._reported.pop(source, _NONE) != usage:
                notices.append(UsageChanged(subject.publisher, subject.channel, *usage))
            if usage != _NONE:
                self._reported[source] = usage
        self._changed.clear()
        self.due_us = NEVER_US
        return notices

    def check_invariants(self) -> None:
        assert bool(self._changed) <= (self.due_us < NEVER_US)
        assert _NONE not in self._reported.values()
