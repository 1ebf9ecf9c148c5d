from __future__ import annotations

import pytest

from accord.apps.five_cities.cities import CityChannel
from accord.apps.five_cities.phases import ChannelLatencies

CHANNEL = CityChannel("alert", "Washington", 100)


def metered(*events: tuple[float, float | None]) -> ChannelLatencies:
    """Events with when each is published, and how long it takes; None: it never comes."""
    meter = ChannelLatencies(CHANNEL)
    came = []
    for published_s, took_s in events:
        number = meter.publish(published_s)
        if took_s is not None:
            came.append((published_s + took_s, number))
    for at_s, number in sorted(came):
        meter.receive(number, at_s)
    return meter


def test_what_came_is_counted_and_what_did_not_is_lost() -> None:
    meter = metered((0.0, 0.05), (0.1, 0.2), (0.2, None))
    assert (meter.published, meter.delivered, meter.lost) == (3, 2, 1)
    assert (meter.late, meter.duplicates) == (1, 0)


def test_what_comes_twice_counts_as_that() -> None:
    meter = metered((0.0, 0.05))
    meter.receive(0, 0.06)
    assert (meter.delivered, meter.duplicates) == (1, 1)


def test_a_violation_lasts_until_the_last_late_event() -> None:
    meter = metered(
        (0.9, 0.05), (0.99, 0.2), (1.1, 0.2), (1.2, 0.05), (1.3, 0.11), (1.4, 0.05), (1.5, 0.04)
    )
    span = meter.measure(1.0, 3.0)
    assert span.late == 3, "the one on its way when it began belongs to it"
    assert span.violated_s == pytest.approx(0.3)
    assert span.delivered == 6
    assert span.longest_s == pytest.approx(0.2)


def test_what_is_late_long_after_a_change_has_other_reasons() -> None:
    meter = metered((1.1, 0.2), (1.2, 0.05), (1.9, 0.2))
    assert meter.measure(1.0, 3.0).late == 2
    assert meter.measure(1.0, 3.0).violated_s == pytest.approx(0.1)


def test_nothing_late_is_no_violation() -> None:
    span = metered((1.1, 0.05), (1.2, 0.02), (1.3, 0.03)).measure(1.0, 2.0)
    assert (span.late, span.violated_s) == (0, 0.0)
    assert span.median_s == pytest.approx(0.03)


def test_the_longest_gap_begins_with_the_last_delivery_before() -> None:
    meter = metered((0.8, 0.05), (0.9, 0.05), (1.3, 0.05), (1.4, 0.05))
    assert meter.measure(1.0, 2.0).gap_s == pytest.approx(0.4)
    assert meter.measure(0.0, 1.0).gap_s == pytest.approx(0.1)


def test_a_span_without_events() -> None:
    span = metered((5.0, 0.01)).measure(0.0, 1.0)
    assert (span.delivered, span.gap_s, span.median_s, span.longest_s) == (0, 0.0, 0.0, 0.0)
