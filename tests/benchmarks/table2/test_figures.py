"""From what was sent and received to figures."""

from __future__ import annotations

import pytest
from benchmarks.table2.figures import bytes_per_s, figures, percentile
from benchmarks.table2.plans import Arrivals, Received, Sent
from benchmarks.table2.trial import SECOND, Seen, Span

TOPIC = "table2/normal"


def seen(sent: Sent, arrivals: Arrivals, tenths: dict[int, int] | None = None) -> Seen:
    received = Received(flows={1: arrivals}, tenths=tenths or {})
    return Seen(Span(10 * SECOND, 20 * SECOND), {1: TOPIC, 2: "other"}, {1: sent}, received, 1.0)


def times(*seconds: float) -> list[int]:
    return [round(each * SECOND) for each in seconds]


def test_offered_delivered_and_arrived_are_told_apart() -> None:
    due = times(5, 12, 14, 19, 25)
    sent = Sent(due_ns=due, sizes=[100] * 5, sent=5, refused=0)
    arrivals = Arrivals(
        arrived_ns=times(11, 13, 22, 22.5), due_ns=times(5, 12, 14, 14),
        numbers=[0, 1, 2, 2], sizes=[100] * 4,
    )  # fmt: skip
    found = figures(seen(sent, arrivals), TOPIC)
    assert (found.offered, found.delivered, found.arrived) == (3, 2, 2)
    assert found.share == pytest.approx(2 / 3)
    assert found.rate_hz == pytest.approx(0.2)
    assert found.arrived_bytes == 200
    # The first arrived in the measured time, the third was due in it; its second copy is nothing.
    assert sorted(found.latencies_s) == [1.0, 6.0, 8.0]


def test_nothing_offered_has_no_share() -> None:
    empty = Sent(due_ns=[], sizes=[], sent=0, refused=0)
    found = figures(seen(empty, Arrivals()), TOPIC)
    assert found.share is None
    assert found.latency_s(0.95) is None


def test_rounds_add_up() -> None:
    sent = Sent(due_ns=times(12), sizes=[70], sent=1, refused=0)
    arrivals = Arrivals(arrived_ns=times(13), due_ns=times(12), numbers=[0], sizes=[70])
    total = figures(seen(sent, arrivals), TOPIC)
    total.add(figures(seen(sent, Arrivals()), TOPIC))
    assert (total.seconds, total.offered, total.delivered, total.largest) == (20, 2, 1, 70)
    assert total.rate_hz == pytest.approx(0.05)


def test_bytes_count_in_the_measured_time_only() -> None:
    sent = Sent(due_ns=[], sizes=[], sent=0, refused=0)
    tenths = {99: 1_000, 100: 10, 199: 20, 200: 1_000}
    assert bytes_per_s(seen(sent, Arrivals(), tenths)) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.75, 3.0), (0.76, 4.0), (1.0, 4.0)]
)
def test_percentiles_are_values_that_occur(share: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == expected
