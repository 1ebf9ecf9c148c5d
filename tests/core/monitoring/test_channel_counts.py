from __future__ import annotations

import pytest

from accord.core.monitoring.channel_counts import ChannelCounts, ChannelTable
from accord.core.monitoring.statistics import WAIT_BUCKETS


@pytest.mark.parametrize(
    ("wait_ms", "bucket"), [(-5, 0), (0, 0), (1, 1), (3, 2), (4, 3), (10**9, WAIT_BUCKETS - 1)]
)
def test_waits_go_into_buckets(wait_ms: int, bucket: int) -> None:
    counts = ChannelCounts("a")
    counts.count_wait(wait_ms, 2)
    assert counts.wait_counts[bucket] == sum(counts.wait_counts) == 2
    assert counts.waited_ms == 2 * max(wait_ms, 0)


@pytest.mark.parametrize(
    "field", ["published", "delivered", "replaced", "expired", "shed", "refused"]
)
def test_activity_is_seen(field: str) -> None:
    counts = ChannelCounts("a")
    assert counts.activity() == 0
    setattr(counts, field, 3)
    assert counts.activity() == 3


def test_a_channel_keeps_its_counts() -> None:
    table = ChannelTable(limit=2)
    first = table.get("a")
    assert table.get("a") is first
    assert table.get("b") is not first
    assert table.get("c") is table.get("d") is table.other
    assert table.get("a") is first
    assert list(table.counts) == ["a", "b"]
    assert table.other.channel == "other"
