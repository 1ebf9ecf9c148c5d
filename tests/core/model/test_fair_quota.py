"""Room that several share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.bounded import FairQuota


def greedy(shares: FairQuota, who: str, size: int = 0) -> int:
    """How much one gets that takes all it can."""
    count = 0
    while shares.has_room(who, size):
        shares.take(who, size)
        shares.check_invariants()
        count += 1
    return count


def test_there_is_always_something_left_for_another() -> None:
    shares = FairQuota(1_000)
    assert [greedy(shares, who) for who in "abcdef"] == [500, 250, 125, 63, 31, 16]
    for _ in range(500):
        shares.release("a")
    assert greedy(shares, "b") == 133, "more than before, as there is more"
    assert greedy(shares, "a") == 191


def test_bytes_are_shared_as_well() -> None:
    shares = FairQuota(1_000, 10_000)
    assert greedy(shares, "a", 100) == 50
    assert not shares.has_room("b", 5_001)
    assert shares.has_room("b", 5_000)
    assert greedy(shares, "b", 1_000) == 3
    assert greedy(shares, "c") == 474, "what takes nothing is counted all the same"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.booleans()), max_size=60))
def test_it_is_known_who_has_what(steps: list[tuple[str, int, bool]]) -> None:
    shares = FairQuota(20, 200)
    held: list[tuple[str, int]] = []
    for who, size, is_more in steps:
        if is_more and shares.has_room(who, size):
            shares.take(who, size)
            held.append((who, size))
        elif not is_more and held:
            shares.release(*held.pop(size % len(held)))
        shares.check_invariants()
        assert (shares.count, shares.bytes) == (len(held), sum(size for _, size in held))
