"""Both ends of a flow of numbered events over one link.

Where links lose nothing, the numbers only say what has to be sent again after a link has failed.
Where they do, or let messages overtake each other, the receiver puts the flow in order and asks for
what it has missed for a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from accord.core.model.importance import IMPORTANCES
from accord.core.tiers.messages import MAX_RANGES, Ranges
from accord.core.tiers.priority_lanes import PriorityLanes

WINDOW: Final = 1_024  # numbers on their way
_RANGES: Final = MAX_RANGES

T = TypeVar("T")


class InboundWindow(Generic[T]):
    """`through`: all up to it has been taken out. `top`: so much was sent, as far as is known.

    No more than `most_bytes` wait, if that is given, and the one whose turn it is.
    """

    def __init__(self, through: int = 0, most_bytes: int = 1 << 62) -> None:
        self.through = through
        self.top = through
        self.bytes = 0  # of what waits
        self._most_bytes = most_bytes
        self._items: dict[int, tuple[T, int]] = {}
        self._lacks_us = 0  # since when something is missing, or was asked for

    def put(self, number: int, item: T, size: int = 0) -> bool:
        """False where it is there already, too far ahead, or has no room and must come again."""
        if not self.through < number <= self.through + WINDOW or number in self._items:
            return False
        self.top = max(self.top, number)
        if self.bytes + size > self._most_bytes and number != self.through + 1:
            return False
        self._items[number] = (item, size)
        self.bytes += size
        return True

    def hear(self, top: int) -> None:
        """The sender has sent so much."""
        self.top = max(self.top, min(top, self.through + WINDOW))

    def first(self) -> T | None:
        """Whose turn it is; None where that has not come."""
        found = self._items.get(self.through + 1)
        return None if found is None else found[0]

    def take(self) -> T:
        self.through += 1
        self._lacks_us = 0
        return self._pop(self.through)

    def skip_to(self, through: int) -> None:
        """Nothing up to there is to come any more."""
        if through > self.through:
            self.through = through
            self.top = max(self.top, through)
            for number in [each for each in self._items if each <= through]:
                self._pop(number)

    def lacks(self) -> bool:
        return self.through + len(self._items) < self.top

    def missing(self, again_us: int, now_us: int) -> Ranges:
        """What to ask for now: nothing before it has been missing for `again_us`."""
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
        """When to ask next, if something is missing."""
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
    """Kept from `base` on, until all of it up to some number is confirmed.

    What was put waits in lanes, and gets its number when it is sent for the first time: the more
    important first, events of one channel in their order.
    """

    def __init__(self) -> None:
        self.base = 1
        self.top = 0  # how many were put, ever
        self.sent = 0  # the last number that was sent, to whom it goes now
        self.bytes = 0
        self._last = 0  # number that was given
        self._items: dict[int, tuple[T, int]] = {}
        self._again: dict[int, bool] = {}
        self._lanes = PriorityLanes()
        self._waiting: dict[int, tuple[T, int]] = {}  # without a number, by place

    def put(
        self, item: T, size: int, channel: str = "", importance: int = 0, *, is_loose: bool = False
    ) -> None:
        """`is_loose`: it may be shed, if there is no room."""
        self.top += 1
        self._waiting[self.top] = (item, size)
        self._lanes.put(self.top, channel, importance, is_in_order=True, is_loose=is_loose)
        self.bytes += size

    def shed(self, below: int = IMPORTANCES) -> T | None:
        """The least important that may be and has no number yet, if it is below that."""
        place = self._lanes.least(below)
        if place is None:
            return None
        self._lanes.remove(place)
        item, size = self._waiting.pop(place)
        self.bytes -= size
        return item

    def begin_anew(self, through: int) -> None:
        """It goes to somebody else now, who has all up to `through`."""
        self.sent = min(max(through, self.base - 1), self._last)
        self._again.clear()

    def confirm(self, through: int) -> bool:
        """All up to there is done with; gives whether that is news."""
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
        """What to send next to somebody who has all up to `through`."""
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
        """Whether there is something to send."""
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
