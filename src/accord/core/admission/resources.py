"""Resource pools of a node: capacity, reservations and what is free.

Resources are memory (bytes), CPU (thousandths of events per second) and the bandwidth of each link
and each client (bits per second). A reservation takes amounts of several pools, all or nothing,
under a key: booking the same key changes it, and releasing it is idempotent.

CPU capacity is unknown at first and is learned: the rate of events at which the CPU is first busy
is the capacity, until a higher rate is sustained.

Reservations follow advertised rates and are corrected by measured use: if more is used than was
reserved, only what is really left counts as free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from enum import StrEnum
from heapq import nlargest
from typing import Final, NamedTuple

from msgspec import Struct

MAX_RESERVATIONS: Final = 1_000_000


class Resource(StrEnum):
    MEMORY = "memory"
    CPU = "cpu"
    BANDWIDTH = "bandwidth"
    PATH = "path"  # a node that does not reply


class Pool(NamedTuple):
    """One resource of a node; `of` is the link or client whose bandwidth it is."""

    resource: Resource
    of: str = ""


MEMORY: Final = Pool(Resource.MEMORY)
CPU: Final = Pool(Resource.CPU)

Amounts = Mapping[Pool, int]


def link(neighbour: str) -> Pool:
    return Pool(Resource.BANDWIDTH, f"link {neighbour}")


def client(name: str) -> Pool:
    return Pool(Resource.BANDWIDTH, f"client {name}")


class Shortage(Struct, frozen=True):
    """Why a reservation was refused."""

    pool: Pool
    requested: int
    free: int


class PoolState(Struct, frozen=True, kw_only=True):
    """A pool's sums; `capacity` None: no known limit."""

    capacity: int | None
    reserved: int
    used: int
    reservations: int


class _Pool:
    __slots__ = ("capacity", "reservations", "reserved", "used")

    def __init__(self) -> None:
        self.capacity: int | None = None
        self.reserved = 0
        self.reservations = 0
        self.used = 0

    def state(self) -> PoolState:
        return PoolState(
            capacity=self.capacity,
            reserved=self.reserved,
            used=self.used,
            reservations=self.reservations,
        )


def _tightness(item: tuple[Pool, _Pool]) -> tuple[float, Pool]:
    pool, known = item
    taken = max(known.reserved, known.used)
    return (taken / known.capacity if known.capacity else 0.0), pool


