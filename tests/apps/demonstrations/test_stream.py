"""The stream that a node publishes by default: its events, and how it behaves as a client."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest
from benchmarks.ports import free_port
from tests.brokers import HOST, start_accord

import accord
from accord.apps.demonstrations.stream import PERIOD_S, DemoStream, StreamEvent, run_demo
from accord.client.messages import Extras, to_message, to_received
from accord.core.mqtt.packets import Publish
from accord.predicates import parse, parse_xpath

LIMIT_S = 60.0
SAMPLES = 5 * 600  # ten minutes


def samples(number: int, seed: int = 1) -> list[StreamEvent]:
    return list(islice(DemoStream(seed), number))


def test_a_seed_decides_everything() -> None:
    assert samples(500) == samples(500)
    assert samples(500) != samples(500, seed=2)


def test_five_events_a_second_of_all_kinds() -> None:
    assert PERIOD_S == 0.2
    feeders = ["demo/feeder/F-12", "demo/feeder/F-21", "demo/feeder/F-34"]
    assert [sample.channel for sample in samples(10)] == [
        *feeders,
        "demo/transformer/T-1",
        "demo/outage",
        *feeders,
        "demo/crew/crew-2",
        "demo/outage",
    ]
    assert {sample.channel for sample in samples(100)} == {
        *feeders,
        *(f"demo/transformer/T-{number}" for number in (1, 2, 3)),
        *(f"demo/crew/crew-{number}" for number in (1, 2)),
        "demo/outage",
    }


def test_loads_stay_within_bounds_and_vary() -> None:
    measured = [sample for sample in samples(SAMPLES) if sample.channel == "demo/feeder/F-34"]
    loads = [sample.attributes["load_mw"] for sample in measured]
    assert all(isinstance(load, float) and 3 <= load <= 7 for load in loads)
    assert len(set(loads)) > 20


@pytest.mark.parametrize(
    ("condition", "channel"),
    [
        ("load_mw > 4", "demo/feeder/"),
        ("voltage_kv < 19.6", "demo/feeder/"),
        ("status = 'overload'", "demo/feeder/"),
        ("status = 'hot'", "demo/transformer/"),
        ("speed_kmh > 50", "demo/crew/"),
        ("priority = 'urgent'", "demo/outage"),
        ("customers > 500 AND cause = 'tree'", "demo/outage"),
    ],
)
def test_predicates_match_some_events_and_not_all(condition: str, channel: str) -> None:
    predicate = parse(condition)
    events = [to_received(message(sample), 0) for sample in samples(SAMPLES)]
    found = [event for event in events if predicate.matches(event)]
    considered = [event for event in events if event.channel.startswith(channel)]
    assert 0 < len(found) < len(considered)
    assert all(event.channel.startswith(channel) for event in found)


def test_so_does_xpath() -> None:
    predicate = parse_xpath("/outage/customers[@cause = 'tree'] > 600")
    found = [s for s in samples(SAMPLES) if predicate.matches(to_received(message(s), 0))]
    assert found
    assert {sample.attributes["cause"] for sample in found} == {"tree"}


def message(sample: StreamEvent) -> Publish:
    extras = Extras(
        qos=sample.qos, key=sample.key, deadline_ms=sample.deadline_ms, metadata=sample.metadata
    )
    return to_message(sample.channel, sample.payload, sample.attributes, extras)


def test_it_publishes_until_it_is_cancelled() -> None:
    async def no_sleep(_seconds: float) -> None:
        await asyncio.sleep(0)

    async def watch(url: str) -> list[accord.ReceivedEvent]:
        async with (
            asyncio.timeout(LIMIT_S),
            accord.connect(url) as session,
            session.subscribe("demo/#") as events,
        ):
            demo = asyncio.create_task(run_demo(url, seed=1, sleep=no_sleep))
            seen = [await anext(events) for _ in range(20)]
            demo.cancel()
            await asyncio.gather(demo, return_exceptions=True)
            assert demo.cancelled()
            return seen

    with start_accord() as broker:
        seen = asyncio.run(watch(f"mqtt://{HOST}:{broker.port}"))
    published = samples(1_000)
    for channel in {event.channel for event in seen}:
        # Waiting values are replaced by later ones of their key: the rest keeps its order.
        later = iter([each for each in published if each.channel == channel])
        for event in (event for event in seen if event.channel == channel):
            assert any(each.attributes == event.attributes for each in later)
    assert {"demo/outage", "demo/feeder/F-34"} <= {event.channel for event in seen}


def test_it_returns_where_it_is_refused() -> None:
    asyncio.run(run_demo(f"mqtt://{HOST}:{free_port()}"))
    config = '[anonymous]\nallowed = true\nmay = { publish = ["x"], subscribe = ["#"] }\n'
    with start_accord(config=config) as broker:
        url = f"mqtt://{HOST}:{broker.port}"
        asyncio.run(asyncio.wait_for(run_demo(url), LIMIT_S))
