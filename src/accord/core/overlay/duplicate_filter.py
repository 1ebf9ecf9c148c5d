"""Which copy of an event is the first: what several paths bring several times counts once.

For each source (and each time it was started: it counts from anew then) the highest number seen
and, as bits, which of the 65,536 up to it have been seen. What is further behind counts as seen: an
event that is so late has no use any more, and must not be delivered twice. Bits are kept in blocks
that come into being with the first number in them and go when they are behind, so a source of which
little comes costs little, and a jump ahead costs nothing.

Of too many sources the one that was silent longest is forgotten. If it speaks again it is new.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

WINDOW: Final = 65_536
MAX_SOURCES: Final = 2_048
_BLOCK_BITS: Final = 12
_BLOCK_MASK: Final = (1 << _BLOCK_BITS) - 1
_BLOCK_BYTES: Final = 1 << (_BLOCK_BITS - 3)

_Key = tuple[str, int]


class _Window:
    """What was seen of one source."""

    __slots__ = ("blocks", "newest")

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.blocks: dict[int, bytearray] = {}

    def is_new(self, number: int) -> bool:
        if number > self.newest:
            self.newest = number
        elif number <= self.newest - WINDOW:
            return False
        block = self.blocks.get(number >> _BLOCK_BITS)
        if block is None:
            block = self._begin(number >> _BLOCK_BITS)
        place = (number & _BLOCK_MASK) >> 3
        bit = 1 << (number & 7)
        seen = block[place]
        if seen & bit:
            return False
        block[place] = seen | bit
        return True

    def _begin(self, index: int) -> bytearray:
        behind = (self.newest - WINDOW) >> _BLOCK_BITS
        for old in list(self.blocks):
            if old < behind:
                del self.blocks[old]
        block = bytearray(_BLOCK_BYTES)
        self.blocks[index] = block
        return block


class Duplicates:
    """Of one node, for events of all others."""

    def __init__(self, most_sources: int = MAX_SOURCES) -> None:
        if most_sources < 1:
            raise ValueError(f"most_sources: expected at least 1, got {most_sources}")
        self.most_sources = most_sources
        self.forgotten = 0  # sources, because there were too many
        self._windows: OrderedDict[_Key, _Window] = OrderedDict()
        self._last: _Key = ("", -1)  # the one that was heard last is at the end already

    def is_new(self, source: str, incarnation: int, number: int) -> bool:
        """Whether this is the first copy; from now on it is not."""
        key = (source, incarnation)
        window = self._windows.get(key)
        if window is None:
            window = self._add(key, number)
        elif key != self._last:
            self._windows.move_to_end(key)
        self._last = key
        return window.is_new(number)

    def forget(self, source: str) -> None:
        """Nothing more will come of it, whenever it was started."""
        for key in list(self._windows):
            if key[0] == source:
                del self._windows[key]

    def __len__(self) -> int:
        return len(self._windows)

    def check_invariants(self) -> None:
        assert len(self._windows) <= self.most_sources
        for window in self._windows.values():
            assert len(window.blocks) <= WINDOW // (_BLOCK_MASK + 1) + 2
            assert all(index <= window.newest >> _BLOCK_BITS for index in window.blocks)

    def _add(self, key: _Key, number: int) -> _Window:
        while len(self._windows) >= self.most_sources:
            self._windows.popitem(last=False)
            self.forgotten += 1
        window = _Window(number)
        self._windows[key] = window
        return window
