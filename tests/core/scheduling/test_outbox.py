from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.importance import IMPORTANCES
from accord.core.scheduling.outbox import Outbox, Parcel, Run

ALL: Final = 1 << 40


def parcel(size: int = 1, importance: int = 3, count: int = 1) -> Parcel:
    return Parcel(size, count, importance, queued_ms=0, expires_ms=0)


def outbox(bytes_limit: int = 100, tracked_limit: int = 100, tracked_bytes: int = 100) -> Outbox:
    return Outbox(
        bytes_limit=bytes_limit, tracked_limit=tracked_limit, tracked_bytes_limit=tracked_bytes
    )


def test_the_important_goes_first_and_equals_in_order() -> None:
    box = outbox()
    first, second, urgent, tracked = parcel(), parcel(), parcel(importance=7), parcel()
    for each in (first, second, urgent):
        assert box.put(each) is None
    assert box.put_tracked(tracked) is None
    assert box.take(ALL, 10) == [urgent, tracked, first, second]
    assert box.is_empty()


def test_one_takes_at_least_what_was_wanted() -> None:
    box = outbox()
    some = [parcel(10) for _ in range(5)]
    for each in some:
        box.put(each)
    assert box.take(15, 0) == some[:2]
    assert box.bytes == 30
    assert box.take(1, 0) == some[2:3]
    assert box.take(0, 0) == []


def test_a_closed_window_holds_up_only_what_is_tracked() -> None:
    box = outbox()
    promised = [parcel() for _ in range(3)]
    for each in promised:
        box.put_tracked(each)
    plain = parcel(importance=0)
    box.put(plain)
    assert box.take(ALL, 2) == [*promised[:2], plain]
    assert box.take(ALL, 0) == []
    assert box.take(ALL, -1) == [], "more may be on its way than a new connection allows"
    assert box.take(ALL, 1) == promised[2:]


def test_full_the_oldest_of_the_least_important_gives_way() -> None:
    box = outbox(bytes_limit=30)
    important, old, older = parcel(10, importance=5), parcel(10), parcel(10)
    for each in (older, important, old):
        box.put(each)
    newcomer = parcel(15)
    assert box.put(newcomer) == [older, old]
    assert box.put(unimportant := parcel(10, importance=0)) == [unimportant]
    assert box.take(ALL, 0) == [important, newcomer]


def test_nobody_gives_way_to_what_can_never_be_queued() -> None:
    box = outbox(bytes_limit=30)
    waiting = parcel(30)
    box.put(waiting)
    huge = parcel(31, importance=7)
    assert box.put(huge) == [huge]
    assert box.take(ALL, 0) == [waiting]


def test_full_a_tracked_newcomer_is_refused_among_equals() -> None:
    box = outbox(tracked_limit=2)
    first, second, newcomer, urgent = parcel(), parcel(), parcel(), parcel(importance=4)
    for each in (first, second):
        box.put_tracked(each)
    assert box.put_tracked(newcomer) == [newcomer]
    assert box.put_tracked(urgent) == [second], "the newest of what is less important"
    assert box.take(ALL, 9) == [urgent, first]


def test_as_many_give_way_as_are_needed() -> None:
    box = outbox(tracked_bytes=10)
    small, middling = parcel(1, importance=0), parcel(5, importance=1)
    box.put_tracked(small)
    box.put_tracked(middling)
    assert box.put_tracked(parcel(9, importance=5)) == [small, middling]
    assert box.tracked_bytes == 9
    too_large = parcel(11, importance=7)
    assert box.put_tracked(too_large) == [too_large], "and none for nothing"


def test_what_was_promised_is_queued_beyond_the_limits() -> None:
    box = outbox(tracked_limit=1)
    promised = [parcel(), parcel(), parcel()]
    for each in promised:
        assert box.put_tracked(each, is_promised=True) is None
    newcomer, urgent = parcel(), parcel(importance=7)
    assert box.put_tracked(newcomer) == [newcomer]
    assert box.put_tracked(urgent) == [promised[2]], "one for one"
    assert box.take(ALL, 9) == [urgent, *promised[:2]]


def test_what_is_dropped_is_not_counted_any_more() -> None:
    box = outbox()
    plain, tracked = parcel(5), parcel(7)
    box.put(plain)
    box.put_tracked(tracked)
    assert box.drop_untracked() == [plain]
    assert (box.bytes, box.tracked_bytes) == (0, 7)
    box.drop_tracked()
    assert box.is_empty()
    assert box.take(ALL, 9) == []


def test_events_and_bytes_that_wait_by_importance() -> None:
    box = outbox()
    box.put(Run(b"frames", 3, 3, 0))
    box.put_tracked(parcel(2, importance=3))
    box.put(parcel(4, importance=7))
    assert box.depth() == [0, 0, 0, 4, 0, 0, 0, 1]
    assert box.bytes_waiting() == [0, 0, 0, 8, 0, 0, 0, 4]


