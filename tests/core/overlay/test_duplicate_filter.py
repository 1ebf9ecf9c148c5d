from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.overlay.duplicate_filter import WINDOW, DuplicateFilter


def test_the_first_copy_is_new() -> None:
    duplicates = DuplicateFilter()
    assert [duplicates.is_new("a", 1, number) for number in (1, 2, 2, 1, 4, 3, 4, 3)] == [
        True, True, False, False, True, True, False, False,
    ]  # fmt: skip


def test_sources_and_their_starts_count_for_themselves() -> None:
    duplicates = DuplicateFilter()
    assert duplicates.is_new("a", 1, 7)
    assert duplicates.is_new("b", 1, 7)
    assert duplicates.is_new("a", 2, 7)
    assert not duplicates.is_new("a", 1, 7)
    assert len(duplicates) == 3


def test_what_is_far_behind_counts_as_seen() -> None:
    duplicates = DuplicateFilter()
    assert duplicates.is_new("a", 1, 100_000)
    assert not duplicates.is_new("a", 1, 100_000 - WINDOW)
    assert duplicates.is_new("a", 1, 100_001 - WINDOW)
    assert not duplicates.is_new("a", 1, 100_001 - WINDOW)


def test_a_jump_ahead_leaves_the_old_behind() -> None:
    duplicates = DuplicateFilter()
    assert duplicates.is_new("a", 1, 5)
    assert duplicates.is_new("a", 1, 10**12)
    assert not duplicates.is_new("a", 1, 6)
    assert duplicates.is_new("a", 1, 10**12 - 1)
    duplicates.check_invariants()


def test_numbers_that_share_a_place_are_told_apart() -> None:
    duplicates = DuplicateFilter()
    for number in range(0, 5 * WINDOW, WINDOW // 2):
        assert duplicates.is_new("a", 1, number)
        assert not duplicates.is_new("a", 1, number)


def test_every_number_of_a_long_run_is_new_once() -> None:
    duplicates = DuplicateFilter()
    for number in range(WINDOW + 10_000):
        assert duplicates.is_new("a", 1, number)
    assert not any(duplicates.is_new("a", 1, number) for number in range(WINDOW + 10_000))
    duplicates.check_invariants()


def test_the_source_that_was_silent_longest_is_forgotten() -> None:
    duplicates = DuplicateFilter(2)
    assert duplicates.is_new("a", 1, 1)
    assert duplicates.is_new("b", 1, 1)
    assert not duplicates.is_new("a", 1, 1)
    assert duplicates.is_new("c", 1, 1)
    assert not duplicates.is_new("a", 1, 1)
    assert duplicates.evicted == 1
    assert duplicates.is_new("b", 1, 1)
    duplicates.check_invariants()


def test_a_source_can_be_forgotten_on_purpose() -> None:
    duplicates = DuplicateFilter()
    assert duplicates.is_new("a", 1, 1)
    assert duplicates.is_new("a", 2, 1)
    assert duplicates.is_new("b", 1, 1)
    duplicates.remove("a")
    assert len(duplicates) == 1
    assert duplicates.is_new("a", 2, 1)
    assert not duplicates.is_new("b", 1, 1)
    assert duplicates.evicted == 0


def test_room_for_nobody_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="most_sources: expected at least 1, got 0"):
        DuplicateFilter(0)


class Model:
    """All that was ever seen."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int, int]] = set()
        self.newest: dict[tuple[str, int], int] = {}

    def is_new(self, source: str, incarnation: int, number: int) -> bool:
        key = (source, incarnation, number)
        newest = max(self.newest.get(key[:2], number), number)
        self.newest[key[:2]] = newest
        if key in self.seen or number <= newest - WINDOW:
            return False
        self.seen.add(key)
        return True


def steps() -> st.SearchStrategy[int]:
    """Onwards and back, mostly a little, now and then by about a window or a block."""
    near = st.integers(-20, 20)
    far = st.sampled_from((WINDOW, -WINDOW, WINDOW // 2, 4_096, -4_096, 10 * WINDOW))
    return near | st.builds(lambda one, other: one + other, near, far)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2), steps()), max_size=200),
    st.integers(-10, 10**9),
)
def test_a_set_of_all_numbers_says_the_same(moves: list[tuple[str, int, int]], start: int) -> None:
    duplicates, model = DuplicateFilter(), Model()
    at = dict.fromkeys([(source, incarnation) for source in "abc" for incarnation in (1, 2)], start)
    for source, incarnation, step in moves:
        number = at[source, incarnation] = at[source, incarnation] + step
        expected = model.is_new(source, incarnation, number)
        assert duplicates.is_new(source, incarnation, number) == expected
        duplicates.check_invariants()
