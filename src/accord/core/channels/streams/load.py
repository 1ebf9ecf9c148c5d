"""What the publishers of a node have on its way, on all channels of a template together.

It is shared: channels that stand still leave room for the rest. Where a channel has none, those who
publish to it are held back, each behind the event that it has just published. So some more is
taken, up to a limit; beyond it nothing is.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.shares import Shares

ENOUGH: Final = 65_536
ENOUGH_BYTES: Final = 256 << 20
_MORE: Final = 2  # times as much is taken of those that could not be held back in time


class Load(Shares):
    """By channel: how many events somebody may lack, and their size."""

    def __init__(self, most: int = ENOUGH, most_bytes: int = ENOUGH_BYTES) -> None:
        super().__init__(most, most_bytes)

    def is_overfull(self) -> bool:
        return self.count >= _MORE * self.most or self.bytes >= _MORE * self.most_bytes

    def settle(self, channel: str, count: int, size: int) -> None:
        """So much it has now, whatever it had."""
        held, held_bytes = self.held(channel)
        if (count, size) != (held, held_bytes):
            self.change(channel, count - held, size - held_bytes)
