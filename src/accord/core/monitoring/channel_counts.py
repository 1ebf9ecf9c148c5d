"""What happened on each channel, counted where it happens.

Whoever routes a channel's events keeps its `ChannelCounts` at hand and changes them in place. The
number of channels is bounded, because their names come from outside: those that come when the table
is full are counted together, as `other`.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.channels import is_internal
from accord.core.monitoring.bounded_counts import OTHER
from accord.core.monitoring.statistics import WAIT_BUCKETS

LIGHT_BYTES: Final = 8_192


class ChannelCounts:
    """Events since the start, for all destinations together; `delivered` includes late ones."""

    def __init__(self, channel: str) -> None:
        self.channel: str = channel
        self.is_internal: bool = is_internal(channel)
        self.light: int = -1  # 1 if its events are small, -1 while that is not known
        self.published: int = 0
        self.published_bytes: int = 0
        self.delivered: int = 0
        self.delivered_bytes: int = 0
        self.late: int = 0
        self.shaped: int = 0
        self.replaced: int = 0
        self.expired: int = 0
        self.shed: int = 0
        self.refused: int = 0
        # From an event's coming to its leaving for a destination, of those delivered.
        self.waited_ms: int = 0
        self.wait_counts: list[int] = [0] * WAIT_BUCKETS

    def is_light(self) -> bool:
        """Whether its events are small: those go first among equals.

        Learned from the first of them, and kept to, because a channel that changed would overtake
        itself.
        """
        if self.light < 0:
            if self.published == 0:
                return True
            self.light = 1 if self.published_bytes <= LIGHT_BYTES * self.published else 0
        return self.light > 0

    def is_delivered(self, count: int, size: int, wait_ms: int) -> None:
        self.delivered += count
        self.delivered_bytes += size
        if wait_ms > 0:
            self.waited(wait_ms, count)
        else:
            self.wait_counts[0] += count

    def is_lost(self, count: int, is_expired: bool) -> None:
        if is_expired:
            self.expired += count
        else:
            self.shed += count

    def waited(self, wait_ms: int, count: int = 1) -> None:
        """`count` events left for a destination `wait_ms` after they had come."""
        wait_ms = max(wait_ms, 0)  # wall clocks step back
        bucket = min(wait_ms.bit_length(), WAIT_BUCKETS - 1)
        self.wait_counts[bucket] += count
        self.waited_ms += wait_ms * count

    def activity(self) -> int:
        """Grows whenever anything happens."""
        return (
            self.published
            + self.delivered
            + self.replaced
            + self.expired
            + self.shed
            + self.refused
        )


class ChannelTable:
    """The counts of up to `limit` channels, and of all others together."""

    def __init__(self, limit: int = 10_000) -> None:
        self.limit: int = limit
        self.counts: dict[str, ChannelCounts] = {}
        self.other: ChannelCounts = ChannelCounts(OTHER)

    def get(self, channel: str) -> ChannelCounts:
        """To be kept and changed by whoever handles the channel."""
        counts = self.counts.get(channel)
        if counts is not None:
            return counts
        if len(self.counts) >= self.limit:
            return self.other
        counts = self.counts[channel] = ChannelCounts(channel)
        return counts
