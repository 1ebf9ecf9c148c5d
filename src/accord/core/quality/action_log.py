"""What a node did to meet expectations, and what came of it: advice, and acts of the node itself.

Each entry has the property's value before, and the value observed since. It is open until the value
has been observed for a while after it was reached, or until the time for it has passed. A newer
entry for the same property of the same publisher supersedes an older one that is open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from accord.core.quality.properties import Value

MAX_ENTRIES: Final = 200
SETTLE_MS: Final = 10_000  # observed for so long once it is reached

WAITING: Final = "waiting"
REACHED: Final = "reached"
MISSED: Final = "missed"
SUPERSEDED: Final = "superseded"
ENDED: Final = "ended"  # the profile is gone


class QualityAction(msgspec.Struct, kw_only=True):
    """One advice, or one act of the node; `after` is the last value observed, at `after_ms`.

    `outcome` is waiting, reached (at `reached_ms`), missed (not within the time for it), superseded
    by a newer one, or ended with the profile.
    """

    number: int
    at_ms: int
    act: str
    publisher: str
    channel: str
    property: str
    target: Value
    is_release: bool = False
    before: Value | None = None
    after: Value | None = None
    after_ms: int = 0
    reached_ms: int = 0
    outcome: str = WAITING


# The value of a publisher's property on a channel now, and whether it reaches the target; None if
# there is no such profile any more.
Look = Callable[[QualityAction], tuple[Value, bool] | None]


class ActionLog:
    def __init__(self, timeout_ms: int, most: int = MAX_ENTRIES) -> None:
        self._timeout_ms = timeout_ms
        self._entries: deque[QualityAction] = deque(maxlen=most)
        self._open: dict[tuple[str, str, str], QualityAction] = {}
        self._last_number = 0
        self._most = most

    def __iter__(self) -> Iterator[QualityAction]:
        """The newest first."""
        return reversed(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(  # noqa: PLR0913 (a parameter per field)
        self,
        *,
        at_ms: int,
        act: str,
        publisher: str,
        channel: str,
        property_: str,
        target: Value,
        before: Value | None,
        is_release: bool = False,
    ) -> None:
        self._last_number += 1
        entry = QualityAction(
            number=self._last_number,
            at_ms=at_ms,
            act=act,
            publisher=publisher,
            channel=channel,
            property=property_,
            target=target,
            before=before,
            is_release=is_release,
        )
        key = publisher, channel, property_
        older = self._open.pop(key, None)
        if older is not None and older.outcome == WAITING:
            older.outcome = SUPERSEDED
        if len(self._open) >= self._most:
            del self._open[next(iter(self._open))]
        self._open[key] = entry
        self._entries.append(entry)

    def observe(self, look: Look, now_ms: int) -> bool:
        """Observe what open entries led to; whether something changed."""
        is_changed = False
        for key, entry in list(self._open.items()):
            before = entry.after, entry.outcome
            if self._observed(entry, look(entry), now_ms):
                del self._open[key]
            is_changed |= (entry.after, entry.outcome) != before
        return is_changed

    def _observed(
        self, entry: QualityAction, found: tuple[Value, bool] | None, now_ms: int
    ) -> bool:
        """Whether there is nothing more to observe."""
        if found is None:
            entry.outcome = ENDED if entry.outcome == WAITING else entry.outcome
            return True
        entry.after, is_reached = found
        entry.after_ms = now_ms
        if is_reached and entry.outcome != REACHED:
            entry.outcome, entry.reached_ms = REACHED, now_ms
        elif entry.outcome == WAITING and now_ms - entry.at_ms > self._timeout_ms:
            entry.outcome = MISSED
        until = (entry.reached_ms or entry.at_ms + self._timeout_ms) + SETTLE_MS
        return now_ms >= until
