"""Per-hop delay budgets: how long a route's events may wait at each hop, and in which order.

A route's margin is its channel's maximum delay less the usual delay of all hops. It is divided
among the hops, so that each can absorb a disturbance: equally, or in proportion to the delay
variation of each hop. Time not used at one hop is available to later ones, and time overdrawn is
missing there: for a single event, whose age is known, the margin is what is left at that moment for
the hops ahead.

At a node, routes with the smallest share go first: they are ranked by share, and the n-th gets the
budget `least share + n · step`, with which the outbox's laxity starts.

All values are whole microseconds, and shares add up to the margin exactly, even if it is negative
because the route is too slow.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

STEP_US: Final = 1_000

Key = tuple[str, int]  # a source and its route number


@dataclass(frozen=True)
class Hop:
    """A link of a route and the node it enters: usual delay and deviation of both together."""

    delay_us: int
    deviation_us: int = 0


@dataclass(frozen=True)
class Budget:
    """Time that events of a route may spend at a node; the lowest rank goes first."""

    rank: int
    share_us: int
    budget_us: int


def margin_us(max_delay_us: int, hops: Sequence[Hop], age_us: int = 0) -> int:
    """Margin left for an event of that age with `hops` ahead of it."""
    return max_delay_us - age_us - sum(hop.delay_us for hop in hops)


def equal_shares(margin_us: int, count: int) -> list[int]:
    """Divide the margin equally among `count` hops; the first ones get the remainder."""
    if count < 1:
        raise ValueError(f"count: expected at least one hop, got {count}")
    share_us, rest = divmod(margin_us, count)
    return [share_us + (place < rest) for place in range(count)]


def differentiated_shares(margin_us: int, hops: Sequence[Hop]) -> list[int]:
    """Divide the margin by deviation; equally if none is known or the margin is not positive."""
    deviations_us = [max(hop.deviation_us, 0) for hop in hops]
    total_us = sum(deviations_us)
    if margin_us <= 0 or total_us == 0:
        return equal_shares(margin_us, len(hops))
    # Cumulative sums are rounded, so that the shares add up to the margin.
    shares: list[int] = []
    reached_us = given_us = 0
    for deviation_us in deviations_us:
        reached_us += deviation_us
        until_us = margin_us * reached_us // total_us
        shares.append(until_us - given_us)
        given_us = until_us
    return shares


def rank_shares(shares_us: Mapping[Key, int], step_us: int = STEP_US) -> dict[Key, Budget]:
    """Budgets of all routes at a node from their shares, in order of rank."""
    order = sorted((share_us, key) for key, share_us in shares_us.items())
    return {
        key: Budget(rank, share_us, order[0][0] + rank * step_us)
        for rank, (share_us, key) in enumerate(order, start=1)
    }


class Budgets:
    """Budgets of all routes at one node. Shares are kept sorted, so that a change is cheap."""

    def __init__(self, step_us: int = STEP_US) -> None:
        if step_us < 0:
            raise ValueError(f"step_us: expected at least 0, got {step_us}")
        self.step_us = step_us
        self._shares_us: dict[Key, int] = {}
        self._order: list[tuple[int, Key]] = []

    def set(self, key: Key, share_us: int) -> None:
        """Set this node's share of a route's margin."""
        if self._shares_us.get(key) != share_us:
            self.drop(key)
            self._shares_us[key] = share_us
            insort(self._order, (share_us, key))

    def drop(self, key: Key) -> None:
        share_us = self._shares_us.pop(key, None)
        if share_us is not None:
            del self._order[bisect_left(self._order, (share_us, key))]

    def get(self, key: Key) -> Budget | None:
        """The budget of a route; None if it has no maximum delay."""
        share_us = self._shares_us.get(key)
        if share_us is None:
            return None
        rank = bisect_left(self._order, (share_us, key)) + 1
        return Budget(rank, share_us, self._order[0][0] + rank * self.step_us)

    def all(self) -> dict[Key, Budget]:
        """All budgets in order of rank."""
        return rank_shares(self._shares_us, self.step_us)

    def check_invariants(self) -> None:
        assert self._order == sorted((share_us, key) for key, share_us in self._shares_us.items())
