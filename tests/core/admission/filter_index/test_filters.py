"""What makes filters the same, and how they relate."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.core.admission.advertised import filter_of, filters

from accord.core.admission.filter_index.filters import Filter, covers, intersects
from accord.core.model.errors import AdmissionError


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x > 5 AND y = 1", "y = 1.0 AND NOT x <= 5"),
        ("x IN (1, 2)", "x = 2 OR x = 1"),
        ("x > 1 AND x > 2", "x > 2"),
        ("TRUE", "x = 1 OR TRUE"),
    ],
)
def test_identity_is_of_what_is_matched_not_of_how_it_is_written(one: str, other: str) -> None:
    assert filter_of(one).identity == filter_of(other).identity
    assert filter_of(one).identity != filter_of(other, "elsewhere").identity
    assert filter_of(one).identity != filter_of("z = 3").identity


def test_boxes_are_conjunctions_of_conditions_on_single_attributes() -> None:
    box = filter_of("x > 1 AND y IN ('a', 'b') AND x < 5").box
    assert box is not None
    assert list(box) == ["x", "y"]
    assert filter_of("TRUE").box == {}
    assert filter_of("x > 1 OR y > 1").box is None
    assert filter_of("x > y").box is None


def test_a_filter_needs_a_channel_filter() -> None:
    with pytest.raises(AdmissionError, match="channel: "):
        filter_of("x = 1", "a/#/b")


@settings(max_examples=100, deadline=None)
@given(filters, filters)
def test_relations_do_not_contradict_each_other(one: Filter, other: Filter) -> None:
    assert covers(one, one)
    if covers(one, other) and other.terms:
        assert intersects(one, other) is not False
        assert intersects(other, one) is not False
    if one.identity == other.identity:
        assert covers(one, other)
        assert covers(other, one)
