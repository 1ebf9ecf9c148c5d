"""The grid scenario: who publishes how much, what can be filtered by, what the phases change."""

from __future__ import annotations

import pytest
from tests.apps.scenario_policies import granted, policies_by_phase

from accord.apps.demonstrations.grid import (
    ALARM,
    CAMERAS,
    FEEDER,
    GRID,
    LIMIT_KBPS,
    ORDER,
    POSITION,
    REPORT,
    make_sources,
)
from accord.apps.demonstrations.scenario import DemoSource, Sample
from accord.predicates import Event, parse


@pytest.fixture(scope="module")
def sources() -> list[DemoSource]:
    return make_sources(4.0)


def sample_of(sources: list[DemoSource], channel: str, client: str) -> Sample:
    found = [each for each in sources if (each.channel, each.client) == (channel, client)]
    return found[0].sample(0)


def test_more_is_offered_than_the_link_carries(sources: list[DemoSource]) -> None:
    assert {source.channel for source in sources} == set(GRID.channels)
    keys = [(source.channel, source.client) for source in sources]
    assert len(set(keys)) == len(keys)
    kbps = sum(
        len(source.sample(number).payload) * 8 / 1_000 / source.period_s / 4
        for source in sources
        for number in range(4)
    )
    assert 1.4 * LIMIT_KBPS < kbps < 1.6 * LIMIT_KBPS


def test_images_are_large_and_what_is_important_is_small(sources: list[DemoSource]) -> None:
    for source in sources:
        size = len(source.sample(0).payload)
        assert (40_000 <= size <= 70_000) == (source.channel in CAMERAS)
        assert source.channel not in {ALARM, FEEDER, POSITION} or size <= 600


@pytest.mark.parametrize(
    ("channel", "condition"),
    [
        (ALARM, "severity = 'critical'"),
        (ORDER, "action = 'open'"),
        (REPORT, "customers > 200"),
        (FEEDER, "load_mw > 4"),
        (FEEDER, "status = 'high'"),
        (POSITION, "status = 'driving' AND speed_kmh > 50"),
    ],
)
def test_conditions_match_some_and_not_all(
    sources: list[DemoSource], channel: str, condition: str
) -> None:
    predicate = parse(condition)
    numbers = range(120)
    events = [
        Event(channel=channel, attributes=source.sample(number).attributes)
        for source in sources
        if source.channel == channel
        for number in numbers
    ]
    assert 0 < sum(predicate.matches(event) for event in events) < len(events)


def test_only_the_latest_measurement_and_position_counts(sources: list[DemoSource]) -> None:
    keyed = {source.channel for source in sources if source.sample(0).key is not None}
    assert keyed == {FEEDER, POSITION}


def test_five_importances_to_begin_with() -> None:
    book = policies_by_phase(GRID)[0]
    pairs = [(ALARM, "ALDER"), (ORDER, "OPS"), (REPORT, "CALLS"), (FEEDER, "BIRCH"),
             (POSITION, "CREW-1"), *((channel, "CEDAR") for channel in CAMERAS)]  # fmt: skip
    assert [granted(book, *pair).importance for pair in pairs] == [6, 5, 4, 3, 3, 2, 2, 2]


def test_a_storm_makes_one_camera_important(sources: list[DemoSource]) -> None:
    first, second, third = policies_by_phase(GRID)
    assert first.bandwidth_bps is None
    assert second.bandwidth_bps == LIMIT_KBPS * 1_000
    for channel, client in zip(CAMERAS, ("ALDER", "BIRCH", "CEDAR"), strict=True):
        sample = sample_of(sources, channel, client)
        before, after = (granted(book, channel, client, sample) for book in (second, third))
        assert (before.importance, before.shaping, before.deadline_ms) == (2, "scaling", 5_000)
        is_affected = client == "CEDAR"
        assert after.importance == (5 if is_affected else 2)
        assert (after.shaping == "scaling") is not is_affected
        assert after.deadline_ms == 5_000
