"""Re-evaluation of reservations after changes of advertisements or links.

Demand and paths are computed when a subscription is requested, and change later as publishers
advertise and leave and links come up and fail. Some time after a change all subscriptions are
re-evaluated in small batches; the delay combines changes and lets other nodes learn of them too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

AT_A_TIME: Final = 32
PAUSE_US: Final = 10_000

T = TypeVar("T")
Which = tuple[str, Hashable]  # client and key


class ReevaluationQueue(Generic[T]):
    """Queue of items to re-evaluate, filled with all items `settle_us` after a change."""

    def __init__(self, settle_us: int) -> None:
        self._settle_us = settle_us
        self._now_us = 0
        self._has_news = False
        self._due_us = -1  # below 0: nothing is pending
        self._left: deque[T] = deque()

    def changed(self) -> None:
        self._has_news = True

    def take(self, everyone: Callable[[], Iterable[T]], now_us: int) -> list[T]:
        """Return the next batch that is due."""
        self._now_us = now_us
        if self._due_us < 0 and self._has_news:
            self._due_us = now_us + self._settle_us
        if self._due_us < 0 or now_us < self._due_us:
            return []
        if not self._left:
            self._has_news = False
            self._left.extend(everyone())
        taken = [self._left.popleft() for _ in range(min(AT_A_TIME, len(self._left)))]
        self._due_us = now_us + PAUSE_US if self._left else -1
        return taken

    def next_due_us(self) -> int | None:
        if self._due_us >= 0:
            return self._due_us
        return self._now_us + self._settle_us if self._has_news else None
