"""Room that several share: nobody may have more of it than is left for all the others.

So one that takes all it can get has half of the room at most, the next one a quarter, and there is
some for everybody. Nothing has to be known of how many there will be, and nothing is taken from
anybody who has it already.
"""

from __future__ import annotations


class FairQuota:
    """Room for `most` things that take `most_bytes` together; who has how much is by name."""

    def __init__(self, most: int, most_bytes: int = 1 << 62) -> None:
        self.most = most
        self.most_bytes = most_bytes
        self.count = 0
        self.bytes = 0
        self._held: dict[str, tuple[int, int]] = {}

    def has_room(self, who: str, size: int = 0) -> bool:
        """Whether `who` may have one more, of that size."""
        count, size_held = self.held(who)
        is_countable = count < self.most - self.count
        return is_countable and size_held + size <= self.most_bytes - self.bytes

    def take(self, who: str, size: int = 0) -> None:
        self.change(who, 1, size)

    def give_back(self, who: str, size: int = 0) -> None:
        """One that `who` had."""
        self.change(who, -1, -size)

    def held(self, who: str) -> tuple[int, int]:
        """How many things `who` has, and their size."""
        return self._held.get(who, (0, 0))

    def change(self, who: str, count: int, size: int) -> None:
        """`who` has so much more, or less."""
        self.count += count
        self.bytes += size
        held, held_bytes = self._held.pop(who, (0, 0))
        if held + count:
            self._held[who] = (held + count, held_bytes + size)

    def check_invariants(self) -> None:
        assert 0 <= self.count <= self.most
        assert 0 <= self.bytes <= self.most_bytes
        assert all(count > 0 <= size for count, size in self._held.values())
        assert self.count == sum(count for count, _ in self._held.values())
        assert self.bytes == sum(size for _, size in self._held.values())
