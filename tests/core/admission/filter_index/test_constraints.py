"""What filters allow of an attribute, as numbers in columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.admission.filter_index.test_dictionary import allowed

from accord.core.admission.filter_index.constraints import (
    NUMBERS,
    ask_codes,
    ask_spans,
    set_of,
    span_of,
)
from accord.core.admission.filter_index.patterns import Relation
from accord.core.admission.filter_index.range_sets import is_related
from accord.core.predicates.value_sets import ValueSet

numbers = st.sampled_from([-1, 0, 0.5, 1, 2, 3, 7, 2**53, 2**62 + 1, 1e300])
ranges = st.builds(
    lambda low, high, above, below: allowed(f"x {above} {low} AND x {below} {high}"),
    numbers.filter(lambda number: number < 3),
    numbers.filter(lambda number: number >= 3),
    st.sampled_from([">", ">="]),
    st.sampled_from(["<", "<="]),
)
several = st.lists(numbers, min_size=1, max_size=3).map(
    lambda values: allowed(f"x IN ({', '.join(map(str, values))})")
)


@pytest.mark.parametrize("where", ["x > 5", "x <= 2.5", "x = 1", "x BETWEEN 1 AND 2"])
def test_ranges_of_numbers_are_spans(where: str) -> None:
    span = span_of(allowed(where))
    assert span is not None
    assert set_of(span) == allowed(where)


@pytest.mark.parametrize("where", ["x IN (1, 3)", "x = 'a'", "x IS NULL", f"x = {2**62 + 1}"])
def test_all_else_is_none(where: str) -> None:
    assert span_of(allowed(where)) is None


@settings(max_examples=200, deadline=None)
@given(st.lists(ranges, min_size=1), ranges | several, st.sampled_from(Relation))
def test_spans_are_related_as_the_sets_they_stand_for(
    present: list[ValueSet], asking: ValueSet, relation: Relation
) -> None:
    spans = [(each, span) for each in present if (span := span_of(each)) is not None]
    low = np.array([span.low for _, span in spans])
    high = np.array([span.high for _, span in spans])
    test = ask_spans(relation, asking, NUMBERS)
    expected = [is_related(relation, asking, each) for each, _ in spans]
    assert test.holds(low, high).tolist() == expected
    if spans:
        bounds = ((low.min(keepdims=True), low.max(keepdims=True)),
                  (high.min(keepdims=True), high.max(keepdims=True)))  # fmt: skip
        assert test.may_hold(*bounds)[0] or not any(expected)
        assert not test.must_hold(*bounds)[0] or all(expected)


@given(st.sets(st.integers(0, 20)), st.lists(st.integers(0, 25), min_size=1))
def test_codes_are_found_whether_they_follow_each_other_or_not(
    wanted: set[int], present: list[int]
) -> None:
    values = np.array(present, dtype=np.float64)
    test = ask_codes(np.array(sorted(wanted), dtype=np.int64))
    assert test.holds(values, values).tolist() == [each in wanted for each in present]
