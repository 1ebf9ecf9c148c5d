"""How much of the time that a channel leaves may be spent at each hop, and who goes first there.

What is left of a channel's maximum delay when all hops of its route take as long as usual is its
margin. It is divided among the hops, so that each has something to absorb a disturbance with:
equally, or in proportion to how much the delay of each hop varies. What is not used at one hop is
there for the later ones, and what one overdraws they lack: for a single event, whose age is known,
the margin is what is left at that moment, for the hops that are still ahead.

At a node, those whose share is least go first: they are ranked by their shares, and the n-th gets
`least share + n · step` as its budget, which is what the outbox's laxity begins with.

Everything is in whole microseconds, and shares add up to the margin exactly, also where that is
negative because the route takes too long.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

STEP_US: Final = 1_000

Key = tuple[str, int]  # a source, and the number of a route there


@dataclass(frozen=True)
class Hop:
    """One link of a route and the node it enters: what that usually takes, and how it varies."""

    delay_us: int
    deviation_us: int = 0


@dataclass(frozen=True)
class Budget:
    """What events of a route may spend at a node; the first rank goes first."""

    rank: int
    share_us: int
    budget_us: int


def margin_us(max_delay_us: int, hops: Sequence[Hop], age_us: int = 0) -> int:
    """What is left of the maximum delay, for an event of that age, when `hops` are ahead of it."""
    return max_delay_us - age_us - sum(hop.delay_us for hop in hops)


def equal_shares(margin_us: int, count: int) -> list[int]:
    """Of each of `count` hops; where it does not come out even the first have one more."""
    if count < 1:
        raise ValueError(f"count: expected at least one hop, got {count}")
    share_us, rest = divmod(margin_us, count)
    return [share_us + (place < rest) for place in range(count)]


def differentiated_shares(margin_us: int, hops: Sequence[Hop]) -> list[int]:
    """In proportion to deviations; equal where none is known, or there is nothing to give."""
    deviations_us = [max(hop.deviation_us, 0) for hop in hops]
    total_us = sum(deviations_us)
    if margin_us <= 0 or total_us == 0:
        return equal_shares(margin_us, len(hops))
    # Rounded at the sums, so that nothing is lost between them.
    shares: list[int] = []
    reached_us = given_us = 0
    for deviation_us in deviations_us:
        reached_us += deviation_us
        until_us = margin_us * reached_us // total_us
        shares.append(until_us - given_us)
        given_us = until_us
    return shares


def ranked(shares_us: Mapping[Key, int], step_us: int = STEP_US) -> dict[Key, Budget]:
    """The budgets at a node of all routes with their shares there, the first to go first."""
    order = sorted((share_us, key) for key, share_us in shares_us.items())
    return {
        key: Budget(rank, share_us, order[0][0] + rank * step_us)
        for rank, (share_us, key) in enumerate(order, start=1)
    }


class Budgets:
    """Of one node. Shares are kept in their order, so that a change of one costs little."""

    def __init__(self, step_us: int = STEP_US) -> None:
        if step_us < 0:
            raise ValueError(f"step_us: expected at least 0, got {step_us}")
        self.step_us = step_us
        self._shares_us: dict[Key, int] = {}
        self._order: list[tuple[int, Key]] = []

    def set(self, key: Key, share_us: int) -> None:
        """What of the margin is this node's."""
        if self._shares_us.get(key) != share_us:
            self.drop(key)
            self._shares_us[key] = share_us
            insort(self._order, (share_us, key))

    def drop(self, key: Key) -> None:
        share_us = self._shares_us.pop(key, None)
        if share_us is not None:
            del self._order[bisect_left(self._order, (share_us, key))]

    def get(self, key: Key) -> Budget | None:
        """None where the route has no maximum delay."""
        share_us = self._shares_us.get(key)
        if share_us is None:
            return None
        rank = bisect_left(self._order, (share_us, key)) + 1
        return Budget(rank, share_us, self._order[0][0] + rank * self.step_us)

    def all(self) -> dict[Key, Budget]:
        """The first to go first."""
        return ranked(self._shares_us, self.step_us)

    def check_invariants(self) -> None:
        assert self._order == sorted((share_us, key) for key, share_us in self._shares_us.items())