def test_a_long_queue_in_small_pieces() -> None:
    box = outbox(bytes_limit=10_000)
    some = [parcel() for _ in range(1_000)]
    taken: list[Parcel] = []
    for number, each in enumerate(some):
        box.put(each)
        if number % 3 == 2:
            taken += box.take(2, 0)
    while more := box.take(1, 0):
        taken += more
    assert taken == some


class Plain:
    """What an outbox is to do, in one list and without any hurry."""

    def __init__(self, bytes_limit: int, tracked_limit: int, tracked_bytes_limit: int) -> None:
        self.bytes_limit = bytes_limit
        self.tracked_limit = tracked_limit
        self.tracked_bytes_limit = tracked_bytes_limit
        self.untracked: list[Parcel] = []
        self.tracked: list[Parcel] = []

    def put(self, newcomer: Parcel) -> list[Parcel]:
        if newcomer.size > self.bytes_limit:
            return [newcomer]
        self.untracked.append(newcomer)
        shed: list[Parcel] = []
        while size_of(self.untracked) > self.bytes_limit:
            shed.append(min(self.untracked, key=lambda each: each.importance))
            self.untracked.remove(shed[-1])
        return shed

    def put_tracked(self, newcomer: Parcel, *, is_promised: bool) -> list[Parcel]:
        most = max(self.tracked_limit, len(self.tracked))
        most_bytes = max(self.tracked_bytes_limit, size_of(self.tracked))
        left = [*self.tracked, newcomer]
        refused: list[Parcel] = []
        while not is_promised and (len(left) > most or size_of(left) > most_bytes):
            lesser = [each for each in reversed(left) if each.importance < newcomer.importance]
            if not lesser:
                return [newcomer]
            refused.append(min(lesser, key=lambda each: each.importance))
            left.remove(refused[-1])
        self.tracked = left
        return refused

    def take(self, bytes_wanted: int, window: int) -> list[Parcel]:
        taken: list[Parcel] = []
        for importance in reversed(range(IMPORTANCES)):
            for each in [each for each in self.tracked if each.importance == importance]:
                if size_of(taken) < bytes_wanted and window > 0:
                    taken.append(each)
                    self.tracked.remove(each)
                    window -= 1
            for each in [each for each in self.untracked if each.importance == importance]:
                if size_of(taken) < bytes_wanted:
                    taken.append(each)
                    self.untracked.remove(each)
        return taken


def size_of(parcels: list[Parcel]) -> int:
    return sum(each.size for each in parcels)


SIZES: Final = st.integers(1, 12)
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("put"), SIZES, st.integers(0, IMPORTANCES - 1)),
        st.tuples(st.just("track"), SIZES, st.integers(0, IMPORTANCES - 1)),
        st.tuples(st.just("promise"), SIZES, st.integers(0, IMPORTANCES - 1)),
        st.tuples(st.just("take"), st.integers(0, 40), st.integers(-1, 5)),
        st.tuples(st.just("drop"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(
    steps=STEPS,
    bytes_limit=st.integers(1, 40),
    tracked_limit=st.integers(1, 8),
    tracked_bytes=st.integers(1, 40),
)
def test_an_outbox_does_what_a_plain_one_does(
    steps: list[tuple[str, int, int]], bytes_limit: int, tracked_limit: int, tracked_bytes: int
) -> None:
    box = outbox(bytes_limit, tracked_limit, tracked_bytes)
    plain = Plain(bytes_limit, tracked_limit, tracked_bytes)
    has_promised = False
    for verb, number, other in steps:
        if verb == "put":
            newcomer = parcel(number, other)
            assert (box.put(newcomer) or []) == plain.put(newcomer)
        elif verb == "take":
            assert box.take(number, other) == plain.take(number, other)
        elif verb == "drop":
            assert len(box.drop_untracked()) == len(plain.untracked)
            plain.untracked = []
        else:
            newcomer = parcel(number, other)
            is_promised = verb == "promise"
            has_promised = has_promised or is_promised
            refused = box.put_tracked(newcomer, is_promised=is_promised)
            expected = plain.put_tracked(newcomer, is_promised=is_promised)
            assert (refused or []) == expected
        assert box.bytes == size_of(plain.untracked) <= bytes_limit
        assert box.tracked == len(plain.tracked)
        assert box.tracked_bytes == size_of(plain.tracked)
        assert sum(box.bytes_waiting()) == box.bytes + box.tracked_bytes
        if not has_promised:
            assert box.tracked <= tracked_limit
            assert box.tracked_bytes <= tracked_bytes
    assert box.take(ALL, ALL) == plain.take(ALL, ALL)
