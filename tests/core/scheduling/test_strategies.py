from __future__ import annotations

from collections import Counter, deque
from itertools import combinations
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.model.units import IMPORTANCES
from accord.core.policy import policy_set
from accord.core.scheduling.lanes import BINS, Bin
from accord.core.scheduling.queue_entries import NEVER
from accord.core.scheduling.strategies import (
    FIFO,
    LAXITY,
    STRATEGY_NAMES,
    STRICT,
    WEIGHT_LIMIT,
    WEIGHTED_FAIR,
    Discipline,
    strategy_of,
)

WEIGHTS: Final = [1 << importance for importance in range(IMPORTANCES)]


def bins(*heads: tuple[int, int, int, int]) -> list[Bin]:
    """Bins whose heads have this bin, cost, due time and time of queueing."""
    active: list[Bin] = []
    for number, cost, due_ms, queued_ms in heads:
        each = Bin(number)
        each.cost, each.due_ms, each.queued_ms = cost, due_ms, queued_ms
        active.append(each)
    return active


def test_each_strategy_has_its_favourite() -> None:
    active = bins((14, 900, NEVER, 30), (9, 10, 80, 20), (8, 10, 70, 10), (1, 10, 70, 10))
    chosen = {
        STRATEGY_NAMES[strategy]: Discipline(strategy).current.choose(active).bin
        for strategy in (STRICT, WEIGHTED_FAIR, LAXITY, FIFO)
    }
    assert chosen == {"strict": 14, "weighted fair": 9, "laxity": 8, "fifo": 8}


def test_a_small_one_does_not_wait_for_a_large_one_of_little_more_weight() -> None:
    active = bins((9, 70_000, NEVER, 0), (7, 100, NEVER, 0))
    fair = Discipline(WEIGHTED_FAIR).current
    assert fair.choose(active).bin == 7
    assert fair.choose(active).bin == 7, "asking changes nothing"
    assert [each.deficit for each in active] == [0, 0]


def test_equals_take_turns() -> None:
    fair = Discipline(WEIGHTED_FAIR, [5] * IMPORTANCES).current
    active = bins((9, 100, NEVER, 0), (5, 100, NEVER, 0), (1, 100, NEVER, 0))
    order: list[int] = []
    for _ in range(6):
        chosen = fair.choose(active)
        fair.charge(active, chosen, 100)
        order.append(chosen.bin)
    assert order == [9, 5, 1, 9, 5, 1], "the most important first in each round"


def test_two_bins_of_a_level_share_its_weight() -> None:
    sources = {15: [1_000], 14: [1_000], 13: [1_000]}
    sent = Backlog(sources, Discipline(WEIGHTED_FAIR, [1, 1, 1, 1, 1, 1, 3, 3])).send(600_000)
    assert sent[15] == pytest.approx(150_000, abs=1_000)
    assert sent[14] == pytest.approx(150_000, abs=1_000)
    assert sent[13] == pytest.approx(300_000, abs=1_000)


def test_weights_and_names_are_checked() -> None:
    discipline = Discipline(WEIGHTED_FAIR)
    assert (discipline.name, discipline.weights) == ("weighted fair", WEIGHTS)
    version = discipline.version
    with pytest.raises(ValueError, match="7 weights, expected 8"):
        discipline.change(WEIGHTED_FAIR, [1] * 7)
    with pytest.raises(ValueError, match="weight 0 of importance 2, expected 1 to"):
        discipline.change(WEIGHTED_FAIR, [1, 1, 0, 1, 1, 1, 1, 1])
    with pytest.raises(ValueError, match="weight 1000001 of importance 7"):
        discipline.change(WEIGHTED_FAIR, [1, 1, 1, 1, 1, 1, 1, WEIGHT_LIMIT + 1])
    with pytest.raises(ValueError, match="strategy 4, expected 0 to 3"):
        discipline.change(4)
    assert (discipline.strategy, discipline.version) == (WEIGHTED_FAIR, version)
    discipline.change(strategy_of("laxity"))
    assert (discipline.name, discipline.weights, discipline.version) == (
        "laxity",
        WEIGHTS,
        version + 1,
    )
    with pytest.raises(ValueError, match="'fair', expected one of strict, weighted fair"):
        strategy_of("fair")


def test_nobody_changes_weights_behind_its_back() -> None:
    weights = [1] * IMPORTANCES
    discipline = Discipline(WEIGHTED_FAIR, weights)
    weights[0] = 99
    assert discipline.weights[0] == 1


