"""The rows of any moment that is kept, from changes in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.overlay import net_history
from accord.core.overlay.net_history import ARRIVALS_MS, KEPT_MS, NetHistory
from accord.core.overlay.net_map import Key, NetLink, Row
from accord.core.overlay.overlay import LINK
from accord.core.overlay.status import ArrivalStatus
from accord.core.overlay.status_publisher import ARRIVED

T = 1_700_000_000_000
KEYS: list[Key] = [(LINK, "a", "b"), (LINK, "b", "a"), (LINK, "a", "c")]
UP = NetLink(latency_us=10_000)
SLOW = NetLink(latency_us=85_000)


def arrival(delivered: int) -> ArrivalStatus:
    return ArrivalStatus(node="b", source="a", channel="uav", delivered=delivered, late=0)


changes = st.lists(
    st.tuples(
        st.integers(0, KEPT_MS // 2),  # passed since the one before
        st.sampled_from(KEYS),
        st.none() | st.integers(1, 5).map(lambda us: NetLink(latency_us=us)),
    ),
    max_size=30,
)


@given(changes)
def test_the_rows_of_each_moment(steps: list[tuple[int, Key, Row | None]]) -> None:
    history = NetHistory(T)
    rows: dict[Key, Row] = {}
    seen: dict[int, dict[Key, Row]] = {}
    now = T
    for passed, key, row in steps:
        now += passed
        history.add([(key, row)], now_ms=now)
        history.check_invariants()
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
        seen[now] = dict(rows)
    for at_ms, expected in seen.items():
        if at_ms < history.from_ms or any(at_ms < other < at_ms + 100 for other in seen):
            continue  # gone, or within the same step as a later one
        if any(other < at_ms < other + 100 for other in seen):
            continue
        assert history.rows_at(at_ms)[0] == expected
    assert history.rows_at(now)[0] == rows


@given(changes, st.integers(1, 5))
def test_pages_give_every_step_once(steps: list[tuple[int, Key, Row | None]], limit: int) -> None:
    history = NetHistory(T)
    now = T
    for passed, key, row in steps:
        now += passed
        history.add([(key, row)], now_ms=now)
    rows, after = history.rows_at(0)
    read = []
    while page := history.steps_after(after, now_ms=now + 100, limit=limit):
        for step in page:
            read.append(step.number)
            for key, row in step.changes.items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        after = page[-1].number
    assert read == sorted(set(read))
    assert rows == history.rows_at(now)[0]


def test_a_step_that_may_grow_is_not_told_yet() -> None:
    history = NetHistory(T)
    history.add([(KEYS[0], UP)], now_ms=T)
    history.add([(KEYS[1], UP)], now_ms=T + 99)
    assert history.steps_after(0, now_ms=T + 99, limit=9) == []
    (step,) = history.steps_after(0, now_ms=T + 100, limit=9)
    assert list(step.changes) == KEYS[:2]
    history.add([(KEYS[0], SLOW)], now_ms=T + 100)
    assert history.number == 2


def test_it_forgets_what_is_older_than_an_hour() -> None:
    history = NetHistory(T)
    history.add([(KEYS[0], UP)], now_ms=T)
    history.add([(KEYS[0], SLOW)], now_ms=T + KEPT_MS // 2)
    assert history.rows_at(T)[0] == {KEYS[0]: UP}
    history.add([(KEYS[1], UP)], now_ms=T + KEPT_MS + 1)
    assert history.from_ms == T
    assert history.rows == {KEYS[0]: UP}
    assert history.changes == 2


def test_it_is_bounded_in_changes_and_in_bytes(monkeypatch: object) -> None:
    history = NetHistory(T)
    for number in range(net_history.MAX_CHANGES + 50):
        history.add([(KEYS[number % 3], NetLink(latency_us=number))], now_ms=T + number * 100)
    history.check_invariants()
    assert history.changes == net_history.MAX_CHANGES
    assert history.from_ms == T + 49 * 100
    assert history.bytes <= net_history.MAX_BYTES


def test_counts_of_arrivals_are_taken_seldom() -> None:
    key = (ARRIVED, "b", "0")
    history = NetHistory(T)
    for second in range(2, 41, 2):
        history.add([(key, arrival(second))], now_ms=T + second * 1_000)
    assert history.changes == 4
    assert history.rows_at(T + 2 * ARRIVALS_MS)[0] == {key: arrival(20)}


def test_a_clock_that_is_set_back_does_no_harm() -> None:
    history = NetHistory(T)
    history.add([(KEYS[0], UP)], now_ms=T)
    history.add([(KEYS[0], SLOW)], now_ms=T - 10_000)
    history.check_invariants()
    assert history.rows_at(T)[0] == {KEYS[0]: SLOW}
