"""Measures what publishers send: rate, latency, reliability and order.

Only channels with profiles are measured. Events are counted per profile, and outcomes for local
clients per channel; channels with activity are sampled once a second. Publishers declare a rate; a
measured rate that differs from it for a while replaces it.
"""

from __future__ import annotations

from typing import Final

from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.quality.client_quality import ClientProfile
from accord.core.quality.measurements import Measurement

RATE_US: Final = 3_000_000  # minimum duration, and
RATE_EVENTS: Final = 4  # minimum number of events, or
RATE_LONG_US: Final = 30_000_000  # this duration alone
IDLE_MS: Final = 0.0
ORDERED: Final = "publisher"  # each publisher's events arrive in order
SAME_FOR_ALL: Final = "total"
UNORDERED: Final = "none"  # events take several paths
_SMOOTHED: Final = 0.5
_OFF: Final = 0.2  # share of the declared rate


class RateMeter:
    """Publishing rate of one publisher on one channel."""

    def __init__(self, now_us: int) -> None:
        self.count = 0
        self.since_us = now_us
        self.was_used = False
        self.users: dict[ClientProfile, bool] = {}  # the profiles it is measured for

    def restart(self, now_us: int) -> None:
        """Starts over after a change of the declared rate, which takes time to become true."""
        self.count = 0
        self.since_us = now_us

    def rate_hz(self, now_us: int) -> float | None:
        """Returns the rate and starts over once enough was measured; None until then."""
        elapsed_us = now_us - self.since_us
        self.was_used = self.was_used or self.count > 0
        is_enough = self.count >= RATE_EVENTS and elapsed_us >= RATE_US
        if not self.was_used or not (is_enough or elapsed_us >= RATE_LONG_US):
            return None
        # The interval starts before the first event, not with it.
        rate = self.count * 1e6 / elapsed_us
        self.restart(now_us)
        return rate


def differs(declared: float, measured: float) -> bool:
    return abs(measured - declared) > _OFF * declared


class ChannelMeter:
    """Latency, reliability and order of one channel, towards the clients of this node."""

    def __init__(self, channel: str, counts: ChannelCounts) -> None:
        self.channel = channel
        self.counts = counts
        self.latency_ms = IDLE_MS
        self.reliability = 100.0
        self.order = ORDERED
        self._has_measured = False
        self._delivered = counts.delivered
        self._waited_ms = counts.waited_ms
        self._dropped = _dropped(counts)

    def initial(self, order: str, best_reliability: float | None) -> list[Measurement]:
        """Initial values, before anything is published."""
        self.order = order
        return [*self._measurements(best_reliability), self._measurement("order", order)]

    def sample(self, order: str, best_reliability: float | None) -> list[Measurement]:
        """Measurements since the last sample; empty without activity."""
        found = self._sample_events(best_reliability)
        if order != self.order:  # the channel was redefined
            self.order = order
            found.append(self._measurement("order", order))
        return found

    def _sample_events(self, best_reliability: float | None) -> list[Measurement]:
        counts = self.counts
        delivered = counts.delivered - self._delivered
        lost = _dropped(counts) - self._dropped
        waited_ms = counts.waited_ms - self._waited_ms
        self._delivered, self._waited_ms = counts.delivered, counts.waited_ms
        self._dropped += lost
        if delivered + lost <= 0:
            return []
        share = _SMOOTHED if self._has_measured else 1.0
        self._has_measured = True
        if delivered:
            self.latency_ms += share * (waited_ms / delivered - self.latency_ms)
        self.reliability += share * (100.0 * delivered / (delivered + lost) - self.reliability)
        return self._measurements(best_reliability)

    def _measurements(self, best_reliability: float | None) -> list[Measurement]:
        # Queued events could be sent first.
        latency_ms = self.latency_ms
        return [
            self._measurement("latency", latency_ms, min(latency_ms, 1.0)),
            self._measurement("reliability", self.reliability, best_reliability),
        ]

    def _measurement(self, name: str, value: float | str, best: float | None = None) -> Measurement:
        return Measurement(channel=self.channel, property=name, value=value, best=best)


def _dropped(counts: ChannelCounts) -> int:
    return counts.shed + counts.expired + counts.refused
