"""Requirements, times, shares and recent rates of the overlay as text.

Recent delivery rates and shares in time come from successive samples.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from accord.cli.quantities import latency_text
from accord.cli.table import NOTHING
from accord.core.overlay.status import ArrivalStatus, NetStatus

LOCAL: Final = "local"
ROUTED: Final = "routed"


def required_text(
    max_delay_us: float, paths: int, resiliency: float, template: str = ROUTED
) -> str:
    """The requirements of a channel or a flow."""
    if template == LOCAL:
        return "stays on its node"
    parts = []
    if max_delay_us:
        parts.append(f"within {time_text(max_delay_us)}")
    if paths > 1:
        parts.append(f"{paths} paths")
    if resiliency:
        parts.append(f"resiliency {resiliency:g}")
    return ", ".join(parts) or ("any route" if template == ROUTED else NOTHING)


def time_text(time_us: float) -> str:
    """At most three significant digits."""
    text = latency_text(time_us / 1e6) if time_us > 0 else "0 ms"
    value, _, unit = text.partition(" ")
    return f"{value.rstrip('0').rstrip('.')} {unit}" if "." in value else text


def share_text(part: int, whole: int) -> str:
    """In percent; 100 % only if nothing is missing."""
    if not whole:
        return NOTHING
    percent = 100 * part / whole
    if part < whole:
        percent = min(percent, 99.99)
    return f"{percent:.2f}".rstrip("0").rstrip(".") + " %"


def path_text(path: tuple[str, ...]) -> str:
    return " → ".join(path)


WINDOW_S: Final = 10.0

_Key = tuple[str, str, str]


class RecentRates:
    """Over the last `WINDOW_S` seconds, or since the first sample."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[_Key, ArrivalStatus]]] = deque()

    def sample(self, status: NetStatus, now_s: float) -> None:
        self._samples.append((now_s, {_key(each): each for each in status.arrivals}))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()

    def rate_hz(self, arrival: ArrivalStatus) -> float:
        took_s = self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0
        return self.counts(arrival)[0] / took_s if took_s > 0 else 0.0

    def counts(self, arrival: ArrivalStatus) -> tuple[int, int]:
        """Events delivered, and how many of them late."""
        if not self._samples:
            return 0, 0
        before = self._samples[0][1].get(_key(arrival))
        if before is None or before.delivered > arrival.delivered:  # the node restarted
            return (arrival.delivered, arrival.late) if len(self._samples) > 1 else (0, 0)
        return arrival.delivered - before.delivered, arrival.late - before.late


def _key(arrival: ArrivalStatus) -> _Key:
    return arrival.node, arrival.source, arrival.channel
