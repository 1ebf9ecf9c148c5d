"""Token buckets that limit the rate of new connections, in total and per address."""

from __future__ import annotations

from typing import Final

_REMEMBERED: Final = 10_000


class _ConnectBucket:
    """Allows `rate` per second, with a burst of one second's tokens."""

    __slots__ = ("at_ms", "left")

    def __init__(self, rate: int, now_ms: int) -> None:
        self.left = float(rate)
        self.at_ms = now_ms

    def take(self, rate: int, now_ms: int) -> bool:
        self.left = min(float(rate), self.left + (now_ms - self.at_ms) * rate / 1000)
        self.at_ms = now_ms
        if self.left < 1:
            return False
        self.left -= 1
        return True


class ConnectLimiter:
    def __init__(self, *, per_s: int, per_s_per_address: int, now_ms: int) -> None:
        self._per_s = per_s
        self._per_s_per_address = per_s_per_address
        self._all = _ConnectBucket(per_s, now_ms)
        self._by_address: dict[str, _ConnectBucket] = {}

    def accept(self, address: str, *, now_ms: int) -> bool:
        bucket = self._by_address.get(address)
        if bucket is None:
            if len(self._by_address) >= _REMEMBERED:
                self._evict_idle(now_ms)
            bucket = self._by_address[address] = _ConnectBucket(self._per_s_per_address, now_ms)
        return bucket.take(self._per_s_per_address, now_ms) and self._all.take(self._per_s, now_ms)

    def _evict_idle(self, now_ms: int) -> None:
        """Evict buckets unused for a second: they would be full again anyway."""
        busy = {
            address: bucket
            for address, bucket in self._by_address.items()
            if now_ms - bucket.at_ms < 1_000
        }
        self._by_address = busy if len(busy) < _REMEMBERED else {}
