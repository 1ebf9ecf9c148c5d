from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.monitoring.counters import Counters
from accord.core.monitoring.statistics import (
    SHED_EXPIRED,
    SHED_QUEUE_FULL,
    WAIT_BOUNDS_MS,
    JournalStatus,
    Publishes,
    Shed,
    ShedClient,
    Statistics,
)


def test_a_connection_comes_and_goes() -> None:
    counters = Counters(started_ms=1_000)
    counters.count_connect()
    counters.count_connect()
    counters.count_disconnect("normal")
    counters.count_refused("too many connections")
    now = counters.snapshot(now_ms=3_500)
    assert (now.connections, now.connections_peak, now.connects) == (1, 2, 2)
    assert now.disconnects == {"normal": 1}
    assert now.connects_refused == {"too many connections": 1}
    assert (now.taken_ms, now.uptime_ms) == (3_500, 2_500)


def test_traffic_is_counted_by_direction_and_qos() -> None:
    counters = Counters(started_ms=0)
    counters.bytes_received += 100
    counters.packets_received += 3
    counters.publishes_received[2] += 2
    counters.publishes_sent[0] += 5
    counters.publish_bytes_sent += 50
    now = counters.snapshot(now_ms=0)
    assert now.received.bytes == 100
    assert now.received.packets == 3
    assert now.received.publishes == Publishes(0, 0, 2)
    assert now.sent.publishes.total == 5
    assert now.sent.publish_bytes == 50


def test_what_is_shed_has_cause_and_client() -> None:
    counters = Counters(started_ms=0)
    counters.count_shed(SHED_QUEUE_FULL, "slow", 3)
    counters.count_shed(SHED_EXPIRED, "slow")
    counters.count_shed(SHED_EXPIRED, "away")
    shed = counters.snapshot(now_ms=0).shed
    assert shed == Shed(
        causes={SHED_QUEUE_FULL: 3, SHED_EXPIRED: 2},
        clients=(
            ShedClient("slow", SHED_QUEUE_FULL, 3),
            ShedClient("away", SHED_EXPIRED, 1),
            ShedClient("slow", SHED_EXPIRED, 1),
        ),
    )
    assert shed.total == 5


def test_queues_are_counted_by_importance() -> None:
    counters = Counters(started_ms=0)
    counters.queued_messages[7] += 2
    counters.queued_bytes[7] += 300
    counters.queued_messages[0] += 1
    now = counters.snapshot(now_ms=0)
    assert [queue.messages for queue in now.queues] == [1, 0, 0, 0, 0, 0, 0, 2]
    assert (now.queued_messages, now.queued_bytes) == (3, 300)


@given(st.integers(0, 10**9))
def test_a_wait_falls_into_the_first_bucket_above_it(wait_ms: int) -> None:
    counters = Counters(started_ms=0)
    counters.count_wait(3, wait_ms, 2)
    waits = counters.snapshot(now_ms=0).queues[3].waits
    first = sum(bound_ms <= wait_ms for bound_ms in WAIT_BOUNDS_MS)
    assert waits.counts[first] == waits.count == 2
    assert waits.total_ms == 2 * wait_ms


def test_a_clock_that_steps_back_counts_as_no_wait() -> None:
    counters = Counters(started_ms=100)
    counters.count_wait(0, -5)
    now = counters.snapshot(now_ms=50)
    assert now.queues[0].waits.counts[0] == 1
    assert now.queues[0].waits.total_ms == 0
    assert now.uptime_ms == 0


@pytest.mark.parametrize(
    ("waits_ms", "share", "bound_ms"),
    [
        ([], 0.5, 0),
        ([0], 0.5, 1),
        ([0, 0, 0, 100], 0.5, 1),
        ([0, 0, 0, 100], 0.99, 128),
        ([10**9], 0.5, 131_072),
    ],
)
def test_quantiles_are_bounds(waits_ms: list[int], share: float, bound_ms: int) -> None:
    counters = Counters(started_ms=0)
    for wait_ms in waits_ms:
        counters.count_wait(0, wait_ms)
    assert counters.snapshot(now_ms=0).queues[0].waits.quantile_ms(share) == bound_ms


def test_a_snapshot_does_not_change_any_more() -> None:
    counters = Counters(started_ms=0)
    before = counters.snapshot(now_ms=0)
    counters.count_shed(SHED_EXPIRED, "a")
    counters.count_refused("busy")
    counters.count_connect()
    counters.count_disconnect("normal")
    counters.count_wait(0, 1)
    counters.publishes_received[0] += 1
    assert before == Counters(started_ms=0).snapshot(now_ms=0)


def test_statistics_travel_as_json() -> None:
    counters = Counters(started_ms=0)
    counters.count_shed(SHED_EXPIRED, "a")
    journal = JournalStatus(segments=1, next_offset=7, synced_offset=5)
    now = counters.snapshot(now_ms=1, journal=journal)
    assert msgspec.json.decode(msgspec.json.encode(now), type=Statistics) == now
    assert journal.unsynced == 2
