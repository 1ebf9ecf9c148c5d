"""Counters of each channel, changed in place by the code that routes its events.

The number of channels is bounded, because their names are external input: channels that appear when
the table is full are counted together as `other`.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.channels import is_internal
from accord.core.monitoring.counters import OTHER
from accord.core.monitoring.statistics import WAIT_BUCKETS

LIGHT_BYTES: Final = 8_192


class ChannelCounts:
    """Events since the start, over all destinations; `delivered` includes late ones."""

    def __init__(self, channel: str) -> None:
        self.channel: str = channel
        self.is_internal: bool = is_internal(channel)
        self.light: int = -1  # 1 if its events are small, 0 if not, -1 while unknown
        self.published: int = 0
        self.published_bytes: int = 0
        self.delivered: int = 0
        self.delivered_bytes: int = 0
        self.late: int = 0
        self.with_deadline: int = 0  # of those delivered
        self.shaped: int = 0
        self.replaced: int = 0
        self.expired: int = 0
        self.shed: int = 0
        self.refused: int = 0
        # Time from receipt to departure for a destination, of delivered events.
        self.waited_ms: int = 0
        self.wait_counts: list[int] = [0] * WAIT_BUCKETS

    def is_light(self) -> bool:
        """Check whether its events are small: those go first among equals.

        This is learned from the first events and never changes, because later events of a channel
        could otherwise overtake earlier ones.
        """
        if self.light < 0:
            if self.published == 0:
                return True
            self.light = 1 if self.published_bytes <= LIGHT_BYTES * self.published else 0
        return self.light > 0

    def count_delivered(self, count: int, size: int, wait_ms: int) -> None:
        self.delivered += count
        self.delivered_bytes += size
        if wait_ms > 0:
            self.count_wait(wait_ms, count)
        else:
            self.wait_counts[0] += count

    def count_dropped(self, count: int, is_expired: bool) -> None:
        if is_expired:
            self.expired += count
        else:
            self.shed += count

    def count_wait(self, wait_ms: int, count: int = 1) -> None:
        """Count `count` events that left for a destination `wait_ms` after receipt."""
        wait_ms = max(wait_ms, 0)  # wall clocks step back
        bucket = min(wait_ms.bit_length(), WAIT_BUCKETS - 1)
        self.wait_counts[bucket] += count
        self.waited_ms += wait_ms * count

    def activity(self) -> int:
        """Return a number that grows with every event counted."""
        return (
            self.published
            + self.delivered
            + self.replaced
            + self.expired
            + self.shed
            + self.refused
        )


class ChannelTable:
    """Counters of up to `limit` channels, and of all others together."""

    def __init__(self, limit: int = 10_000) -> None:
        self.limit: int = limit
        self.counts: dict[str, ChannelCounts] = {}
        self.other: ChannelCounts = ChannelCounts(OTHER)

    def get(self, channel: str) -> ChannelCounts:
        """Return the counters of `channel`, for its router to keep and change."""
        counts = self.counts.get(channel)
        if counts is not None:
            return counts
        if len(self.counts) >= self.limit:
            return self.other
        counts = self.counts[channel] = ChannelCounts(channel)
        return counts
