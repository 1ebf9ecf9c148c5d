"""Figures of sources: each event belongs to the phase in which it was published."""

from __future__ import annotations

import pytest
from tests.apps.ledger_outcomes import ledger_outcome

from accord.apps.demonstrations.meters import Meters
from accord.apps.demonstrations.scenario import DemoSource, Sample

CAS_IMAGE = "cas/image"
IMAGERY = "uav/imagery"

UAV = (IMAGERY, "UAV-1")


def source(client: str, channel: str) -> DemoSource:
    return DemoSource(client, channel, 1.0, 0.0, lambda _: Sample({}, b""))


def meters() -> Meters:
    made = Meters((CAS_IMAGE, IMAGERY), [source("UAV-1", IMAGERY), source("CAS-1", CAS_IMAGE)])
    made.begin("1", now_ms=1_000, now_s=1.0)
    return made


def test_lines_stand_in_the_order_of_channels() -> None:
    assert meters().keys == [(CAS_IMAGE, "CAS-1"), UAV]


def test_what_arrives_is_counted_with_its_latency_and_shape() -> None:
    made = meters()
    made.published(UAV, 0, 50_000, now_s=1.0)
    made.published(UAV, 1, 60_000, now_s=2.0)
    made.received(UAV, 0, 50_000, now_s=1.5)
    made.received(UAV, 1, 20_000, now_s=5.0)
    made.received(UAV, 1, 20_000, now_s=6.0)  # a second copy
    line = made.phase.sources[UAV]
    assert (line.offered, line.received, line.waiting) == (2, 2, 0)
    assert (line.mean_s, line.p95_s) == (1.75, 3.0)
    assert (line.shaped, line.shaped_from, line.shaped_to) == (1, 60_000, 20_000)
    assert line.share == 1.0


def test_an_event_belongs_to_the_phase_in_which_it_was_published() -> None:
    made = meters()
    made.published(UAV, 0, 1_000, now_s=1.0)
    made.begin("2", now_ms=9_000, now_s=9.0)
    made.received(UAV, 0, 1_000, now_s=9.5)
    assert made.phases[0].sources[UAV].received == 1
    assert made.phases[1].sources[UAV].received == 0


def test_the_rate_of_a_phase_counts_what_came_over_the_link_in_it() -> None:
    made = meters()
    made.published(UAV, 0, 1_000, now_s=1.0)
    made.published(UAV, 1, 10_000, now_s=1.0)
    made.received(UAV, 0, 1_000, now_s=8.0)
    made.begin("2", now_ms=9_000, now_s=9.0)
    made.received(UAV, 1, 10_000, now_s=10.0)  # on its way since 8.0
    made.tick(1.0)
    assert made.phases[1].received_bytes == pytest.approx(5_000)
    assert made.phases[1].received_kbps == pytest.approx(40.0)
    made.finish()
    made.published(UAV, 2, 700, now_s=10.0)
    made.received(UAV, 2, 700, now_s=11.0)
    assert made.phases[1].received_bytes == pytest.approx(5_000)


def test_the_ledger_says_why_events_did_not_arrive_and_may_repeat_itself() -> None:
    made = meters()
    made.published(UAV, 0, 1_000, now_s=1.0)
    expired = ledger_outcome(
        "A1", IMAGERY, "UAV-1", "expired", 1_500, policy="AllUAS", importance=2
    )
    stranger = ledger_outcome("A2", "x", "y", "shed", 1_500)
    early = ledger_outcome("A3", IMAGERY, "UAV-1", "shed", 1)
    made.add_outcomes([expired, stranger, early])
    made.add_outcomes([expired])
    line = made.phase.sources[UAV]
    assert dict(line.dropped) == {"expired": 1}
    assert (line.importance, line.policy, line.drops, line.waiting) == (2, "AllUAS", 1, 0)
    assert line.share == 0.0


def test_rates_are_kept_by_tick() -> None:
    made = meters()
    made.published(UAV, 0, 1_000, now_s=1.0)
    made.received(UAV, 0, 1_000, now_s=1.1)
    made.tick(2.0)
    made.tick(1.0)
    assert made.rates[UAV] == [4.0, 0.0]
    assert made.phase.seconds == 3.0
