from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.tiers.custody import SeenEvents


def test_what_comes_again_is_known() -> None:
    seen = SeenEvents()
    assert seen.is_new(("a", 1))
    assert not seen.is_new(("a", 1))
    assert seen.is_new(("b", 1))
    assert ("a", 1) in seen
    assert ("a", 2) not in seen


def test_the_oldest_are_forgotten() -> None:
    seen = SeenEvents(generation=2)
    for number in range(1, 7):
        assert seen.is_new(("a", number))
        seen.check_invariants()
    assert ("a", 6) in seen
    assert ("a", 1) not in seen


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(1, 8))
def test_a_generation_is_always_known(numbers: list[int], generation: int) -> None:
    seen = SeenEvents(generation)
    new: list[int] = []
    for number in numbers:
        lately = new[-generation:]
        if seen.is_new(("a", number)):
            assert number not in lately
            new.append(number)
        else:
            assert number in new
        seen.check_invariants()
        assert len(seen) <= 2 * generation


def test_no_generation_is_refused() -> None:
    with pytest.raises(ValueError, match="generation: expected at least 1, got 0"):
        SeenEvents(0)
