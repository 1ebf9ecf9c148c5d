"""What subscriptions need, against streams that keep their advertisements."""

from __future__ import annotations

from itertools import product
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.admission.advertised import filter_of, filters

from accord.core.admission.admission import Admission
from accord.core.admission.demand import Basis, DemandEstimator, Interval, Measured, measured
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_poset import FilterPoset
from accord.core.admission.options import Guarantee
from accord.core.admission.reservation import ReservationState
from accord.core.admission.resources import CPU
from accord.core.model.channels import filter_selects
from accord.core.model.estimator import RateEstimator
from accord.core.model.values import Value
from accord.core.monitoring.measurement_registry import MeasurementRegistry, subject_of

DEU = "name = 'DEU'"
NAMES = ("a", "b", "a/b", "a/b/c", "a/x", "$s/a", "x/b", "x")
VALUES: tuple[Value | None, ...] = (
    None,
    0,
    1,
    1.5,
    2,
    2.5,
    5,
    7,
    2**62 + 1,
    "",
    "a",
    "ab",
    "b",
    True,
)
EVENTS: list[tuple[str, dict[str, Value]]] = [
    (channel, {name: value for name, value in (("x", x), ("y", y)) if value is not None})
    for channel, x, y in product(NAMES, VALUES, VALUES)
]


def figure_5() -> DemandEstimator:
    order = FilterPoset()
    for number, (where, rate_hz) in enumerate(
        (
            ("price > 0", 4),
            (f"price > 3 AND {DEU}", 4),
            ("price > 9", 4),
            (f"price > 8 AND {DEU}", 11),
            ("price > 5", 5),
            (f"price > 7 AND {DEU}", 3),
        )
    ):
        order.advertise(number, filter_of(where), rate_hz)
    return DemandEstimator(order)


def test_figure_5() -> None:
    need = figure_5().estimate(filter_of(f"price > 2 AND {DEU}"))
    assert need.paper_rate_hz == Interval(18, 31)
    assert need.paper_count == Interval(3, 6)
    assert not need.is_advertised
    assert need.rate_hz == Interval(18, 31)


def test_an_advertised_filter_needs_its_rate() -> None:
    needs = figure_5()
    need = needs.estimate(filter_of("price > 5"))
    assert need.is_advertised
    assert need.paper_rate_hz == Interval(23, 23)
    assert need.paper_count == Interval(4, 4)
    assert needs.requested_hz(filter_of("price > 5"), Basis.PAPER) == 23
    # Others may also publish what it asks for.
    assert need.rate_hz == Interval(23, 31)
    assert needs.requested_hz(filter_of("price > 5")) == 31


def test_bounds_are_tighter_where_filters_lie_apart() -> None:
    needs = figure_5()
    need = needs.estimate(filter_of("price > 0 AND price < 6 AND name = 'FRA'"))
    assert need.paper_rate_hz == Interval(0, 31)
    assert need.rate_hz == Interval(0, 9)
    wide = needs.estimate(filter_of("TRUE"))
    assert wide.paper_rate_hz == Interval(31, inf)
    assert wide.rate_hz == Interval(31, 31)
    assert needs.requested_hz(filter_of("TRUE"), Basis.PAPER) == 31


def test_the_papers_maximum_is_too_small_where_an_advertisement_reaches_out() -> None:
    order = FilterPoset()
    order.advertise(1, filter_of("price > 0"), 5)
    order.advertise(2, filter_of(DEU), 10)  # at any price
    need = DemandEstimator(order).estimate(filter_of("price > 1"))
    assert need.paper_rate_hz == Interval(0, 5)
    assert need.rate_hz == Interval(0, 15)


def test_estimates_take_some_room_and_never_exceed_what_was_promised() -> None:
    needs = DemandEstimator(figure_5().poset, margin=1.5)
    asked = filter_of("price > 5")
    assert needs.requested_hz(asked, Basis.ESTIMATE, measured=Measured(10)) == 15
    assert needs.requested_hz(asked, Basis.ESTIMATE, measured=Measured(30)) == 31
    assert needs.requested_hz(asked, Basis.ESTIMATE, measured=Measured()) == 31
    assert needs.requested_hz(asked, Basis.ESTIMATE) == 31
    assert needs.estimate(asked, measured=Measured(10)).estimate_hz == 10


