"""End-to-end latency of each channel's events, from publication to arrival.

An event belongs to the period in which it arrived, so that events in transit during a change count
as its consequence. After a change, the violation lasts until the last late event was published,
provided that none is late for a while after it: later ones have other causes, such as a busy
machine, and are only counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from accord.apps.five_cities.cities import CityChannel

QUIET_S: Final = 0.5


@dataclass(frozen=True)
class PhaseMeasurement:
    """Measurements of a channel between two moments.

    `violated_s` is how long after the beginning events were late, 0 if none was; `gap_s` is the
    longest time without any delivery.
    """

    delivered: int
    late: int
    violated_s: float
    gap_s: float
    median_s: float
    longest_s: float


class ChannelLatencies:
    """Latencies of one channel; times are those of one clock, in seconds."""

    def __init__(self, channel: CityChannel) -> None:
        self.channel = channel
        self.duplicates = 0
        self._published_s: list[float] = []
        self._arrived_s: dict[int, float] = {}  # by number, in order of arrival

    @property
    def published(self) -> int:
        return len(self._published_s)

    @property
    def delivered(self) -> int:
        return len(self._arrived_s)

    @property
    def lost(self) -> int:
        return self.published - self.delivered

    @property
    def late(self) -> int:
        return sum(map(self._is_late, self._arrived_s))

    def publish(self, now_s: float) -> int:
        """Record a publication; returns the number of the event."""
        self._published_s.append(now_s)
        return len(self._published_s) - 1

    def receive(self, number: int, now_s: float) -> None:
        assert 0 <= number < len(self._published_s)
        if number in self._arrived_s:
            self.duplicates += 1
        else:
            self._arrived_s[number] = now_s

    def measure(self, from_s: float, until_s: float) -> PhaseMeasurement:
        came = [number for number, at_s in self._arrived_s.items() if from_s <= at_s < until_s]
        late = [number for number in came if self._is_late(number)]
        took_s = sorted(map(self._took_s, came))
        before_s = max((at_s for at_s in self._arrived_s.values() if at_s < from_s), default=None)
        moments_s = [] if before_s is None else [before_s]
        moments_s += [self._arrived_s[number] for number in came]
        return PhaseMeasurement(
            delivered=len(came),
            late=len(late),
            violated_s=self._violated_s(late, from_s),
            gap_s=max((after - before for before, after in pairwise(moments_s)), default=0.0),
            median_s=took_s[len(took_s) // 2] if took_s else 0.0,
            longest_s=took_s[-1] if took_s else 0.0,
        )

    def _violated_s(self, late: list[int], from_s: float) -> float:
        until_s = from_s
        for number in sorted(late):
            at_s = self._published_s[number]
            if at_s > until_s + QUIET_S:
                break
            until_s = max(until_s, at_s)
        return until_s - from_s

    def _took_s(self, number: int) -> float:
        return self._arrived_s[number] - self._published_s[number]

    def _is_late(self, number: int) -> bool:
        return self._took_s(number) * 1_000 > self.channel.max_delay_ms
