"""Duplicate filter: lets the first copy of an event pass when several paths deliver copies.

For each source and incarnation (numbering restarts with it) the filter holds the highest sequence
number seen and a bitmap of the 65,536 numbers up to it, like an anti-replay window. Numbers further
behind count as seen: such a late event is useless and must not be delivered twice. The bitmap is
kept in blocks that are allocated with the first number in them and freed once they are behind the
window, so a source with few events costs little, and a jump ahead costs nothing.

Beyond the limit, the least recently active source is evicted; if it sends again it counts as new.
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
    """Sequence numbers seen from one source."""

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
            block = self._add_block(number >> _BLOCK_BITS)
        place = (number & _BLOCK_MASK) >> 3
        bit = 1 << (number & 7)
        seen = block[place]
        if seen & bit:
            return False
        block[place] = seen | bit
        return True

    def _add_block(self, index: int) -> bytearray:
        behind = (self.newest - WINDOW) >> _BLOCK_BITS
        for old in list(self.blocks):
            if old < behind:
                del self.blocks[old]
        block = bytearray(_BLOCK_BYTES)
        self.blocks[index] = block
        return block


class DuplicateFilter:
    """Duplicate filter of one node, for events of all other nodes."""

    def __init__(self, most_sources: int = MAX_SOURCES) -> None:
        if most_sources < 1:
            raise ValueError(f"most_sources: expected at least 1, got {most_sources}")
        self.max_sources = most_sources
        self.evicted = 0  # evicted sources
        self._windows: OrderedDict[_Key, _Window] = OrderedDict()
        self._last: _Key = ("", -1)  # most recent source: already at the end

    def is_new(self, source: str, incarnation: int, number: int) -> bool:
        """Whether this is the first copy; records it as seen."""
        key = (source, incarnation)
        window = self._windows.get(key)
        if window is None:
            window = self._add(key, number)
        elif key != self._last:
            self._windows.move_to_end(key)
        self._last = key
        return window.is_new(number)

    def remove(self, source: str) -> None:
        """Remove all incarnations of a source."""
        for key in list(self._windows):
            if key[0] == source:
                del self._windows[key]

    def __len__(self) -> int:
        return len(self._windows)

    def check_invariants(self) -> None:
        assert len(self._windows) <= self.max_sources
        for window in self._windows.values():
            assert len(window.blocks) <= WINDOW // (_BLOCK_MASK + 1) + 2
            assert all(index <= window.newest >> _BLOCK_BITS for index in window.blocks)

    def _add(self, key: _Key, number: int) -> _Window:
        while len(self._windows) >= self.max_sources:
            self._windows.popitem(last=False)
            self.evicted += 1
        window = _Window(number)
        self._windows[key] = window
        return window
