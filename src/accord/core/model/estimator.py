"""Rates of events: an estimate that follows steps within seconds, and a bound seldom exceeded.

The estimate is the mean over the longest recent time in which the rate did not change. That time is
found backwards from now, in spans that get longer with their age: it ends where a span's rate
differs from that of all later ones by more than events at random (a Poisson process) would, and it
never begins before the first event. So young traffic is not divided by time in which there was
none, a steady rate is known within a few percent, and a step is followed after SETTLE_MS.

The bound adds twice the deviation of such a count, and one event; it is also no lower than the mean
of the last half minute, as a pause between bursts is no end. It rises with a step within seconds,
and falls half a minute later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import sqrt
from typing import Final

from msgspec import Struct

HORIZON_MS: Final = 300_000
SETTLE_MS: Final = 3_000  # time that an estimate is from at least, if there was any
BURST_MS: Final = 30_000  # time of the mean that the bound is no lower than
_LEAST_MS: Final = 1_000  # time that a rate is over
_GROWTH: Final = 6  # spans are merged up to their age, divided by it
_UNLIKELY: Final = 3**2  # square of the deviations of a difference that is a step
MAX_SPANS: Final = 120
_FEW: Final = 5  # too few to tell
_SURE: Final = 2  # deviations of the bound


class Rate(Struct, frozen=True):
    """Per second."""

    hz: float
    bytes_per_s: float
    bound_hz: float


SILENT: Final = Rate(0.0, 0.0, 0.0)


class _Span:
    """What came from `from_ms` up to `until_ms`."""

    __slots__ = ("bytes", "events", "from_ms", "until_ms")

    def __init__(self, from_ms: int, until_ms: int, events: int, size: int) -> None:
        self.from_ms = from_ms
        self.until_ms = until_ms
        self.events = events
        self.bytes = size


class RateEstimator:
    """Events and bytes of the last minutes, in MAX_SPANS at most; times never go back."""

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: list[_Span] = []  # oldest first, with gaps in which nothing came

    def add(self, from_ms: int, until_ms: int, events: int, size: int) -> None:
        """Events came in this time, which is later than all before; the shorter the better."""
        self._spans.append(_Span(from_ms, until_ms, events, size))
        if len(self._spans) > MAX_SPANS:
            self._merge(until_ms)

    def rate(self, now_ms: int) -> Rate:
        spans = list(self._backwards(now_ms))
        if not any(events for _, events, _ in spans):
            return SILENT
        events = size = spent_ms = 0
        for span_ms, span_events, span_bytes in spans:
            if spent_ms >= SETTLE_MS and _has_stepped(events, spent_ms, span_events, span_ms):
                break
            events += span_events
            size += span_bytes
            spent_ms += span_ms
        seconds = max(spent_ms, _LEAST_MS) / 1_000
        bound = (events + 1 + _SURE * sqrt(events + 1)) / seconds
        return Rate(events / seconds, size / seconds, max(bound, _mean_hz(spans, BURST_MS)))

    def latest_hz(self, now_ms: int) -> float:
        """Events per second of the last seconds, which is quick to tell."""
        return _mean_hz(self._backwards(now_ms), SETTLE_MS)

    def check_invariants(self) -> None:
        for before, after in zip(self._spans, self._spans[1:], strict=False):
            assert before.from_ms < before.until_ms <= after.from_ms
        assert len(self._spans) <= MAX_SPANS

    def _backwards(self, now_ms: int) -> Iterator[tuple[int, int, int]]:
        """Duration, events and bytes of the spans and gaps, latest first."""
        until_ms = now_ms
        for span in reversed(self._spans):
            if span.until_ms <= now_ms - HORIZON_MS:
                return
            if span.until_ms < until_ms:
                yield until_ms - span.until_ms, 0, 0
                until_ms = span.until_ms
            yield max(until_ms - span.from_ms, 0), span.events, span.bytes
            until_ms = min(until_ms, span.from_ms)

    def _merge(self, now_ms: int) -> None:
        """Merge neighbours that are old enough to be one span, gaps included."""
        kept: list[_Span] = []
        for span in self._spans:
            if span.until_ms <= now_ms - HORIZON_MS:
                continue
            before = kept[-1] if kept else None
            longest_ms = (now_ms - span.until_ms) // _GROWTH
            if before is not None and span.until_ms - before.from_ms <= longest_ms:
                before.until_ms = span.until_ms
                before.events += span.events
                before.bytes += span.bytes
            else:
                kept.append(span)
        self._spans = kept[-MAX_SPANS:]


def _has_stepped(events: int, spent_ms: int, older: int, older_ms: int) -> bool:
    """Whether an older span had another rate than the time since: a test of Poisson counts."""
    if not older_ms or max(events, older) < _FEW:
        return False
    difference = events * older_ms - older * spent_ms
    return difference * difference > _UNLIKELY * (events + older + 1) * spent_ms * older_ms


def _mean_hz(spans: Iterable[tuple[int, int, int]], most_ms: int) -> float:
    events = spent_ms = 0
    for span_ms, span_events, _ in spans:
        if spent_ms >= most_ms:
            break
        events += span_events
        spent_ms += span_ms
    return events * 1_000 / max(spent_ms, _LEAST_MS)