class ReservationTable:
    """All reservations of a node, by key, with their sums per pool."""

    def __init__(self, *, limit: int = MAX_RESERVATIONS) -> None:
        self._limit = limit
        self._pools: dict[Pool, _Pool] = {}
        self._reservations: dict[Hashable, dict[Pool, int]] = {}

    def __len__(self) -> int:
        return len(self._reservations)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._reservations

    # --------------------------------------------------------------------------------- reservations

    def reserve(self, key: Hashable, amounts: Amounts) -> Shortage | None:
        """Reserve all amounts or return what is short; a known key is changed, or kept as it is."""
        before = self._reservations.get(key)
        if before is None and len(self._reservations) >= self._limit:
            return Shortage(MEMORY, 1, 0)
        for pool, amount in amounts.items():
            if amount < 0:
                raise ValueError(f"expected to promise 0 or more of {pool}, got {amount}")
            held = 0 if before is None else before.get(pool, 0)
            free = self.free(pool)
            # Taking no more than before is always allowed.
            if free is not None and amount > held and amount > free + held:
                return Shortage(pool, amount, max(free + held, 0))
        self._put(key, amounts)
        return None

    def release(self, key: Hashable) -> bool:
        """Release a reservation; returns whether it existed."""
        amounts = self._reservations.pop(key, None)
        if amounts is None:
            return False
        for pool, amount in amounts.items():
            self._subtract(pool, amount)
        return True

    def correct(self, key: Hashable, pool: Pool, amount: int) -> bool:
        """Set an amount to what is really needed, free or not; returns whether there was one."""
        amounts = self._reservations.get(key)
        if amounts is None or pool not in amounts:
            return False
        self._put(key, {**amounts, pool: max(amount, 0)})
        return True

    def amounts(self, key: Hashable) -> dict[Pool, int]:
        return dict(self._reservations.get(key, ()))

    def __iter__(self) -> Iterator[Hashable]:
        """Iterate over the keys of all reservations."""
        return iter(self._reservations)

    # --------------------------------------------------------------------------------- resources

    def set_capacity(self, pool: Pool, capacity: int | None) -> None:
        """Set the capacity; reservations stay, even beyond it."""
        self._pool(pool).capacity = capacity
        self._remove_unused(pool)

    def set_used(self, pool: Pool, used: int) -> None:
        """Set the measured use."""
        self._pool(pool).used = max(used, 0)
        self._remove_unused(pool)

    def free(self, pool: Pool) -> int | None:
        """Return what can still be reserved, below 0 if overbooked; None: no limit."""
        known = self._pools.get(pool)
        if known is None or known.capacity is None:
            return None
        return known.capacity - max(known.reserved, known.used)

    def overcommitted(self) -> list[Pool]:
        """Return the pools of which more is reserved or used than their capacity."""
        return [pool for pool in self._pools if (self.free(pool) or 0) < 0]

    def state(self) -> dict[Pool, PoolState]:
        return {pool: known.state() for pool, known in self._pools.items()}

    def tightest(self, most: int) -> dict[Pool, PoolState]:
        """Return the pools with the largest share of their capacity promised or used."""
        found = nlargest(most, self._pools.items(), key=_tightness)
        return {pool: known.state() for pool, known in found}

    @property
    def pools_total(self) -> int:
        return len(self._pools)

    def check_invariants(self) -> None:
        assert len(self._reservations) <= self._limit
        promised: dict[Pool, int] = {}
        counts: dict[Pool, int] = {}
        for amounts in self._reservations.values():
            for pool, amount in amounts.items():
                assert amount >= 0
                promised[pool] = promised.get(pool, 0) + amount
                counts[pool] = counts.get(pool, 0) + 1
        for pool, known in self._pools.items():
            assert known.reserved == promised.pop(pool, 0)
            assert known.reservations == counts.get(pool, 0)
            assert known.reservations or known.used or known.capacity is not None
        assert not promised

    def _put(self, key: Hashable, amounts: Amounts) -> None:
        self.release(key)
        self._reservations[key] = dict(amounts)
        for pool, amount in amounts.items():
            known = self._pool(pool)
            known.reserved += amount
            known.reservations += 1

    def _subtract(self, pool: Pool, amount: int) -> None:
        known = self._pools[pool]
        known.reserved -= amount
        known.reservations -= 1
        self._remove_unused(pool)

    def _pool(self, pool: Pool) -> _Pool:
        known = self._pools.get(pool)
        if known is None:
            known = self._pools[pool] = _Pool()
        return known

    def _remove_unused(self, pool: Pool) -> None:
        known = self._pools[pool]
        if not known.reservations and not known.used and known.capacity is None:
            del self._pools[pool]


class CpuCapacityEstimator:
    """Learns how many events this node can process, in thousandths per second; None if unknown."""

    def __init__(self, *, threshold: float = 0.8, samples: int = 3) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"expected a threshold above 0 and up to 1, got {threshold}")
        self.capacity: int | None = None
        self._threshold = threshold
        self._recent: deque[int] = deque(maxlen=samples)

    def sample(self, cpu_use: float, rate: int) -> int | None:
        """Add a sample of CPU use (0 to 1) and event rate; returns the capacity."""
        self._recent.append(rate)
        if self.capacity is None:
            if cpu_use >= self._threshold and rate > 0:
                self.capacity = rate
        elif len(self._recent) == self._recent.maxlen:
            self.capacity = max(self.capacity, min(self._recent))
        return self.capacity
