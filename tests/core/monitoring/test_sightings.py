from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.monitoring.ledger import DOWN, UP, outcome_name
from accord.core.monitoring.sightings import LINKS, NODES, Sightings, Subject
from accord.journal.ledger_records import (
    LedgerQuery,
    decode_ledger,
    decode_rows,
    encode_ledger,
    entry_of,
    record_of,
    select,
)

LINK = (LINKS, "denver", "orlando")
Entry = tuple[Subject, int, int, int]  # subject, state, since, until


def taken(sightings: Sightings, now_ms: int) -> list[Entry]:
    """The entries as they are in the journal."""
    batch = sightings.take(now_ms=now_ms)
    if batch is None:
        return []
    record = decode_ledger(encode_ledger(record_of(batch, newest=7, taken_ms=now_ms)))
    found = []
    for row in decode_rows(record):
        entry = entry_of(row, record.first_number, record.first_ms)
        assert entry.number == entry.count == entry.size == 0
        subject = (entry.channel, entry.publisher, entry.destination)
        found.append((subject, entry.outcome, entry.received_ms, entry.done_ms))
    return found


def test_a_change_ends_a_state_and_begins_another() -> None:
    sightings = Sightings(period_ms=60_000)
    sightings.observe(LINK, True, now_ms=1_000)
    sightings.observe(LINK, True, now_ms=2_000)
    assert taken(sightings, 3_000) == [(LINK, UP, 1_000, 1_000)]
    assert taken(sightings, 3_500) == []
    sightings.observe(LINK, False, now_ms=4_000)
    assert taken(sightings, 5_000) == [(LINK, UP, 1_000, 4_000), (LINK, DOWN, 4_000, 4_000)]
    assert [outcome_name(each) for each in (UP, DOWN)] == ["up", "down"]


def test_a_state_that_lasts_is_recorded_now_and_then() -> None:
    sightings, node = Sightings(period_ms=60_000), (NODES, "denver", "boise")
    sightings.observe(node, True, now_ms=0)
    taken(sightings, 0)
    assert taken(sightings, 59_999) == []
    assert taken(sightings, 60_000) == [(node, UP, 0, 60_000)]
    sightings.observe(node, None, now_ms=70_000)
    assert taken(sightings, 70_000) == [(node, UP, 60_000, 70_000)]
    assert taken(sightings, 500_000) == []


def test_a_node_that_stops_sees_nothing_fail() -> None:
    sightings = Sightings()
    sightings.observe(LINK, True, now_ms=0)
    sightings.stop(now_ms=5_000)
    sightings.observe(LINK, False, now_ms=5_001)
    assert taken(sightings, 6_000) == [(LINK, UP, 0, 0), (LINK, UP, 0, 5_000)]


def test_subjects_and_changes_are_bounded() -> None:
    sightings = Sightings(period_ms=60_000, turns=4, most=1)
    taken(sightings, 0)
    for second in range(60):
        sightings.observe(LINK, second % 3 == 0, now_ms=second * 1_000)
        sightings.observe((LINKS, "denver", "boise"), True, now_ms=second * 1_000)
        sightings.check_invariants()
    found = taken(sightings, 60_000)
    assert len(found) <= 2 * 4 + 3
    assert {subject for subject, *_ in found} == {LINK}
    assert sum(until - since for _, state, since, until in found if state == UP) == 20_000
    assert sum(until - since for _, state, since, until in found if state == DOWN) == 40_000


def test_views_of_all_channels_do_not_show_them() -> None:
    sightings = Sightings()
    sightings.observe(LINK, True, now_ms=1_000)
    batch = sightings.take(now_ms=1_000)
    assert batch is not None
    record = record_of(batch, newest=0, taken_ms=1_000)
    assert select(record, LedgerQuery(), 9) == []
    assert len(select(record, LedgerQuery(channel=LINKS), 9)) == 1


@given(st.lists(st.tuples(st.integers(0, 30_000), st.booleans()), max_size=60))
def test_all_time_is_recorded_once(turns: list[tuple[int, bool]]) -> None:
    sightings = Sightings(period_ms=50_000, turns=3)
    now_ms, is_up, spent_ms = 0, True, {UP: 0, DOWN: 0}
    sightings.observe(LINK, is_up, now_ms=now_ms)
    found = taken(sightings, now_ms)
    for after_ms, turned_up in turns:
        spent_ms[UP if is_up else DOWN] += after_ms
        now_ms += after_ms
        is_up = turned_up
        sightings.observe(LINK, is_up, now_ms=now_ms)
        found += taken(sightings, now_ms)
    sightings.stop(now_ms=now_ms)
    found += taken(sightings, now_ms)
    for state, expected_ms in spent_ms.items():
        lengths = [until - since for _, each, since, until in found if each == state]
        assert min(lengths, default=0) >= 0
        assert sum(lengths) == expected_ms
