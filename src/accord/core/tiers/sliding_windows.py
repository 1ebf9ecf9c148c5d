"""Sliding windows: both ends of a sequence of numbered events over one link.

On lossless links the numbers only determine what to retransmit after a link failure. On links that
lose or reorder, the receiver restores the order and nacks what has been missing for a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from accord.core.model.units import IMPORTANCES
from accord.core.tiers.messages import MAX_RANGES, Ranges
from accord.core.tiers.priority_lanes import PriorityLanes

WINDOW: Final = 1_024  # unacknowledged numbers
_RANGES: Final = MAX_RANGES

T = TypeVar("T")


class InboundWindow(Generic[T]):
    """Receiving end; all up to `through` has been taken out, `top` is the last number known sent.

    At most `most_bytes` wait, apart from the event that is next.
    """

    def __init__(self, through: int = 0, most_bytes: int = 1 << 62) -> None:
        self.through = through
        self.top = through
        self.bytes = 0  # of waiting items
        self._most_bytes = most_bytes
        self._items: dict[int, tuple[T, int]] = {}
        self._lacks_us = 0  # since when items are missing, or were nacked

    def put(self, number: int, item: T, size: int = 0) -> bool:
        """Add an item; False if it is a duplicate, too far ahead, or has no room now."""
        if not self.through < number <= self.through + WINDOW or number in self._items:
            return False
        self.top = max(self.top, number)
        if self.bytes + size > self._most_bytes and number != self.through + 1:
            return False
        self._items[number] = (item, size)
        self.bytes += size
        return True

    def on_last_sent(self, top: int) -> None:
        """Apply the last number the sender reports as sent."""
        self.top = max(self.top, min(top, self.through + WINDOW))

    def first(self) -> T | None:
        """The next item in order; None if it has not arrived."""
        found = self._items.get(self.through + 1)
        return None if found is None else found[0]

    def take(self) -> T:
        self.through += 1
        self._lacks_us = 0
        return self._pop(self.through)

    def skip_to(self, through: int) -> None:
        """Skip all numbers up to `through`: they will not arrive."""
        if through > self.through:
            self.through = through
            self.top = max(self.top, through)
            for number in [each for each in self._items if each <= through]:
                self._pop(number)

    def lacks(self) -> bool:
        return self.through + len(self._items) < self.top

    def missing(self, again_us: int, now_us: int) -> Ranges:
        """Ranges to nack now; none until they have been missing for `again_us`."""
        if not self.lacks():
            self._lacks_us = 0
            return ()
        if not self._lacks_us:
            self._lacks_us = now_us
        if now_us - self._lacks_us < again_us:
            return ()
        self._lacks_us = now_us
        return tuple(self._ranges())

    def ask_us(self, again_us: int) -> int | None:
        """Time of the next nack, if items are missing."""
        return self._lacks_us + again_us if self._lacks_us else None

    def __len__(self) -> int:
        return len(self._items)

    def check_invariants(self) -> None:
        assert self.through <= self.top
        assert len(self._items) <= WINDOW
        assert all(self.through < number <= self.top for number in self._items)
        assert self.bytes == sum(size for _, size in self._items.values())
        first = self._items.get(self.through + 1, (None, 0))[1]
        assert self.bytes <= self._most_bytes + first

    def _pop(self, number: int) -> T:
        item, size = self._items.pop(number)
        self.bytes -= size
        return item

    def _ranges(self) -> Iterator[tuple[int, int]]:
        count, first = 0, 0
        for number in range(self.through + 1, self.top + 2):
            is_missing = number <= self.top and number not in self._items
            if is_missing and not first:
                first = number
            elif first and not is_missing:
                yield first, number - 1
                first = 0
                count += 1
                if count >= _RANGES:
                    return


class OutboundWindow(Generic[T]):
    """Sending end; keeps items from `base` on until they are confirmed cumulatively.

    New items wait in priority lanes and get their number when first sent: most important first, in
    order within a channel.
    """

    def __init__(self) -> None:
        self.base = 1
        self.top = 0  # number of items ever put
        self.sent = 0  # last number sent to the current receiver
        self.bytes = 0
        self._last = 0  # last number assigned
        self._items: dict[int, tuple[T, int]] = {}
        self._again: dict[int, bool] = {}
        self._lanes = PriorityLanes()
        self._waiting: dict[int, tuple[T, int]] = {}  # without a number yet, by place

    def put(
        self,
        item: T,
        size: int,
        channel: str = "",
        importance: int = 0,
        *,
        is_droppable: bool = False,
    ) -> None:
        """Add an item; with `is_droppable`, it may be shed."""
        self.top += 1
        self._waiting[self.top] = (item, size)
        self._lanes.put(self.top, channel, importance, is_in_order=True, is_droppable=is_droppable)
        self.bytes += size

    def shed(self, below: int = IMPORTANCES) -> T | None:
        """Remove and return the least important sheddable item below an importance.

        Only items without a number are considered.
        """
        place = self._lanes.least(below)
        if place is None:
            return None
        self._lanes.remove(place)
        item, size = self._waiting.pop(place)
        self.bytes -= size
        return item

    def begin_anew(self, through: int) -> None:
        """Switch to another receiver, which has all up to `through`."""
        self.sent = min(max(through, self.base - 1), self._last)
        self._again.clear()

    def confirm(self, through: int) -> bool:
        """Remove all up to `through`; return whether that was anything."""
        before = self.base
        while self.base <= min(through, self._last):
            self.bytes -= self._items.pop(self.base)[1]
            self._again.pop(self.base, None)
            self.base += 1
        self.sent = max(self.sent, self.base - 1)
        return self.base > before

    def asked(self, missing: Ranges) -> None:
        for first, last in missing[:_RANGES]:
            for number in range(max(first, self.base), min(last, self.sent) + 1):
                self._again[number] = True

    def take(self, bytes_wanted: int, through: int) -> list[tuple[int, T]]:
        """Items to send next to a receiver that has all up to `through`."""
        taken: list[tuple[int, T]] = []
        size = 0
        while size < bytes_wanted:
            if self._again:
                number = next(iter(self._again))
                del self._again[number]
            elif self.has_more(through):
                number = self.sent = self.sent + 1
                if number > self._last:
                    self._last = number
                    self._items[number] = self._waiting.pop(self._lanes.take())
            else:
                break
            item, item_bytes = self._items[number]
            taken.append((number, item))
            size += item_bytes
        return taken

    def has_more(self, through: int) -> bool:
        is_open = self.sent < max(through, self.base - 1) + WINDOW
        return bool(self._again) or (is_open and (self.sent < self._last or bool(self._waiting)))

    def __len__(self) -> int:
        return len(self._items) + len(self._waiting)

    def check_invariants(self) -> None:
        assert len(self._items) == self._last - self.base + 1
        assert self.base - 1 <= self.sent <= self._last <= self.top
        assert len(self._waiting) == len(self._lanes)
        self._lanes.check_invariants()
        kept = (*self._items.values(), *self._waiting.values())
        assert self.bytes == sum(size for _, size in kept)
        assert all(self.base <= number <= self.sent for number in self._again)
