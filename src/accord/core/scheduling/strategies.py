"""Scheduling strategies behind one interface, for outboxes and CPU tasks alike.

*Weighted fair* is deficit round robin over the bytes (or microseconds) actually spent. In each
round every active bin is granted its share, and sends while its head costs no more than its
deficit; the most important goes first. Rounds are as small as integers permit, a byte or two for
the greatest weight, so that shares hold over short times too. Rounds in which no bin could send are
added up at once, so the cost of a choice depends on the number of bins only. The weight of an
importance counts for its two bins together: each has half of it while both are active. A bin that
runs empty loses its deficit.

All state is in the bins themselves: one discipline serves any number of outboxes.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.units import IMPORTANCES
from accord.core.scheduling.lanes import Bin

STRICT: Final = 0
WEIGHTED_FAIR: Final = 1
LAXITY: Final = 2
FIFO: Final = 3
STRATEGY_NAMES: Final = ("strict", "weighted fair", "laxity", "fifo")

# Keeps sums well within 62 bits, whatever the sizes.
WEIGHT_LIMIT: Final = 1_000_000


class SchedulingStrategy:
    """Chooses among bins; both methods get the active ones, highest first."""

    def choose(self, active: list[Bin]) -> Bin:
        raise NotImplementedError

    def charge(self, active: list[Bin], chosen: Bin, cost: int) -> None:
        """Charge `cost` to the chosen bin."""


class Strict(SchedulingStrategy):
    """The highest bin."""

    def choose(self, active: list[Bin]) -> Bin:
        return active[0]


class Laxity(SchedulingStrategy):
    """The bin due first; without deadlines the highest."""

    def choose(self, active: list[Bin]) -> Bin:
        chosen = active[0]
        for each in active:
            if each.due_ms < chosen.due_ms:
                chosen = each
        return chosen


class Fifo(SchedulingStrategy):
    """The bin that has waited longest, regardless of importance."""

    def choose(self, active: list[Bin]) -> Bin:
        chosen = active[0]
        for each in active:
            if each.queued_ms < chosen.queued_ms:
                chosen = each
        return chosen


class WeightedFair(SchedulingStrategy):
    """Deficit round robin by weight: no bin starves."""

    def __init__(self, weights: list[int]) -> None:
        self.weights = weights
        self.scale = max(weights)  # deficits are in bytes times this

    def choose(self, active: list[Bin]) -> Bin:
        chosen = active[0]
        least = self._rounds(active, 0)
        for position in range(1, len(active)):
            if least == 0:
                break
            rounds = self._rounds(active, position)
            if rounds < least:
                least = rounds
                chosen = active[position]
        return chosen

    def charge(self, active: list[Bin], chosen: Bin, cost: int) -> None:
        rounds = 0
        for position in range(len(active)):
            if active[position] is chosen:
                rounds = self._rounds(active, position)
                break
        if rounds > 0:
            for position in range(len(active)):
                active[position].deficit += rounds * self._quantum(active, position)
        chosen.deficit -= cost * self.scale

    def _rounds(self, active: list[Bin], position: int) -> int:
        """Number of further rounds until a bin can send."""
        each = active[position]
        missing = each.cost * self.scale - each.deficit
        if missing <= 0:
            return 0
        return -(-missing // self._quantum(active, position))

    def _quantum(self, active: list[Bin], position: int) -> int:
        importance = active[position].importance
        weight = self.weights[importance]
        if position > 0 and active[position - 1].importance == importance:
            return weight
        if position + 1 < len(active) and active[position + 1].importance == importance:
            return weight
        return 2 * weight


class Discipline:
    """A node's strategy and weights: one object shared by all its queues.

    Queues detect a change by `version` and adapt at their next use. Within a bin the order is first
    in, first out, or (always under laxity) earliest due first.
    """

    def __init__(
        self, strategy: int = STRICT, weights: list[int] | None = None, *, by_due: bool = False
    ) -> None:
        self._is_always_by_due = by_due
        self.strategy: int = STRICT
        self.weights: list[int] = [1 << importance for importance in range(IMPORTANCES)]
        self.version: int = 0
        self.current: SchedulingStrategy = Strict()
        self.change(strategy, weights)

    def change(self, strategy: int, weights: list[int] | None = None) -> None:
        """Change the strategy, or the weights by importance (None: unchanged)."""
        if not 0 <= strategy < len(STRATEGY_NAMES):
            raise ValueError(f"strategy {strategy}, expected 0 to {len(STRATEGY_NAMES) - 1}")
        if weights is not None:
            _check_weights(weights)
            self.weights = list(weights)
        self.strategy = strategy
        if strategy == WEIGHTED_FAIR:
            self.current = WeightedFair(self.weights)
        elif strategy == LAXITY:
            self.current = Laxity()
        elif strategy == FIFO:
            self.current = Fifo()
        else:
            self.current = Strict()
        self.version += 1

    @property
    def by_due(self) -> bool:
        return self._is_always_by_due or self.strategy == LAXITY

    @property
    def name(self) -> str:
        return STRATEGY_NAMES[self.strategy]


def strategy_of(name: str) -> int:
    """The strategy of that name."""
    if name not in STRATEGY_NAMES:
        raise ValueError(f"strategy {name!r}, expected one of {', '.join(STRATEGY_NAMES)}")
    return STRATEGY_NAMES.index(name)


def _check_weights(weights: list[int]) -> None:
    if len(weights) != IMPORTANCES:
        raise ValueError(f"{len(weights)} weights, expected {IMPORTANCES}: one by importance")
    for importance, weight in enumerate(weights):
        if not 1 <= weight <= WEIGHT_LIMIT:
            raise ValueError(
                f"weight {weight} of importance {importance}, expected 1 to {WEIGHT_LIMIT}"
            )