class Backlog:
    """Bins that always have something to send, in sizes that come round again."""

    def __init__(self, sizes: dict[int, list[int]], discipline: Discipline) -> None:
        self.strategy = discipline.current
        self.sizes = {number: deque(each) for number, each in sizes.items()}
        self.active = [Bin(number) for number in sorted(sizes, reverse=True)]
        self.order: list[int] = []

    def send(self, size: int) -> Counter[int]:
        """Send so much; gives how much of it was from which bin."""
        sent: Counter[int] = Counter()
        for each in self.active:
            each.cost = self.sizes[each.bin][0]
        while size > 0:
            chosen = self.strategy.choose(self.active)
            self.strategy.charge(self.active, chosen, chosen.cost)
            sent[chosen.bin] += chosen.cost
            size -= chosen.cost
            self.order.append(chosen.bin)
            queue = self.sizes[chosen.bin]
            queue.rotate(-1)
            chosen.cost = queue[0]
        return sent


SIZES: Final = st.sampled_from([100, 137, 512, 1_400, 8_191, 20_000, 70_000])
MIXED: Final = st.dictionaries(
    st.integers(0, BINS - 1), st.lists(SIZES, min_size=1, max_size=6), min_size=2, max_size=6
)
ANY_WEIGHTS: Final = st.lists(
    st.one_of(st.integers(1, 200), st.integers(1, WEIGHT_LIMIT)),
    min_size=IMPORTANCES,
    max_size=IMPORTANCES,
)


def shares(numbers: list[int], weights: list[int]) -> dict[int, float]:
    """What each bin should have: its level's weight, halved if the level's other one is active."""
    parts = {each: weights[each >> 1] / (2 if each ^ 1 in numbers else 1) for each in numbers}
    whole = sum(parts.values())
    return {each: part / whole for each, part in parts.items()}


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.dictionaries(
        st.integers(0, BINS - 1),
        st.permutations([100, 137, 512, 1_400, 8_191, 70_000]),
        min_size=2,
        max_size=6,
    ),
    weights=st.lists(st.integers(1, 8), min_size=8, max_size=8),
)
def test_shares_are_within_2_percent_of_weights_over_a_long_run(
    sizes: dict[int, list[int]], weights: list[int]
) -> None:
    expected = shares(list(sizes), weights)
    total = int(60 * 70_000 / min(expected.values()))
    sent = Backlog(sizes, Discipline(WEIGHTED_FAIR, weights)).send(total)
    whole = sum(sent.values())
    for number, share in expected.items():
        assert sent[number] / whole == pytest.approx(share, rel=0.02)


@settings(max_examples=60, deadline=None)
@given(sizes=MIXED, weights=ANY_WEIGHTS, total=st.integers(1, 500_000))
def test_unfairness_is_bounded_at_any_time(
    sizes: dict[int, list[int]], weights: list[int], total: int
) -> None:
    """In shares of weight no two that have waited all along differ by more than one event each."""
    expected = shares(list(sizes), weights)
    sent = Backlog(sizes, Discipline(WEIGHTED_FAIR, weights)).send(total)
    # A byte or two are the round that was begun.
    slack = {number: (max(each) + 2) / expected[number] for number, each in sizes.items()}
    progress = {number: sent[number] / share for number, share in expected.items()}
    for one, other in combinations(sizes, 2):
        assert abs(progress[one] - progress[other]) <= slack[one] + slack[other]


@settings(max_examples=40, deadline=None)
@given(sizes=MIXED, weights=st.lists(st.integers(1, 5), min_size=8, max_size=8))
def test_nobody_starves(sizes: dict[int, list[int]], weights: list[int]) -> None:
    """Each has its turn before the others have sent what they may while it saves up for one."""
    expected = shares(list(sizes), weights)
    backlog = Backlog(sizes, Discipline(WEIGHTED_FAIR, weights))
    patience = max((max(sizes[number]) + 2) / share for number, share in expected.items()) + sum(
        max(each) + 2 for each in sizes.values()
    )
    for _ in range(3):
        sent = backlog.send(int(patience) + 1)
        assert set(sent) == set(sizes)


@given(sizes=MIXED, total=st.integers(1, 200_000))
def test_strict_sends_the_highest_only(sizes: dict[int, list[int]], total: int) -> None:
    backlog = Backlog(sizes, Discipline(STRICT))
    backlog.send(total)
    assert set(backlog.order) == {max(sizes)}


def test_books_and_queues_mean_the_same() -> None:
    assert set(policy_set.STRATEGIES) == set(STRATEGY_NAMES)
    assert list(policy_set.PolicySet().weights) == Discipline().weights
    assert policy_set.MAX_WEIGHT == WEIGHT_LIMIT
