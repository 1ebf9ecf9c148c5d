from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.quality.properties import (
    MAX_PROPERTIES,
    SHIPPED,
    Better,
    HopEffect,
    Property,
    PropertyRegistry,
    QualityError,
    Value,
)

REGISTRY = PropertyRegistry()
TRUST = REGISTRY.get("trust")
RATE = REGISTRY.get("rate")
LATENCY = REGISTRY.get("latency")


def test_what_ships() -> None:
    assert [each.name for each in SHIPPED] == [
        "rate",
        "confidence",
        "precision",
        "latency",
        "freshness",
        "trust",
        "order",
        "reliability",
    ]
    measured = [each.name for each in SHIPPED if each.is_measured]
    assert measured == ["latency", "order", "reliability"]


def test_values_compare_through_their_property_only() -> None:
    assert RATE.is_better(700.0, 300.0)
    assert LATENCY.is_better(300.0, 700.0)
    assert TRUST.is_better("high", "low"), "not as the alphabet has it"
    assert not TRUST.is_better("low", "low")
    assert TRUST.from_score(TRUST.score("medium")) == "medium"
    assert LATENCY.from_score(LATENCY.score(40.0)) == 40.0


@pytest.mark.parametrize(
    ("property_", "value", "problem"),
    [
        (RATE, -1.0, r"rate: expected a number within 0\.\.inf, got -1"),
        (RATE, "fast", "expected a number within .* got 'fast'"),
        (RATE, math.nan, "expected a number"),
        (RATE, True, "expected a number"),
        (RATE, 1e16, "expected a number"),
        (TRUST, "huge", "trust: expected one of none, low, medium, high, got 'huge'"),
        (TRUST, 2.0, "expected one of none, low, medium, high, got 2"),
    ],
)
def test_what_is_not_in_the_domain(property_: Property, value: Value, problem: str) -> None:
    with pytest.raises(QualityError, match=problem):
        property_.position(value)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "a b"}, "expected a letter"),
        ({"name": "x" * 65}, "65 characters, at most 64"),
        ({"name": "utility"}, "utility: is no property's name"),
        ({"lowest": 5.0, "highest": 5.0}, r"range: expected the lower number first, got 5\.\.5"),
        ({"highest": math.nan}, "range: expected numbers"),
        ({"highest": 1e16}, "range: expected numbers"),
        ({"levels": ("a", "a")}, "levels: expected each once, got a < a"),
        ({"levels": ("a", "b c")}, "levels: expected a letter"),
        ({"levels": ("a", "b"), "over_hops": HopEffect.ADD}, "levels don't add"),
        ({"over_hops": HopEffect.MULTIPLY}, r"expected a range such as 0\.\.100, got 0\.\.inf"),
        ({"unit": "m\n"}, "unit: expected at most 16 characters"),
    ],
)
def test_properties_that_make_no_sense(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(QualityError, match=problem):
        Property(**{"name": "p", "better": Better.LOWER, **fields})  # type: ignore[arg-type]


def test_over_hops() -> None:
    reliability, order = REGISTRY.get("reliability"), REGISTRY.get("order")
    assert LATENCY.over_hop(20.0, 5.0) == 25.0
    assert reliability.over_hop(90.0, 50.0) == 45.0
    assert order.over_hop("total", "publisher") == "publisher"
    assert order.over_hop("none", "publisher") == "none"
    assert RATE.over_hop(3.0, 9.0) == 3.0
    assert LATENCY.before_hop(25.0, 5.0) == 20.0
    assert LATENCY.before_hop(3.0, 5.0) == 0.0, "the best there is"
    assert reliability.before_hop(45.0, 50.0) == 90.0
    assert reliability.before_hop(45.0, 0.0) == 100.0


@pytest.mark.parametrize("property_", [LATENCY, REGISTRY.get("reliability")])
@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 100))
def test_a_hop_keeps_the_order_of_what_is_better(
    property_: Property, one: float, other: float, link: float
) -> None:
    if property_.score(one) >= property_.score(other):
        after = property_.over_hop(one, link), property_.over_hop(other, link)
        assert property_.score(after[0]) >= property_.score(after[1])


def test_definitions_at_run_time() -> None:
    registry = PropertyRegistry()
    colour = Property(name="colour", better=Better.HIGHER, levels=("grey", "full"))
    with pytest.raises(QualityError, match="'colour': no such property; expected one of rate"):
        registry.get("colour")
    registry.define(colour)
    assert registry.get("colour") == colour
    assert "colour" in registry
    registry.check_invariants()
    registry.remove("colour")
    assert "colour" not in registry
    for number in range(MAX_PROPERTIES - len(registry)):
        registry.define(Property(name=f"p{number}", better=Better.LOWER))
    with pytest.raises(QualityError, match="1000 properties are defined already"):
        registry.define(colour)
    registry.define(RATE)
