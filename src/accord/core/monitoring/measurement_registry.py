"""Registry of measurements of the running system, used by components that decide by them.

A value is identified by kind, subject and name: `rate_hz` of the `channel` `uav/imagery`. The
newest value counts; values that are not renewed expire. The registry is local: each node has its
own measurements.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import isfinite
from typing import Final

import msgspec
from msgspec import Struct

from accord.core.model.channels import filter_selects

# Names of values that are decided by.
BOUND: Final = "rate_bound_hz"  # seldom exceeded
FAILURE: Final = "failure_probability"
DELIVERED: Final = "delivered_hz"  # of a publisher's events on a channel, at all their receivers
IN_TIME: Final = "in_time"  # share of them

LIMIT: Final = 50_000
EXPIRE_AFTER_MS: Final = 600_000

Key = tuple[str, str, str]
MeasuredLookup = Callable[[str, str, str], float | None]
"""Values by kind, subject and name: `MeasurementRegistry.get` at some time."""


class MeasuredValue(Struct, frozen=True, kw_only=True):
    """A value with its time of measurement."""

    kind: str  # channel, predicate, publisher, node, link
    subject: str
    name: str  # rate_hz, bytes_per_s, selectivity, availability, …
    value: float
    at_ms: int


def subject_of(*parts: str) -> str:
    """Return a subject as text: a single name, or several as a JSON list."""
    return parts[0] if len(parts) == 1 else msgspec.json.encode(parts).decode()


def parts_of(subject: str) -> list[str]:
    """Return the parts of a subject that has several."""
    return msgspec.json.decode(subject, type=list[str])


class MeasurementRegistry:
    """Values up to `limit`; beyond it, the least recently updated is evicted."""

    def __init__(self, limit: int = LIMIT, *, expire_after_ms: int = EXPIRE_AFTER_MS) -> None:
        if limit < 1:
            raise ValueError(f"expected room for at least one value, got {limit}")
        self._limit = limit
        self._expire_after_ms = expire_after_ms
        self._known: OrderedDict[Key, MeasuredValue] = OrderedDict()

    def put(self, kind: str, subject: str, name: str, value: float, *, at_ms: int) -> None:
        """Store a measurement; ignores values that are outdated or not finite."""
        key = kind, subject, name
        before = self._known.get(key)
        if not isfinite(value) or (before is not None and before.at_ms > at_ms):
            return
        if before is None and len(self._known) >= self._limit:
            self._known.popitem(last=False)
        known = MeasuredValue(kind=kind, subject=subject, name=name, value=value, at_ms=at_ms)
        self._known[key] = known
        self._known.move_to_end(key)

    def get(self, kind: str, subject: str, name: str, *, now_ms: int) -> float | None:
        """Return the newest value, unless it has expired."""
        known = self._known.get((kind, subject, name))
        return None if known is None or self._is_stale(known, now_ms) else known.value

    def select(self, kind: str, subject: str | None = None, *, now_ms: int) -> list[MeasuredValue]:
        """Return all values of a kind, or only of subjects that a channel filter selects."""
        return [
            known
            for known in self._known.values()
            if known.kind == kind
            and not self._is_stale(known, now_ms)
            and (subject is None or filter_selects(subject, known.subject))
        ]

    def expire(self, *, now_ms: int) -> int:
        """Remove expired values; returns their number."""
        stale = [key for key, known in self._known.items() if self._is_stale(known, now_ms)]
        for key in stale:
            del self._known[key]
        return len(stale)

    def __len__(self) -> int:
        return len(self._known)

    def _is_stale(self, known: MeasuredValue, now_ms: int) -> bool:
        return known.at_ms < now_ms - self._expire_after_ms
