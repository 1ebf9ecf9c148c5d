"""Promises in the books: all or nothing, once, and corrected by what is measured."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.admission.resources import (
    CPU,
    MEMORY,
    CpuCapacityEstimator,
    Pool,
    ReservationTable,
    Resource,
    Shortage,
    client,
    link,
)


def books() -> ReservationTable:
    found = ReservationTable()
    found.set_capacity(MEMORY, 1_000)
    found.set_capacity(CPU, 100)
    found.set_capacity(link("denver"), 50)
    return found


def test_a_promise_takes_all_or_nothing() -> None:
    kept = books()
    assert kept.reserve("one", {MEMORY: 100, CPU: 60, link("denver"): 20}) is None
    short = kept.reserve("two", {MEMORY: 100, CPU: 10, link("denver"): 31})
    assert short == Shortage(Pool(Resource.BANDWIDTH, "link denver"), 31, 30)
    assert kept.free(CPU) == 40
    assert "two" not in kept
    assert kept.reserve("two", {MEMORY: 900, CPU: 40, link("denver"): 30}) is None
    assert [kept.free(pool) for pool in (MEMORY, CPU, link("denver"))] == [0, 0, 0]
    kept.check_invariants()


def test_a_promise_is_released_once() -> None:
    kept = books()
    kept.reserve("one", {CPU: 60})
    assert kept.release("one")
    assert not kept.release("one")
    assert kept.free(CPU) == 100
    kept.check_invariants()


def test_the_same_key_changes_a_promise() -> None:
    kept = books()
    kept.reserve("one", {CPU: 60})
    assert kept.reserve("one", {CPU: 90}) is None
    assert kept.free(CPU) == 10
    assert kept.reserve("one", {CPU: 101}) == Shortage(CPU, 101, 100)
    assert kept.free(CPU) == 10, "what was promised stays"
    assert kept.reserve("one", {MEMORY: 5}) is None
    assert kept.free(CPU) == 100
    kept.check_invariants()


def test_without_a_limit_everything_can_be_promised() -> None:
    kept = ReservationTable()
    assert kept.reserve("one", {client("alice"): 10**12}) is None
    assert kept.free(client("alice")) is None
    kept.release("one")
    assert kept.state() == {}


def test_what_is_used_beyond_promises_is_not_free() -> None:
    kept = books()
    kept.reserve("one", {CPU: 30})
    kept.set_used(CPU, 20)
    assert kept.free(CPU) == 70
    kept.set_used(CPU, 95)
    assert kept.reserve("two", {CPU: 10}) == Shortage(CPU, 10, 5)
    kept.set_used(CPU, 120)
    assert kept.overcommitted() == [CPU]
    assert kept.reserve("two", {CPU: 10}) == Shortage(CPU, 10, 0)
    assert kept.reserve("one", {CPU: 25}) is None, "less than before can always be had"
    kept.set_used(CPU, 0)
    assert kept.reserve("two", {CPU: 75}) is None
    kept.check_invariants()


def test_a_smaller_capacity_breaks_no_promise() -> None:
    kept = books()
    kept.reserve("one", {link("denver"): 40})
    kept.set_capacity(link("denver"), 10)
    assert kept.overcommitted() == [link("denver")]
    assert kept.free(link("denver")) == -30
    kept.release("one")
    assert kept.free(link("denver")) == 10


def test_promises_follow_what_is_measured() -> None:
    kept = books()
    kept.reserve("one", {CPU: 60, MEMORY: 1})
    assert kept.correct("one", CPU, 25)
    assert kept.free(CPU) == 75
    assert kept.correct("one", CPU, 130)
    assert kept.overcommitted() == [CPU]
    assert not kept.correct("one", link("denver"), 5)
    assert not kept.correct("two", CPU, 5)
    assert kept.release("one")
    kept.check_invariants()


def test_promises_are_bounded_and_never_negative() -> None:
    kept = ReservationTable(limit=1)
    assert kept.reserve("one", {}) is None
    assert kept.reserve("two", {}) == Shortage(MEMORY, 1, 0)
    assert kept.reserve("one", {CPU: 1}) is None
    with pytest.raises(ValueError, match="expected to promise 0 or more"):
        kept.reserve("one", {CPU: -1})


pools = st.sampled_from([MEMORY, CPU, link("denver")])
steps = st.lists(
    st.tuples(
        st.sampled_from("abcd"), st.none() | st.dictionaries(pools, st.integers(0, 60), max_size=3)
    ),
    max_size=30,
)


@given(steps)
def test_books_are_the_sum_of_promises(done: list[tuple[str, Mapping[Pool, int] | None]]) -> None:
    kept = books()
    promised: dict[str, Mapping[Pool, int]] = {}
    for key, amounts in done:
        if amounts is None:
            assert kept.release(key) is (promised.pop(key, None) is not None)
        elif kept.reserve(key, amounts) is None:
            promised[key] = amounts
        kept.check_invariants()
        assert not kept.overcommitted()
    for pool, state in kept.state().items():
        assert state.reserved == sum(amounts.get(pool, 0) for amounts in promised.values())
    assert {key: kept.amounts(key) for key in promised} == promised


def test_the_capacity_of_the_cpu_is_learned() -> None:
    learned = CpuCapacityEstimator(threshold=0.8, samples=3)
    assert learned.sample(0.3, 5_000) is None
    assert learned.sample(0.9, 0) is None, "busy with something else"
    assert learned.sample(0.8, 7_000) == 7_000
    assert learned.sample(0.5, 9_000) == 7_000, "not sustained yet"
    assert learned.sample(0.5, 9_500) == 7_000
    assert learned.sample(0.5, 8_500) == 8_500
    assert learned.sample(0.9, 100) == 8_500, "it never sinks"
    with pytest.raises(ValueError, match="expected a threshold"):
        CpuCapacityEstimator(threshold=0)


def test_the_tightest_pools_come_first() -> None:
    table = ReservationTable()
    for name, capacity, promised in (("a", 100, 10), ("b", 100, 90), ("c", None, 500)):
        table.set_capacity(client(name), capacity)
        assert table.reserve(name, {client(name): promised}) is None
    table.set_used(client("a"), 95)
    assert list(table.tightest(2)) == [client("a"), client("b")]
    assert table.tightest(9) == {pool: table.state()[pool] for pool in table.state()}
    assert table.pools_total == 3
