"""Outcomes of all channels together: rates, the share that was in time, and latency.

Totals are exact whatever the number of channels: only channels that changed are read. Latency is
that of the busiest channels, whose histograms are sampled anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.monitoring.series import CounterRates, Counts

_NOTHING: Final[Counts] = (0,) * 8


class Delivery(Struct, frozen=True, kw_only=True):
    """Events per second over all channels, by outcome; `delivered_hz` includes late and shaped.

    `in_time` is the share delivered in time of those that were due; None if none were. Without a
    deadline whatever arrives is in time: `deadline_hz` says how many had one.
    """

    in_time: float | None = None
    delivered_hz: float = 0
    late_hz: float = 0
    shaped_hz: float = 0
    replaced_hz: float = 0
    expired_hz: float = 0
    shed_hz: float = 0
    refused_hz: float = 0
    deadline_hz: float = 0
    p50_ms: float | None = None
    p95_ms: float | None = None


class DeliveryTotals:
    """Sums of the counters of all channels, and their rates."""

    def __init__(self, *, now_ms: int) -> None:
        self._counted: dict[str, Counts] = {}
        self._sums = _NOTHING
        self._rates = CounterRates(now_ms, _NOTHING)

    def sample(self, changed: Iterable[ChannelCounts], *, now_ms: int) -> None:
        """Add what the channels counted since they were last given."""
        sums = self._sums
        for counts in changed:
            now = (
                counts.delivered,
                counts.late,
                counts.shaped,
                counts.replaced,
                counts.expired,
                counts.shed,
                counts.refused,
                counts.with_deadline,
            )
            before = self._counted.get(counts.channel, _NOTHING)
            if now != before:
                self._counted[counts.channel] = now
                pairs = zip(sums, now, before, strict=True)
                sums = tuple(total + after - earlier for total, after, earlier in pairs)
        self._sums = sums
        self._rates.add(now_ms, sums)

    def delivery(self, p50_ms: float | None, p95_ms: float | None) -> Delivery:
        delivered, late, _, _, expired, shed, refused, _ = self._rates.added()
        due = delivered + expired + shed + refused
        rates = self._rates.rates()
        return Delivery(
            in_time=round(max(delivered - late, 0) / due, 6) if due else None,
            delivered_hz=rates[0],
            late_hz=rates[1],
            shaped_hz=rates[2],
            replaced_hz=rates[3],
            expired_hz=rates[4],
            shed_hz=rates[5],
            refused_hz=rates[6],
            deadline_hz=rates[7] + rates[4],
            p50_ms=p50_ms,
            p95_ms=p95_ms,
        )
