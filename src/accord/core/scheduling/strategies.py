"""Which bin is next: strategies behind one interface, for outboxes and CPU tasks alike.

*Weighted fair* is deficit round robin over the bytes (or microseconds) really spent. In each round
every bin that has something to send is granted its share, and sends while its head costs no more
than what it has been granted; the most important goes first. Rounds are as small as integers let
them be, a byte or two for the greatest weight, so that shares are kept over short times as well.
Rounds in which nobody could send are added up at once, so what a choice costs depends on the number
of bins only. A level's weight counts for its two bins together: each has half of it while both are
active. What a bin has been granted is forgotten when it runs empty.

All that is remembered is in the bins themselves: one discipline serves any number of outboxes.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.importance import IMPORTANCES
from accord.core.scheduling.lanes import Bin

STRICT: Final = 0
WEIGHTED_FAIR: Final = 1
LAXITY: Final = 2
FIFO: Final = 3
STRATEGY_NAMES: Final = ("strict", "weighted fair", "laxity", "first come")

# Sums stay well within 62 bits, whatever the sizes.
WEIGHT_LIMIT: Final = 1_000_000


class SchedulingStrategy:
    """Chooses among bins; both methods are given the active ones, the highest first."""

    def choose(self, active: list[Bin]) -> Bin:
        raise NotImplementedError

    def charge(self, active: list[Bin], chosen: Bin, cost: int) -> None:
        """The chosen one has spent `cost`."""


class Strict(SchedulingStrategy):
    """Always the highest bin."""

    def choose(self, active: list[Bin]) -> Bin:
        return active[0]


class Laxity(SchedulingStrategy):
    """The one that is due first; without deadlines the highest bin."""

    def choose(self, active: list[Bin]) -> Bin:
        chosen = active[0]
        for each in active:
            if each.due_ms < chosen.due_ms:
                chosen = each
        return chosen


class Fifo(SchedulingStrategy):
    """The one that has waited longest, whatever its importance."""

    def choose(self, active: list[Bin]) -> Bin:
        chosen = active[0]
        for each in active:
            if each.queued_ms < chosen.queued_ms:
                chosen = each
        return chosen


class WeightedFair(SchedulingStrategy):
    """Shares by weight; nobody starves."""

    def __init__(self, weights: list[int]) -> None:
        self.weights = weights
        self.scale = max(weights)  # deficits count in bytes times this

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
        """After how many more rounds it can send."""
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
    """The strategy of a node and its weights: one object that all its queues share.

    Queues notice by `version` that it was changed, and adapt when next asked for something. Within
    a bin the first to come is the first to go, or (under laxity always) the first that is due.
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
        """Another strategy, or other weights by importance (None: those there are)."""
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
    """The strategy that people call so."""
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
