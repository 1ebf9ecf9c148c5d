"""The order of advertised filters: the paper's figures, and random changes against brute force."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.admission.advertised import (
    NODES,
    Brute,
    filter_of,
    filters,
    is_same,
    random_filter,
)

from accord.core.admission.filter_index import filter_relations
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_index.tables import Sums
from accord.core.admission.filter_poset import AdvertisedFilter, FilterPoset, to_units
from accord.core.model.errors import AdmissionError

DEU = "name = 'DEU'"


def advertise(order: FilterPoset, *advertised: tuple[str, float]) -> None:
    for where, rate_hz in advertised:
        order.advertise(len(order._advertised), filter_of(where), rate_hz)
        order.check_invariants()


def shown(order: FilterPoset, where: str) -> tuple[float, int]:
    found = order.get(filter_of(where))
    assert found is not None
    return found.rate_hz, found.count


def texts(found: list[AdvertisedFilter]) -> list[str]:
    return sorted(str(each.filter.predicate) for each in found)


def first_tree() -> FilterPoset:
    order = FilterPoset()
    advertise(order, ("price > 0", 4), ("price > 5", 9), (f"price > 3 AND {DEU}", 4))
    return order


def second_tree() -> FilterPoset:
    order = FilterPoset()
    advertise(
        order,
        ("price > 0", 4),
        (f"price > 3 AND {DEU}", 4),
        ("price > 9", 4),
        (f"price > 8 AND {DEU}", 11),
    )
    return order


def test_figure_3_an_extended_advertisement_tree() -> None:
    order = first_tree()
    assert shown(order, "price > 0") == (17, 3)
    assert shown(order, "price > 5") == (9, 1)
    assert shown(order, f"price > 3 AND {DEU}") == (4, 1)
    below = texts(order.successors(filter_of("price > 0")))
    assert below == ["name = 'DEU' AND price > 3", "price > 5"]
    assert order.predecessors(filter_of("price > 0")) == []


def test_figure_4a_the_same_filter_again() -> None:
    order = first_tree()
    advertise(order, ("price > 5", 3))
    assert shown(order, "price > 5") == (12, 2)
    assert shown(order, "price > 0") == (20, 4)
    assert shown(order, f"price > 3 AND {DEU}") == (4, 1)
    assert len(order) == 3
    assert order.advertisements == 4


def test_figure_4b_a_new_filter_over_others() -> None:
    order = second_tree()
    assert shown(order, "price > 0") == (23, 4)
    assert shown(order, f"price > 3 AND {DEU}") == (15, 2)
    assert shown(order, "price > 9") == (4, 1)
    assert shown(order, f"price > 8 AND {DEU}") == (11, 1)
    advertise(order, ("price > 5", 5))
    assert shown(order, "price > 5") == (20, 3)
    assert shown(order, "price > 0") == (28, 5)
    assert shown(order, f"price > 3 AND {DEU}") == (15, 2)
    below = texts(order.successors(filter_of("price > 5")))
    assert below == ["name = 'DEU' AND price > 8", "price > 9"]


def test_figure_4c_a_new_filter_below_several() -> None:
    order = second_tree()
    advertise(order, ("price > 5", 5), (f"price > 7 AND {DEU}", 3))
    assert shown(order, f"price > 7 AND {DEU}") == (14, 2)
    assert shown(order, "price > 5") == (23, 4)
    assert shown(order, f"price > 3 AND {DEU}") == (18, 3)
    assert shown(order, "price > 0") == (31, 6)
    above = texts(order.predecessors(filter_of(f"price > 7 AND {DEU}")))
    assert above == ["name = 'DEU' AND price > 3", "price > 5"]


def test_figure_5_a_subscription_between_filters() -> None:
    order = second_tree()
    advertise(order, ("price > 5", 5), (f"price > 7 AND {DEU}", 3))
    found = order.look_up(filter_of(f"price > 2 AND {DEU}"))
    assert found.exact is None
    assert found.most_covered == Sums(18_000, 3)
    assert found.least_covering == Sums(31_000, 6)
    assert found.covered == Sums(18_000, 3)
    assert found.intersecting == Sums(31_000, 6)


def test_figures_backwards() -> None:
    order = second_tree()
    advertise(order, ("price > 5", 5), (f"price > 7 AND {DEU}", 3))
    assert order.unadvertise(5)
    order.check_invariants()
    assert shown(order, "price > 5") == (20, 3)
    assert shown(order, "price > 0") == (28, 5)
    assert order.unadvertise(4)
    assert shown(order, "price > 0") == (23, 4)
    assert order.get(filter_of("price > 5")) is None
    assert not order.unadvertise(4)
    for key in range(4):
        assert order.unadvertise(key)
    order.check_invariants()
    assert len(order) == order.advertisements == 0


def test_what_several_successors_share_counts_once() -> None:
    order = FilterPoset()
    advertise(order, ("x > 5 AND y > 5", 1), ("x > 5", 10), ("y > 5", 100))
    advertise(order, ("x > 0 OR y > 0", 1_000))
    assert shown(order, "x > 0 OR y > 0") == (1_111, 4)
    assert shown(order, "x > 5") == (11, 2)


def test_one_advertisement_of_a_filter_stays_when_another_goes() -> None:
    order = first_tree()
    advertise(order, ("price > 5", 3))
    assert order.unadvertise(1)
    assert shown(order, "price > 5") == (3, 1)
    assert shown(order, "price > 0") == (11, 3)


def test_the_same_key_again_replaces_what_was_advertised() -> None:
    order = first_tree()
    order.advertise(1, filter_of("price > 5"), 2)
    assert shown(order, "price > 0") == (10, 3)
    order.advertise(1, filter_of("price > 6"), 2)
    assert order.get(filter_of("price > 5")) is None
    assert shown(order, "price > 0") == (10, 3)


def test_filters_that_mean_the_same_are_one() -> None:
    order = FilterPoset()
    pairs = (
        ("x > 5 AND y = 1", "NOT (x <= 5) AND y IN (1)"),
        ("x = 1 OR x = 2", "x IN (1.0, 2)"),
        ("x = 1 AND (y = 1 OR y = 2)", "(x = 1 AND y = 1) OR (x = 1 AND y = 2)"),
        ("x > 1 OR y > 1", "y > 1 OR x > 2 OR x BETWEEN 1.5 AND 3 OR x > 1"),
    )
    for number, (one, other) in enumerate(pairs):
        order.advertise((number, 1), filter_of(one), 1)
        order.advertise((number, 2), filter_of(other), 2)
        found = order.get(filter_of(one))
        assert found is not None
        assert found.own == Sums(3_000, 2)
        order.check_invariants()
    assert len(order) == len(pairs)


def test_channels_are_part_of_a_filter() -> None:
    order = FilterPoset()
    for number, channel in enumerate(("site/1/temp", "site/2/temp", "site/2/hum", "$sys/load")):
        order.advertise(number, filter_of("value > 3", channel), 10**number)
    assert order.sum_covered(filter_of("TRUE", "site/+/temp")) == Sums(11_000, 2)
    assert order.sum_covered(filter_of("value > 2", "site/#")) == Sums(111_000, 3)
    assert order.sum_covered(filter_of("value > 4", "site/#")) == Sums(0, 0)
    assert order.sum_intersecting(filter_of("value > 4", "site/2/+")) == Sums(110_000, 2)
    assert order.sum_intersecting(filter_of("value < 4", "#")) == Sums(111_000, 3)
    assert order.sum_intersecting(filter_of("value < 4", "$sys/#")) == Sums(1_000_000, 1)


def test_advertisements_by_node() -> None:
    order = FilterPoset()
    order.advertise(1, filter_of("x > 1"), 1, "denver")
    order.advertise(2, filter_of("x > 1"), 10, "orlando")
    order.advertise(3, filter_of("x > 2"), 100, "orlando")
    asked = filter_of("x > 0")
    assert order.sum_covered(asked, frozenset({"denver"})) == Sums(1_000, 1)
    assert order.sum_covered(asked, frozenset({"orlando"})) == Sums(110_000, 2)
    assert order.sum_intersecting(asked, frozenset({"denver", "orlando"})) == Sums(111_000, 3)
    assert order.sum_covered(asked, frozenset({"seattle"})) == Sums(0, 0)
    order.unadvertise(1)
    order.check_invariants()
    assert order.sum_covered(asked, frozenset({"denver"})) == Sums(0, 0)
    assert order.sum_covered(asked, frozenset({"orlando"})) == Sums(110_000, 2)


@pytest.mark.parametrize("rate_hz", [-1, float("nan"), float("inf"), 1e10])
def test_rates_that_are_none(rate_hz: float) -> None:
    with pytest.raises(AdmissionError, match="rate_hz: expected 0 to 1,000,000,000"):
        FilterPoset().advertise(1, filter_of("x = 1"), rate_hz)


def test_rates_are_rounded_up_and_never_by_what_floats_lack() -> None:
    assert to_units(0.1) == 100
    assert to_units(0.0001) == 1
    assert to_units(1 / 3) == 334
    assert to_units(1.1 * 3) == 3_300


def test_bad_advertisements_change_nothing() -> None:
    order = FilterPoset(advertisements_limit=2, general_limit=1)
    order.advertise(1, filter_of("x = 1"), 1)
    order.advertise(2, filter_of("x > 1 OR y > 1"), 1)
    with pytest.raises(AdmissionError, match="expected one that some event can match"):
        order.advertise(2, filter_of("x > 1 AND x < 0"), 1)
    with pytest.raises(AdmissionError, match="expected at most 2 at a time"):
        order.advertise(3, filter_of("x = 1"), 1)
    with pytest.raises(AdmissionError, match="conjunction of conditions"):
        order.advertise(1, filter_of("x > 1 OR z > 1"), 1)
    with pytest.raises(AdmissionError, match="at most 4 alternatives, got 8"):
        order.advertise(
            1, filter_of("(a = 1 OR b = 1) AND (c = 1 OR d = 1) AND (e = 1 OR f = 1)"), 1
        )
    with pytest.raises(AdmissionError, match="channel: expected a wildcard"):
        filter_of("x = 1", "a/b+")
    order.check_invariants()
    assert order.look_up(filter_of("FALSE")).intersecting == Sums(0, 0)
    assert order.advertisements == 2
    order.advertise(2, filter_of("x > 1 OR y > 1"), 5)
    assert order.sum_covered(filter_of("TRUE")) == Sums(6_000, 2)


changes = st.lists(
    st.tuples(
        st.integers(0, 9),  # which advertisement
        st.none() | filters,  # taken back, or made
        st.sampled_from([0, 0.5, 3, 10]),
        st.sampled_from(NODES),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(changes, filters, st.frozensets(st.sampled_from(NODES)))
def test_rates_and_counts_are_those_of_brute_force(
    steps: list[tuple[int, Filter | None, float, str]], asked: Filter, nodes: frozenset[str]
) -> None:
    order, brute = FilterPoset(), Brute()
    for key, filter_, rate_hz, node in steps:
        if filter_ is None:
            assert order.unadvertise(key) is (brute.advertised.pop(key, None) is not None)
        elif filter_.terms:
            order.advertise(key, filter_, rate_hz, node)
            brute.advertised[key] = filter_, to_units(rate_hz), node
    order.check_invariants()
    present = brute.filters()
    assert len(order) == len(present)
    for filter_ in present:
        found = order.get(filter_)
        assert found is not None
        assert found.total == brute.covered(found.filter)
        above = brute.predecessors(found.filter)
        assert_same(order.predecessors(filter_), above)
        assert_same(order.successors(filter_), brute.successors(found.filter))
    assert order.sum_covered(asked, nodes) == brute.covered(asked, nodes)
    assert order.sum_intersecting(asked, nodes) == brute.intersecting(asked, nodes)
    by_node = {node: brute.intersecting(asked, frozenset((node,))) for node in NODES}
    found_by_node = order.intersecting_by_node(asked)
    assert found_by_node == {node: sums for node, sums in by_node.items() if sums.count}
    if asked.terms:
        assert_same(order.successors(asked), brute.successors(asked))
        found_ = order.look_up(asked)
        assert found_.covered == brute.covered(asked)
        assert found_.intersecting == brute.intersecting(asked)


def assert_same(found: list[AdvertisedFilter], expected: list[Filter]) -> None:
    assert len(found) == len(expected)
    assert all(any(is_same(each.filter, other) for other in expected) for each in found)


@pytest.mark.parametrize("seed", range(2))
def test_so_many_that_leaves_are_divided_and_dissolved(seed: int) -> None:
    random = Random(seed)  # noqa: S311 (to be replayed)
    order, brute = FilterPoset(), Brute()
    for key in range(800):
        filter_ = random_filter(random)
        node = random.choice(NODES)
        order.advertise(key, filter_, 1, node)
        brute.advertised[key] = filter_, 1_000, node
    order.check_invariants()
    for step, key in enumerate(random.sample(range(800), 770)):
        assert order.unadvertise(key)
        del brute.advertised[key]
        if step % 110 == 0:
            order.check_invariants()
            for _ in range(10):
                asked = random_filter(random)
                assert order.sum_covered(asked) == brute.covered(asked)
                assert order.sum_intersecting(asked) == brute.intersecting(asked)
                for node, sums in order.intersecting_by_node(asked).items():
                    assert sums == brute.intersecting(asked, frozenset((node,)))
    for filter_ in brute.filters():
        found = order.get(filter_)
        assert found is not None
        assert found.total == brute.covered(found.filter)


def test_too_much_to_compare_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_relations, "MAX_COMPARED", 20)
    order = FilterPoset()
    for number in range(30):
        order.advertise(number, filter_of(f"x BETWEEN {number} AND 9999 AND y > {number}"), 1)
    # Three terms cover some of them together and most alone: there is little to compare.
    asked = filter_of("(x > -1 AND y > 3) OR (x > -1 AND y <= 5) OR (x > 9000 AND z = 1)")
    found = order.look_up(asked)
    assert not found.is_approximate
    assert found.covered == Sums(30_000, 30)
    asked = filter_of("(x > -1 AND y < 300) OR (x > -1 AND y >= 299)")
    found = order.look_up(asked)
    assert found.is_approximate
    assert found.covered == Sums(20_000, 20)
    assert found.intersecting == Sums(30_000, 30)
    order.advertise("odd", asked, 1)
    assert shown(order, str(asked.predicate)) == (21, 21)
    for number in range(15):
        order.unadvertise(number)
        order.check_invariants()
    assert shown(order, str(asked.predicate)) == (16, 16)
