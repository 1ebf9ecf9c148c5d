from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.archive import lags
from benchmarks.archive_records import batch_of
from benchmarks.tree import cpu_s

from accord.journal.events import decode_event


def test_lag_is_counted_event_by_event() -> None:
    committed = [(2, 10.0), (5, 11.0), (6, 12.0)]
    seen = [(3, 11.5), (6, 12.5)]
    assert list(lags(committed, seen, after_s=0.0)) == [
        1500.0,
        1500.0,
        500.0,
        1500.0,
        1500.0,
        500.0,
    ]
    assert list(lags(committed, seen, after_s=11.5)) == [500.0]


def test_records_are_events_of_the_size_asked_for() -> None:
    events = [decode_event(record) for record in batch_of(5, 3, 100)]
    assert [event.number for event in events] == [5, 6, 7]
    assert {len(event.payload) for event in events} == {100}
    assert set(events[0].event().attributes) == {"altitude_m", "platform"}


def test_cpu_of_children_that_ended_is_counted() -> None:
    before = cpu_s()
    subprocess.run([sys.executable, "-c", "sum(i * i for i in range(3_000_000))"], check=True)
    assert cpu_s() - before >= 2 / os.sysconf("SC_CLK_TCK")
