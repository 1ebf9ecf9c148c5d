"""Delivery tables against a count of the same entries by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from accord.core.model.channels import filter_shows, is_internal
from accord.core.monitoring.delivery_lines import (
    MAX_NEWEST,
    MAX_POINTS,
    SLICE_MS,
    WINDOW_MS,
    ChannelDeliveries,
    ClientDeliveries,
    Deliveries,
    DeliverySummary,
    NewestEntries,
    WaitingEvents,
    bucket_bounds_ms,
    latency_bucket,
    quantile_ms,
)
from accord.core.monitoring.ledger import (
    DELIVERED,
    EXPIRED,
    LATE,
    OUTCOMES,
    REFUSED,
    REPLACED,
    SHAPED,
    SHED,
    Ledger,
    LedgerBatch,
    deadline_detail,
    shape_detail,
)

NOW_MS = 1_700_000_000_000
CLIENTS = ("patrol-1", "desk-1", "node b", "node here", "other nodes", "")


class Entry(Struct, frozen=True):
    number: int
    count: int
    channel: str
    publisher: str
    destination: str
    outcome: int
    received_ms: int
    latency_ms: int
    importance: int
    is_late: bool

    @property
    def done_ms(self) -> int:
        return self.received_ms + self.latency_ms

    @property
    def detail(self) -> str:
        detail = deadline_detail(5) if self.is_late or self.outcome == LATE else ""
        return shape_detail(9_000, detail) if self.outcome == SHAPED else detail


ENTRIES = st.builds(
    Entry,
    number=st.integers(1, 5_000).map(lambda n: 10 * n),  # so that no two become one entry
    count=st.integers(1, 5),
    channel=st.sampled_from(("uav/imagery", "patrol/report", "$SYS/x", "")),
    publisher=st.sampled_from(("raven-7", "hq", "")),
    destination=st.sampled_from(CLIENTS),
    outcome=st.sampled_from(range(len(OUTCOMES))),
    received_ms=st.integers(NOW_MS - WINDOW_MS - 2 * SLICE_MS, NOW_MS),
    latency_ms=st.integers(0, 60_000) | st.integers(0, 20),
    importance=st.integers(0, 7),
    is_late=st.booleans(),
)
BATCHES = st.lists(st.lists(ENTRIES, max_size=12), max_size=5)


def batch_of(entries: list[Entry]) -> LedgerBatch:
    ledger = Ledger()
    for each in entries:
        ledger.add(
            each.number,
            each.count,
            each.channel,
            each.publisher,
            each.destination,
            each.outcome,
            each.received_ms,
            each.received_ms,
            each.done_ms,
            100,
            each.importance,
            f"policy-{each.importance}",
            each.detail,
            0,
        )
    return ledger.take() or LedgerBatch(0, 0)


def feed(deliveries: Deliveries, batches: list[list[Entry]]) -> None:
    deliveries.reaches_back_ms = 0
    for entries in batches:
        batch = batch_of(sorted(entries, key=lambda each: each.done_ms))
        deliveries.take(batch.first_number, batch.first_ms, batch.rows)


def count_by_hand(entries: list[Entry]) -> DeliverySummary | None:
    """What a line should say of these entries, but for its percentiles."""
    first_ms = (NOW_MS // SLICE_MS - WINDOW_MS // SLICE_MS + 1) * SLICE_MS
    recent = [each for each in entries if each.done_ms >= first_ms]
    if not recent:
        return None
    received = [each for each in recent if each.outcome in (DELIVERED, LATE, SHAPED)]
    ever_ms = [each.done_ms for each in entries if each.outcome in (DELIVERED, LATE, SHAPED)]
    late = [
        each
        for each in received
        if each.outcome == LATE or (each.outcome == SHAPED and each.is_late)
    ]
    missed = total(each for each in recent if each.outcome in (EXPIRED, SHED, REFUSED))
    wanted = total(received) + missed
    since_ms = (NOW_MS // 1_000 - 9) * 1_000
    latest = total(each for each in received if since_ms <= each.done_ms < since_ms + 10_000)
    return DeliverySummary(
        received=total(received),
        dropped=total(each for each in recent if each not in received),
        shaped=total(each for each in received if each.outcome == SHAPED),
        late=total(late),
        replaced=total(each for each in recent if each.outcome == REPLACED),
        rate_hz=round(latest * 1_000 / (NOW_MS - since_ms), 3),
        last_ms=max(ever_ms, default=None),
        in_time=round((total(received) - total(late)) / wanted, 4) if wanted else None,
        sources=tuple(sorted({each.publisher for each in recent if each.publisher})),
    )


def total(entries: object) -> int:
    return sum(each.count for each in entries)  # type: ignore[attr-defined]


def check_line(line: DeliverySummary, entries: list[Entry]) -> None:
    wanted = count_by_hand(entries)
    assert wanted is not None
    for name in ("received", "dropped", "shaped", "late", "replaced", "last_ms", "in_time"):
        assert getattr(line, name) == getattr(wanted, name), name
    assert set(wanted.sources) <= set(line.sources)
    latest = max(entries, key=lambda each: (each.done_ms, each.number))
    ties = [
        each for each in entries if (each.done_ms, each.number) == (latest.done_ms, latest.number)
    ]
    assert line.importance in {each.importance for each in ties}
    assert not any(each.done_ms > NOW_MS for each in entries) or line.rate_hz >= wanted.rate_hz
    if all(each.done_ms <= NOW_MS for each in entries):
        assert line.rate_hz == wanted.rate_hz


@given(BATCHES, st.randoms(use_true_random=False))
def test_lines_of_a_client_are_those_counted_by_hand_in_any_order(
    batches: list[list[Entry]], random: object
) -> None:
    random.shuffle(batches)  # type: ignore[attr-defined]
    deliveries = ClientDeliveries("patrol-1", now_ms=NOW_MS)
    feed(deliveries, batches)
    lines = deliveries.summaries(NOW_MS)
    mine = [
        each
        for batch in batches
        for each in batch
        if each.destination == "patrol-1" and not is_internal(each.channel)
    ]
    by_channel = {each.channel: [e for e in mine if e.channel == each.channel] for each in mine}
    assert set(lines) == {name for name in by_channel if count_by_hand(by_channel[name])}
    for name, line in lines.items():
        check_line(line, by_channel[name])


@given(BATCHES)
def test_lines_of_a_channel_are_its_clients(batches: list[list[Entry]]) -> None:
    deliveries = ChannelDeliveries("uav/imagery", node="here", now_ms=NOW_MS)
    feed(deliveries, batches)
    its = [each for batch in batches for each in batch if each.channel == "uav/imagery"]
    lines = deliveries.summaries(NOW_MS)
    for name in ("patrol-1", "desk-1"):
        entries = [each for each in its if each.destination == name]
        assert (name in lines) == (count_by_hand(entries) is not None)
        if name in lines:
            check_line(lines[name], entries)
    assert set(lines) <= {"patrol-1", "desk-1"}
    arrived = {each.publisher for each in its if each.publisher and each.destination == "node here"}
    assert deliveries.arrived == {
        name: total(e for e in its if e.destination == "node here" and e.publisher == name)
        for name in arrived
    }
    assert deliveries.published_ms == {
        name: max(each.received_ms for each in its if each.publisher == name)
        for name in {each.publisher for each in its if each.publisher}
    }


@given(BATCHES, st.sampled_from(("#", "uav/#", "$SYS/#")), st.sampled_from((None, "hq", "desk-1")))
def test_newest_entries_are_those_that_a_search_would_find(
    batches: list[list[Entry]], pattern: str, client: str | None
) -> None:
    newest = NewestEntries(pattern, client, now_ms=NOW_MS)
    feed(newest, batches)
    wanted = [
        (each.done_ms, each.number, each.destination)
        for batch in batches
        for each in batch
        if (not each.channel or filter_shows(pattern, each.channel))
        and (client is None or client in (each.publisher, each.destination))
    ]
    found = [
        (first_ms + row[1] + row[7] + row[8], first_number + row[0], row[5])
        for first_number, first_ms, row in newest.newest()
    ]
    assert sorted(found) == sorted(wanted)
    assert [at_ms for at_ms, _, _ in found] == sorted(
        (at_ms for at_ms, _, _ in found), reverse=True
    )


def entries_of(count: int, *, step_ms: int = 1) -> list[Entry]:
    return [
        Entry(2 * n + 1, 1, "c", "p", "patrol-1", DELIVERED, NOW_MS - n * step_ms, n % 7, 4, False)
        for n in range(count)
    ]


def test_points_and_newest_entries_are_bounded() -> None:
    client = ClientDeliveries("patrol-1", now_ms=NOW_MS)
    newest = NewestEntries("#", None, now_ms=NOW_MS)
    batches = [entries_of(5_000)[n : n + 500] for n in range(0, 5_000, 500)]
    feed(client, batches)
    feed(newest, batches)
    everything = sorted((each.done_ms, each.number) for batch in batches for each in batch)
    assert len(newest.newest()) == MAX_NEWEST
    assert newest.is_full
    kept = [first_number + row[0] for first_number, _, row in newest.newest()]
    assert kept == [number for _, number in everything[::-1][:MAX_NEWEST]]
    assert [each[0] for each in client.points()] == [ms for ms, _ in everything[-MAX_POINTS:]]


def test_what_is_older_than_the_window_is_forgotten() -> None:
    client = ClientDeliveries("patrol-1", now_ms=NOW_MS)
    feed(client, [entries_of(3)])
    assert client.summaries(NOW_MS + WINDOW_MS - SLICE_MS)["c"].received == 3
    assert not client.summaries(NOW_MS + WINDOW_MS + SLICE_MS)
    assert client.points() == []


def test_percentiles_are_recent_and_count_what_waits() -> None:
    deliveries = ClientDeliveries("patrol-1", now_ms=NOW_MS)
    feed(deliveries, [[replace(each, received_ms=NOW_MS - 600_000) for each in entries_of(100)]])
    (line,) = deliveries.lines.values()
    assert line.summary(NOW_MS, 0).p50_ms == 3  # all there is
    backlog = WaitingEvents()
    backlog.add(3, 900, 50_000)
    summary = line.summary(NOW_MS, 0, backlog)
    assert summary.p50_ms == pytest.approx(50_000, rel=0.125)
    new = [replace(each, received_ms=NOW_MS - 700, latency_ms=700) for each in entries_of(10)]
    feed(deliveries, [new])
    assert line.summary(NOW_MS, 0).p50_ms == pytest.approx(700, rel=0.125)
    assert line.summary(NOW_MS, 0, backlog).p95_ms == pytest.approx(50_000, rel=0.125)


def test_a_long_name_is_found_as_the_ledger_stores_it() -> None:
    name = "x" * 300
    client = ClientDeliveries(name, now_ms=NOW_MS)
    feed(client, [[replace(entries_of(1)[0], destination=name)]])
    assert client.summaries(NOW_MS)["c"].received == 1


@given(st.integers(0, 10_000_000))
def test_a_latency_lies_within_its_bucket(latency_ms: int) -> None:
    low, high = bucket_bounds_ms(latency_bucket(latency_ms))
    assert low <= latency_ms < high
    assert high - low <= max(1, low / 8)


@given(st.lists(st.integers(0, 100_000), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_within_an_eighth(latencies_ms: list[int], share: float) -> None:
    counts: dict[int, int] = {}
    for each in latencies_ms:
        counts[latency_bucket(each)] = counts.get(latency_bucket(each), 0) + 1
    exact = sorted(latencies_ms)[math.ceil(share * len(latencies_ms)) - 1]
    found = quantile_ms(counts, share)
    assert found is not None
    assert abs(found - exact) <= max(0.1, exact / 8)
