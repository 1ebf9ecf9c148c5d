"""Budget of unconfirmed events of a node's publishers, over all channels of a template.

The budget is a fair quota: stalled channels leave room for the others. When a channel has no room,
its publishers are paused, each after the event it has just published, so a hard limit above the
budget absorbs those; beyond it nothing is accepted. A channel with nothing in flight may send one
event in any case, up to the hard limit.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.bounded import FairQuota

MAX_EVENTS: Final = 65_536
MAX_BYTES: Final = 256 << 20
_MORE: Final = 2  # hard limit, for publishers that were not paused in time


class InFlightBudget:
    """Number and bytes of unconfirmed events by channel."""

    def __init__(self, most: int = MAX_EVENTS, most_bytes: int = MAX_BYTES) -> None:
        self._quota = FairQuota(most, most_bytes)

    @property
    def total(self) -> tuple[int, int]:
        return self._quota.count, self._quota.bytes

    def of(self, channel: str) -> tuple[int, int]:
        return self._quota.held(channel)

    def has_room(self, channel: str) -> bool:
        is_free = self.of(channel)[0] == 0 and not self.is_overfull()
        return is_free or self._quota.has_room(channel)

    def is_overfull(self) -> bool:
        shares = self._quota
        return shares.count >= _MORE * shares.most or shares.bytes >= _MORE * shares.most_bytes

    def set_usage(self, channel: str, count: int, size: int) -> None:
        """Set a channel's usage."""
        held, held_bytes = self.of(channel)
        if (count, size) != (held, held_bytes):
            self._quota.change(channel, count - held, size - held_bytes)
