"""What the publishers of a node have on its way, on all channels of a template together.

It is shared: channels that stand still leave room for the rest. Where a channel has none, those who
publish to it are held back, each behind the event that it has just published. So some more is
taken, up to a limit; beyond it nothing is. A channel that has nothing on its way may have one event
in any case, up to that limit.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.fair_quota import FairQuota

ENOUGH: Final = 65_536
ENOUGH_BYTES: Final = 256 << 20
_MORE: Final = 2  # times as much is taken of those that could not be held back in time


class InFlightBudget:
    """By channel: how many events somebody may lack, and their size."""

    def __init__(self, most: int = ENOUGH, most_bytes: int = ENOUGH_BYTES) -> None:
        self._shares = FairQuota(most, most_bytes)

    @property
    def total(self) -> tuple[int, int]:
        return self._shares.count, self._shares.bytes

    def of(self, channel: str) -> tuple[int, int]:
        return self._shares.held(channel)

    def has_room(self, channel: str) -> bool:
        is_free = self.of(channel)[0] == 0 and not self.is_overfull()
        return is_free or self._shares.has_room(channel)

    def is_overfull(self) -> bool:
        shares = self._shares
        return shares.count >= _MORE * shares.most or shares.bytes >= _MORE * shares.most_bytes

    def settle(self, channel: str, count: int, size: int) -> None:
        """So much it has now, whatever it had."""
        held, held_bytes = self.of(channel)
        if (count, size) != (held, held_bytes):
            self._shares.change(channel, count - held, size - held_bytes)