def test_what_was_measured_is_found_in_the_registry() -> None:
    registry = MeasurementRegistry()

    def known(kind: str, subject: str, name: str) -> float | None:
        return registry.get(kind, subject, name, now_ms=0)

    assert measured(known, "market", "price > 5") == Measured(None, None)
    registry.put("channel", "market", "rate_hz", 40, at_ms=0)
    registry.put("channel", "market", "bytes_per_s", 4_000, at_ms=0)
    assert measured(known, "market") == Measured(40, 100)
    assert measured(known, "market", "price > 5") == Measured(None, 100)
    subject = subject_of("market", "price > 5", "")
    registry.put("predicate", subject, "selectivity", 0.25, at_ms=0)
    assert measured(known, "market", "price > 5") == Measured(10, 100)
    registry.put("predicate", subject, "rate_hz", 12, at_ms=0)
    registry.put("predicate", subject, "bytes_per_s", 600, at_ms=0)
    # The channel's rate is the fresher one.
    assert measured(known, "market", "price > 5") == Measured(10, 50)
    registry.put("channel", "market", "rate_bound_hz", 48, at_ms=0)
    assert measured(known, "market", "price > 5") == Measured(10, 50, 12)
    # Of a filter there is no such rate.
    registry.put("predicate", subject_of("market/#", "price > 5", ""), "rate_hz", 9, at_ms=0)
    wide = measured(known, "market/#", "price > 5")
    assert (wide, wide.reserved_hz) == (Measured(9), 9)
    registry.put("predicate", subject_of("market/#", "price > 5", ""), "rate_bound_hz", 11, at_ms=0)
    wide = measured(known, "market/#", "price > 5")
    assert (wide, wide.reserved_hz) == (Measured(9, None, 11), 11)


def test_what_is_reserved_after_a_step_is_not_too_little() -> None:
    """A channel steps from 5 to 60 events per second: ten seconds later that is what it needs."""
    estimator, registry, admission = RateEstimator(), MeasurementRegistry(), Admission("a", 1)
    admission.set_capacity(CPU, 300_000)  # 300 events per second: four subscribers with a margin
    admission.advertise("ann", "trades", filter_of("price > 0"), 10_000, 0)
    for second in range(1, 400):
        estimator.add((second - 1) * 1_000, second * 1_000, 60 if second > 390 else 5, 0)
    rate = estimator.rate(399_000)
    registry.put("channel", "market", "rate_hz", rate.hz, at_ms=399_000)
    registry.put("channel", "market", "rate_bound_hz", rate.bound_hz, at_ms=399_000)

    def known(kind: str, subject: str, name: str) -> float | None:
        return registry.get(kind, subject, name, now_ms=399_000)

    needed, admitted = measured(known, "market"), 0
    for number in range(40):
        outcome = admission.subscribe(
            f"client {number}",
            "market",
            filter_of("TRUE"),
            now_us=0,
            guarantee=Guarantee(basis=Basis.ESTIMATE),
            measured=needed,
        )
        assert outcome is not None
        admitted += outcome.state is ReservationState.ADMITTED
    assert 3 <= admitted <= 300 // 60
    assert admission.estimate_demand(filter_of("TRUE"), needed).estimate_hz == rate.hz


def matching(filter_: Filter) -> list[int]:
    """Which of all events it matches."""
    return [
        number
        for number, (channel, values) in enumerate(EVENTS)
        if filter_selects(filter_.channel, channel) and filter_.predicate.evaluate(values) is True
    ]


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(filters, st.integers(1, 9)), max_size=8), filters, st.data())
def test_bounds_contain_the_truth_of_every_stream(
    advertised: list[tuple[Filter, int]], asked: Filter, data: st.DataObject
) -> None:
    """Publishers publish what they promised at most, of whatever their filters allow."""
    order = FilterPoset()
    stream: list[int] = []
    publishers = 0
    wanted = set(matching(asked))
    for number, (filter_, rate_hz) in enumerate(advertised):
        possible = matching(filter_)
        if not possible or not filter_.terms:
            continue
        order.advertise(number, filter_, rate_hz)
        chosen = data.draw(st.lists(st.sampled_from(possible), min_size=rate_hz, max_size=rate_hz))
        stream += chosen
        publishers += bool(wanted.intersection(chosen))
    truth_hz = sum(event in wanted for event in stream)
    need = DemandEstimator(order).estimate(asked)
    assert need.rate_hz.low <= truth_hz <= need.rate_hz.high
    assert need.count.low <= publishers <= need.count.high
    assert need.paper_rate_hz.low <= truth_hz or need.is_advertised
    assert need.paper_rate_hz.low <= need.rate_hz.low
