from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from accord.core.monitoring.counters import OTHER, BoundedCounts, TopCounts

CLIENTS = st.sampled_from([f"client-{n}" for n in range(12)])
CAUSES = st.sampled_from(["queue full", "expired"])
ADDED = st.lists(st.tuples(CLIENTS, CAUSES, st.integers(1, 9)))


def test_names_beyond_the_limit_count_as_other() -> None:
    tally = BoundedCounts(limit=2)
    for name in ("a", "b", "c", "a", "d"):
        tally.add(name)
    assert tally.counts == {"a": 2, "b": 1, OTHER: 2}


def test_the_greatest_counts_are_kept() -> None:
    tally = TopCounts(limit=2)
    for client, count in (("a", 5), ("b", 1), ("c", 7), ("d", 2), ("e", 1)):
        tally.add(client, "expired", count)
    assert tally.top() == [("c", "expired", 7), ("a", "expired", 5), (OTHER, "expired", 4)]


@given(ADDED)
def test_sums_by_cause_are_exact_and_counts_by_client_never_too_high(
    added: list[tuple[str, str, int]],
) -> None:
    tally = TopCounts(limit=3)
    truth: Counter[tuple[str, str]] = Counter()
    for client, cause, count in added:
        tally.add(client, cause, count)
        truth[client, cause] += count
        assert len(tally.counts) <= 6
    for cause in ("queue full", "expired"):
        assert sum(count for _, why, count in tally.top() if why == cause) == sum(
            count for (_, why), count in truth.items() if why == cause
        )
    named = [each for each in tally.top() if each[0] != OTHER]
    assert len(named) <= 3
    assert all(count <= truth[client, cause] for client, cause, count in named)


def test_looking_changes_nothing() -> None:
    tally = TopCounts(limit=1)
    for client in "abc":
        tally.add(client, "expired")
    assert tally.top() == tally.top()
