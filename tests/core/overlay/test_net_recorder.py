"""Which changes of the network are recorded, and that its rows can be told from the records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.fake_net import flow, route

from accord.core.overlay import net_recorder
from accord.core.overlay.net_map import Key, NetLink, NetNode, Row
from accord.core.overlay.net_recorder import (
    MAX_AT_ONCE,
    REPEAT_MS,
    NetRecorder,
    decode_change,
    encode_change,
    replay,
)
from accord.core.overlay.overlay import LINK, NODE
from accord.core.overlay.status import ArrivalStatus
from accord.core.overlay.status_publisher import ARRIVED, FLOW

T = 1_700_000_000_000
AB: Key = (LINK, "a", "b")
UP = NetLink(latency_us=10_000)
KEYS: list[Key] = [(LINK, f"n{number}", "b") for number in range(3)]


class Recorded:
    """A map that changes, and its records."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.recorder = NetRecorder(self.rows)
        self.records: list[tuple[int, str]] = []

    def change(self, key: Key, row: Row | None, now_ms: int) -> None:
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        self.recorder.note([(key, row)], now_ms=now_ms)

    def take(self, now_ms: int) -> int:
        found = self.recorder.take(now_ms=now_ms)
        self.records += found
        return len(found)


def test_what_matters_is_recorded() -> None:
    net = Recorded()
    net.change(AB, UP, T)
    assert net.take(T) == 1
    for slightly in (replace(UP, latency_us=11_500), replace(UP, loss=0.01)):
        net.change(AB, slightly, T + 1)
        assert net.take(T + 2) == 0
    for other in (
        replace(UP, latency_us=14_000),
        replace(UP, loss=0.03),
        replace(UP, is_used=False),
        None,
    ):
        net.change(AB, other, T + 3)
        assert net.take(T + 4) == 1
        assert decode_change(net.records[-1][1]) == (AB, other)
        assert net.records[-1][0] == T + 3
    net.change((ARRIVED, "b", "0"), ArrivalStatus(
        node="b", source="a", channel="uav", delivered=1, late=0), T + 5)  # fmt: skip
    assert net.take(T + 6) == 0


def test_a_flow_is_recorded_when_its_paths_change() -> None:
    net = Recorded()
    key = (FLOW, "a", "0")
    one = flow("a", "b", route("a", "b", delay_us=5))
    net.change(key, one, T)
    net.take(T)
    net.change(key, replace(one, routes=(replace(one.routes[0], delay_us=77),)), T + 1)
    assert net.take(T + 1) == 0
    net.change(key, replace(one, routes=(route("a", "c", "b", delay_us=5),)), T + 2)
    assert net.take(T + 2) == 1


def test_all_rows_are_recorded_again_from_time_to_time_and_changes_go_first() -> None:
    net = Recorded()
    for number in range(2 * MAX_AT_ONCE):
        net.change((NODE, f"n{number}", ""), NetNode(), T)
    taken = [net.take(T + 1_000 * second) for second in range(6)]
    assert taken == [MAX_AT_ONCE] * 2 + [0] * 4
    later = T + REPEAT_MS + 10
    net.change(AB, UP, later)
    assert net.take(later) == MAX_AT_ONCE
    assert decode_change(net.records[-MAX_AT_ONCE][1]) == (AB, UP)


def test_too_many_changes_are_recorded_as_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_recorder, "MAX_WAITING", 3)
    net = Recorded()
    for number in range(9):
        net.change(AB, replace(UP, is_used=number % 2 == 0), T + number)
    while net.take(T + 10):
        pass
    rows, _ = replay(sorted(net.records), T + 20)
    assert rows == net.rows


def test_records_of_other_kinds_are_passed_over() -> None:
    for record in ("", "[]", '["later","a","b",{}]', '["link","a","b",7]'):
        assert decode_change(record) is None
    rows, steps = replay([(T, "x"), (T, encode_change(AB, UP))], T)
    assert (rows, steps) == ({AB: UP}, [])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3 * REPEAT_MS // 2).map(lambda ms: ms // 1_000 * 1_000),
            st.sampled_from(KEYS),
            st.sampled_from([None, UP, replace(UP, is_used=False)]),
        ),
        max_size=20,
    )
)
def test_the_rows_of_each_moment_are_told(changes: list[tuple[int, Key, Row | None]]) -> None:
    net = Recorded()
    now = T
    seen: dict[int, dict[Key, Row]] = {}
    for passed, key, row in changes:
        until = now + passed
        while now + 300_000 < until:
            now += 300_000
            net.take(now)
        now = until
        net.change(key, row, now)
        net.take(now)
        net.take(now)
        seen[now] = dict(net.rows)
    for at_ms, expected in seen.items():
        lately = [each for each in net.records if at_ms - 2 * REPEAT_MS <= each[0]]
        rows, steps = replay(lately, at_ms)
        assert rows == expected
        for _, step in steps:
            for key, row in step.items():
                rows |= {} if row is None else {key: row}
                if row is None:
                    rows.pop(key, None)
        assert rows == net.rows
