"""Hello scheduler: ping rate per neighbour where the bandwidth for pings is limited.

While the allowance suffices, every neighbour is pinged at the full rate, that of `ping_us`.
Otherwise rates are weighted: a neighbour that routes in use pass, or that events are sent to, has
eight times the weight of another, and one of the nearer half twice that of the rest (near
neighbours are likely to be used next). Rates are proportional to weight, between the full rate and
a minimum at which a failure is detected before unacknowledged events time out. The minimum rate
holds even if the allowance is too small for it.

A neighbour that misses a ping is pinged at the full rate until it replies or is down (`liveness`),
so a rarely pinged one is not uncertain for longer than others.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final

# Approximate size of a ping and its pong with TCP and IP headers.
PING_BYTES: Final = 160
_CRITICAL: Final = 8
_NEAR: Final = 2
_PLAN_US: Final = 1_000_000
_ROUNDS: Final = 48  # bisection steps until the rates are exact enough
_S: Final = 1_000_000


class HelloScheduler:
    """Plans ping intervals; `bytes_per_s` is the allowance, 0 for unlimited."""

    def __init__(self, *, ping_us: int, misses: int, give_up_us: int, bytes_per_s: int) -> None:
        if bytes_per_s < 0:
            raise ValueError(f"bytes_per_s: expected 0 or more, got {bytes_per_s}")
        self.ping_us = ping_us
        self.longest_us = max(ping_us, give_up_us // (misses + 1))
        self.bytes_per_s = bytes_per_s
        self._plan_us = 0

    def is_due(self, now_us: int) -> bool:
        """Whether to plan again; never without an allowance."""
        return self.bytes_per_s > 0 and now_us >= self._plan_us

    def next_due_us(self) -> int | None:
        return self._plan_us if self.bytes_per_s else None

    def plan(self, latencies_us: Mapping[str, int], critical: Mapping[str, None], now_us: int) -> (
        dict[str, int]
    ):  # fmt: skip
        """Ping interval of each neighbour in `latencies_us`."""
        self._plan_us = now_us + _PLAN_US
        weights = _weights(latencies_us, critical)
        return intervals(
            weights,
            ping_us=self.ping_us,
            longest_us=self.longest_us,
            pings_per_s=self.bytes_per_s / PING_BYTES,
        )


def intervals(
    weights: Mapping[str, int], *, ping_us: int, longest_us: int, pings_per_s: float
) -> dict[str, int]:
    """Intervals by weight, within `pings_per_s` in total as far as the bounds allow."""
    most, least = _S / ping_us, _S / longest_us
    if len(weights) * most <= pings_per_s:
        return dict.fromkeys(weights, ping_us)
    if len(weights) * least >= pings_per_s:
        return dict.fromkeys(weights, longest_us)
    low, high = 0.0, most  # of the rate for a weight of 1
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        total = sum(min(max(middle * weight, least), most) for weight in weights.values())
        if total > pings_per_s:
            high = middle
        else:
            low = middle
    return {
        name: min(ceil(round(_S / min(max(low * weight, least), most), 3)), longest_us)
        for name, weight in weights.items()
    }


def _weights(latencies_us: Mapping[str, int], critical: Mapping[str, None]) -> dict[str, int]:
    ordered = sorted(latencies_us.values())
    near_us = ordered[(len(ordered) - 1) // 2] if ordered else 0
    return {
        name: (_CRITICAL if name in critical else 1) * (_NEAR if latency_us <= near_us else 1)
        for name, latency_us in latencies_us.items()
    }
