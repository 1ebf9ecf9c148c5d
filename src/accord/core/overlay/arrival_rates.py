"""Rates of arrivals at all nodes, from successive statuses of one of them."""

from __future__ import annotations

from collections import deque
from typing import Final

from accord.core.overlay.status import ArrivalStatus, NetStatus

WINDOW_S: Final = 10.0


class RecentRates:
    """Deliveries over the last `WINDOW_S` seconds, or since the first sample."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[tuple[str, str, str], ArrivalStatus]]] = deque()

    def sample(self, status: NetStatus, now_s: float) -> None:
        self._samples.append((now_s, {_key(each): each for each in status.arrivals}))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()

    def rate_hz(self, arrival: ArrivalStatus) -> float:
        spent_s = self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0
        return self.counts(arrival)[0] / spent_s if spent_s > 0 else 0.0

    def counts(self, arrival: ArrivalStatus) -> tuple[int, int]:
        """Events delivered, and how many of them late."""
        if not self._samples:
            return 0, 0
        before = self._samples[0][1].get(_key(arrival))
        if before is None or before.delivered > arrival.delivered:  # the node restarted
            return (arrival.delivered, arrival.late) if len(self._samples) > 1 else (0, 0)
        return arrival.delivered - before.delivered, arrival.late - before.late


def _key(arrival: ArrivalStatus) -> tuple[str, str, str]:
    return arrival.node, arrival.source, arrival.channel
