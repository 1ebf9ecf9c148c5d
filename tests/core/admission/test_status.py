from __future__ import annotations

from math import inf

import pytest
from tests.core.admission.advertised import filter_of
from tests.fake_admission import books, filters

from accord.core.admission import status as module
from accord.core.admission.demand import Interval
from accord.core.admission.filter_index.filters import Filter, covers
from accord.core.admission.filter_poset import FilterPoset
from accord.core.admission.status import (
    ReportedInterval,
    filter_statuses,
    pool_statuses,
    reported_interval,
)


def test_the_order_is_drawn_with_rates_and_counts() -> None:
    lines = filters()
    shown = {line.where: (line.rate_hz, line.count, line.own_rate_hz) for line in lines}
    assert shown == {
        "price > 0": (28, 5, 4),
        "price > 5": (20, 3, 5),
        "name = 'DEU' AND price > 3": (15, 2, 4),
        "name = 'DEU' AND price > 8": (11, 1, 11),
        "price > 9": (4, 1, 4),
    }
    below = {line.where: [lines[place].where for place in line.below] for line in lines}
    assert below["price > 0"] == ["price > 5", "name = 'DEU' AND price > 3"]
    assert below["price > 5"] == ["name = 'DEU' AND price > 8", "price > 9"]
    assert below["price > 9"] == []


def test_only_what_is_shown_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    order = FilterPoset()
    order.advertise("all", filter_of("TRUE", "#"), 1)
    for number in range(100):
        order.advertise(number, filter_of(f"price = {number}", f"m/{number}"), 1)
    compared: list[tuple[Filter, Filter]] = []

    def counting(wide: Filter, narrow: Filter) -> bool | None:
        compared.append((wide, narrow))
        return covers(wide, narrow)

    monkeypatch.setattr(module, "covers", counting)
    lines = list(filter_statuses(order, 10))[::-1]
    assert len(lines) == 10
    assert (lines[0].channel, lines[0].count, lines[0].below) == ("#", 101, tuple(range(1, 10)))
    assert len(compared) == 45


def test_resources_are_in_units_of_people() -> None:
    lines = {line.resource + line.of: line for line in pool_statuses("denver", books())}
    assert lines["cpu"].promised == 20
    assert (lines["cpu"].capacity, lines["cpu"].free) == (None, None)
    assert lines["bandwidthlink boston"].free == 0
    assert lines["memory"].free == 10_000_000 - 2 * 8_192


def test_what_has_no_end_is_null() -> None:
    assert reported_interval(Interval(1, inf)) == ReportedInterval(low=1, high=None)
    assert reported_interval(Interval(1, 2)) == ReportedInterval(low=1, high=2)
