"""What is read from JSON, and written to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.quality.costs import FREE, ConstantCost, LinearCost, TableCost
from accord.core.quality.expectations import PropertyRequirement
from accord.core.quality.json_forms import (
    ExpectationForm,
    advice_form,
    capabilities_form,
    parse_expectation,
    read_capabilities,
    read_cost,
    read_couplings,
    read_json,
    render_expectation,
    state_form,
    usage_form,
)
from accord.core.quality.matching import MatchState, UnmetReason
from accord.core.quality.messages import AdaptationDecision, Advice, StateChanged, UsageChanged
from accord.core.quality.properties import PropertyRegistry, QualityError

REGISTRY = PropertyRegistry()
VALUES = st.none() | st.floats(0, 100)
WISHES = st.builds(
    ExpectationForm,
    requirements=st.lists(
        st.builds(PropertyRequirement, st.sampled_from(["rate", "latency"]), VALUES, VALUES),
        min_size=1,
        unique_by=lambda each: each.property,
    ).map(tuple),
    utility=st.floats(0.1, 9),
    publishers=st.integers(1, 9),
    id=st.text("abc#/ ", max_size=9),
)


def test_a_single_value_is_the_worst_that_will_do() -> None:
    wish = parse_expectation({"rate": 5, "latency": 100, "trust": "low", "utility": 2}, REGISTRY)
    assert wish.requirements == (
        PropertyRequirement("rate", 5.0, None),
        PropertyRequirement("latency", None, 100.0),
        PropertyRequirement("trust", "low", None),
    )
    assert (wish.utility, wish.publishers, wish.id) == (2, 1, "")


@given(WISHES)
def test_a_wish_comes_back(wish: ExpectationForm) -> None:
    assert parse_expectation(json.loads(json.dumps(render_expectation(wish))), REGISTRY) == wish


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
))  # fmt: skip
def test_whatever_is_said_a_mistake_is_told(found: object) -> None:
    for form in ({"rate": found}, {"utility": found, "rate": 1}, {"id": found, "rate": 1}):
        assert mistaken(partial(parse_expectation, form, REGISTRY)).startswith("expect")
    place = mistaken(partial(read_capabilities, {"rate": found}), "capabilities.rate")
    assert place.startswith("capabilities.rate")


def mistaken(read: Callable[[], object], otherwise: str = "expect") -> str:
    """The place of the mistake, if there is one."""
    try:
        read()
    except QualityError as error:
        return error.place
    return otherwise


def test_costs() -> None:
    assert read_cost(0, "cost") == FREE
    assert read_cost(3, "cost") == ConstantCost(3)
    assert read_cost({"slope": 2}, "cost") == LinearCost(0, 2)
    assert read_cost([["low", 1], ["high", 9]], "cost") == TableCost((("low", 1.0), ("high", 9.0)))
    for form in ([], [[1, 0], [5, 9]], {"base": 1.0, "slope": 2.0}, 3):
        rate = {"rate": {"range": [1, 5], "current": 2, "cost": form}}
        assert capabilities_form(read_capabilities(rate)) == rate
    with pytest.raises(QualityError, match="cost: expected base, slope, got 'slop'"):
        read_cost({"slop": 1}, "cost")


def test_couplings() -> None:
    (coupling,) = read_couplings([{"of": "rate", "on": "confidence", "per_unit": -2}])
    assert (coupling.of, coupling.on, coupling.per_unit) == ("rate", "confidence", -2)
    for wrong in (3, [3], [{"of": 3, "on": "rate", "per_unit": 1}], [{"of": "rate", "on": "x"}]):
        with pytest.raises(QualityError, match="couplings"):
            read_couplings(wrong)


def test_what_is_heard() -> None:
    reasons = (UnmetReason("k", "rate", 3.0),)
    changed = StateChanged("s", "k", MatchState.SATISFIABLE, AdaptationDecision.ADAPTING, reasons)
    assert state_form(changed, "x", "lab/+") == {
        "expectation": "x",
        "channel": "lab/+",
        "state": "satisfiable",
        "decision": "adapting",
        "reasons": [{"property": "rate", "now": 3.0}],
    }
    assert advice_form(Advice("p", "c", "rate", 5.0, True)) == {
        "kind": "advice", "channel": "c", "property": "rate", "target": 5.0, "release": True,
    }  # fmt: skip
    assert usage_form(UsageChanged("p", "c", 2, 7.0)) == {
        "kind": "usage", "channel": "c", "expectations": 2, "utility": 7.0,
    }  # fmt: skip


def test_long_texts_are_not_read() -> None:
    with pytest.raises(QualityError, match="at most 16384 characters"):
        read_json(" " * 20_000, "expect")
