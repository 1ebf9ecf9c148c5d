"""Fair quota of a shared pool: no user may hold more of it than is left for all others.

So a greedy user gets at most half of the pool, the next one a quarter, and some is left for
everyone. The number of users need not be known, and nothing is revoked.
"""

from __future__ import annotations


class FairQuota:
    """Pool of `most` items of `most_bytes` together, with usage by name."""

    def __init__(self, most: int, most_bytes: int = 1 << 62) -> None:
        self.most = most
        self.most_bytes = most_bytes
        self.count = 0
        self.bytes = 0
        self._held: dict[str, tuple[int, int]] = {}

    def has_room(self, who: str, size: int = 0) -> bool:
        """Whether `who` may hold one more item, of that size."""
        count, size_held = self.held(who)
        is_countable = count < self.most - self.count
        return is_countable and size_held + size <= self.most_bytes - self.bytes

    def take(self, who: str, size: int = 0) -> None:
        self.change(who, 1, size)

    def give_back(self, who: str, size: int = 0) -> None:
        """Returns one item of `who` to the pool."""
        self.change(who, -1, -size)

    def held(self, who: str) -> tuple[int, int]:
        """Number of items that `who` holds, and their size."""
        return self._held.get(who, (0, 0))

    def change(self, who: str, count: int, size: int) -> None:
        """Adds to, or subtracts from, what `who` holds."""
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
