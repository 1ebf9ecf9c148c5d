"""The demonstration stream: what it says, and how it behaves as a client."""

from __future__ import annotations

import asyncio
from itertools import islice, pairwise

import pytest
from benchmarks.ports import free_port

import accord
from accord.apps.demo import PERIOD_S, Demonstration, Sample, run_demo
from accord.client.messages import Extras, to_message, to_received
from accord.edges.mqtt.packets import Publish
from accord.predicates import parse, parse_xpath
from tests.brokers import HOST, start_accord

LIMIT_S = 60.0
SAMPLES = 5 * 600  # ten minutes


def samples(number: int, seed: int = 1) -> list[Sample]:
    return list(islice(Demonstration(seed), number))


def test_a_seed_says_it_all() -> None:
    assert samples(500) == samples(500)
    assert samples(500) != samples(500, seed=2)


def test_five_events_a_second_of_all_kinds() -> None:
    assert PERIOD_S == 0.2
    assert [sample.channel for sample in samples(10)] == [
        "demo/uav/heron",
        "demo/uav/kite",
        "demo/uav/osprey",
        "demo/report",
        "demo/weather/grindelwald",
        "demo/uav/heron",
        "demo/uav/kite",
        "demo/uav/osprey",
        "demo/report",
        "demo/weather/schilthorn",
    ]


def test_aircraft_stay_within_bounds_and_move() -> None:
    flights = [sample for sample in samples(SAMPLES) if sample.channel == "demo/uav/kite"]
    altitudes = [sample.attributes["altitude_m"] for sample in flights]
    assert all(isinstance(altitude, int) and 80 <= altitude <= 600 for altitude in altitudes)
    batteries = [sample.attributes["battery_pct"] for sample in flights]
    assert all(isinstance(battery, int) and 15 <= battery <= 100 for battery in batteries)
    assert all(before.payload != after.payload for before, after in pairwise(flights))


@pytest.mark.parametrize(
    ("condition", "channel"),
    [
        ("altitude_m > 300", "demo/uav/"),
        ("altitude_m < 150 AND platform = 'UAV'", "demo/uav/"),
        ("priority = 'flash'", "demo/report"),
        ("is_raining", "demo/weather/"),
        ("temperature_c < 0", "demo/weather/"),
    ],
)
def test_predicates_have_something_to_find_and_to_leave(condition: str, channel: str) -> None:
    predicate = parse(condition)
    events = [to_received(message(sample), 0) for sample in samples(SAMPLES)]
    found = [event for event in events if predicate.matches(event)]
    considered = [event for event in events if event.channel.startswith(channel)]
    assert 0 < len(found) < len(considered)
    assert all(event.channel.startswith(channel) for event in found)


def test_xpath_has_too() -> None:
    predicate = parse_xpath("/report/smoke > 6")
    found = [s for s in samples(SAMPLES) if predicate.matches(to_received(message(s), 0))]
    assert found
    assert {sample.attributes["sighting"] for sample in found} == {"smoke"}


def message(sample: Sample) -> Publish:
    extras = Extras(
        qos=sample.qos, key=sample.key, deadline_ms=sample.deadline_ms, metadata=sample.metadata
    )
    return to_message(sample.channel, sample.payload, sample.attributes, extras)


def test_it_publishes_until_it_is_cancelled() -> None:
    async def no_sleep(_seconds: float) -> None:
        await asyncio.sleep(0)

    async def watch(url: str) -> list[str]:
        async with (
            asyncio.timeout(LIMIT_S),
            accord.connect(url) as session,
            session.subscribe("demo/#") as events,
        ):
            demo = asyncio.create_task(run_demo(url, seed=1, sleep=no_sleep))
            seen = [(await anext(events)).channel for _ in range(20)]
            demo.cancel()
            await asyncio.gather(demo, return_exceptions=True)
            assert demo.cancelled()
            return seen

    with start_accord() as broker:
        seen = asyncio.run(watch(f"mqtt://{HOST}:{broker.port}"))
    # Events of different quality of service may overtake each other.
    flights = [sample.channel for sample in samples(20) if sample.channel.startswith("demo/uav")]
    assert [channel for channel in seen if channel.startswith("demo/uav")][:10] == flights[:10]
    assert "demo/report" in seen


def test_it_goes_in_silence_where_it_is_not_wanted() -> None:
    asyncio.run(run_demo(f"mqtt://{HOST}:{free_port()}"))
    config = '[anonymous]\nallowed = true\nmay = { publish = ["x"], subscribe = ["#"] }\n'
    with start_accord(config=config) as broker:
        url = f"mqtt://{HOST}:{broker.port}"
        asyncio.run(asyncio.wait_for(run_demo(url), LIMIT_S))
