"""A load against brokers; how fast it goes is no matter here, that nothing goes missing is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.brokers import HOST, start_accord, start_mosquitto
from tests.cli.conftest import RunningNode
from tests.client.broker import start

from accord.apps.load.frames import LoadError
from accord.apps.load.load import ChannelLoad, LoadShape, LoadTarget, Result
from accord.client.address import parse_address

RUN_S = 0.1


def target(url: str) -> LoadTarget:
    address = parse_address(url)
    return LoadTarget(address.host, address.port)


def measure(url: str, shape: LoadShape, rate_hz: float | None = None) -> Result:
    with ChannelLoad(target(url), shape) as load:
        return load.run(RUN_S, rate_hz, lambda _: None)


SHAPES = [
    LoadShape(),
    LoadShape(qos=1),
    LoadShape(qos=2),
    LoadShape(publishers=3, subscribers=4),
    LoadShape(publishers=3, subscribers=2, qos=2, size=8),
    LoadShape(size=100_000),
    LoadShape(subscribers=0),
    LoadShape(subscribers=0, qos=1),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_everything_published_arrives(node: RunningNode, shape: LoadShape) -> None:
    result = measure(node.url, shape)
    assert result.published > 0
    assert result.delivered == result.published * shape.subscribers
    assert (result.lost, result.refused) == (0, 0)
    assert result.spent_s >= RUN_S
    assert len(result.samples) == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_rate(node: RunningNode, qos: int) -> None:
    result = measure(node.url, LoadShape(qos=qos, subscribers=2), 200)
    assert 0 < result.published <= 200 * RUN_S
    assert result.delivered == 2 * result.published
    assert len(result.samples) == result.delivered
    assert 0 < result.samples.percentile(50) <= result.samples.most


def test_one_load_may_run_again(node: RunningNode) -> None:
    told: list[float] = []
    with ChannelLoad(target(node.url), LoadShape(qos=1)) as load:
        first = load.run(0.15, None, told.append)
        second = load.run(RUN_S, 100, told.append)
    assert first.delivered == first.published
    assert second.delivered == second.published <= 10
    assert told
    assert all(0 < share <= 1 for share in told)


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[str]:
    with start_mosquitto() as broker:
        yield f"mqtt://{HOST}:{broker.port}"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_another_broker(mosquitto: str, qos: int) -> None:
    """Which answers with other packets, in another order."""
    result = measure(mosquitto, LoadShape(qos=qos))
    assert result.delivered == result.published > 0


def test_what_is_refused_is_not_lost() -> None:
    config = '[anonymous]\nallowed = true\nmay = { publish = ["x"], subscribe = ["#"] }\n'
    with start_accord(config=config) as broker:
        for qos in (1, 2):
            result = measure(f"mqtt://{HOST}:{broker.port}", LoadShape(qos=qos), 100)
            assert result.refused == result.published > 0
            assert (result.delivered, result.lost) == (0, 0)


def test_what_does_not_arrive_is_lost() -> None:
    """And the load goes on without it."""
    config = "[limits]\noutbox_bytes = 256\n"
    with start_accord(config=config) as broker:
        result = measure(f"mqtt://{HOST}:{broker.port}", LoadShape(size=1_000))
    assert result.lost > 0
    assert result.lost == result.published - result.delivered


def test_a_subscription_that_is_refused() -> None:
    config = '[anonymous]\nallowed = true\nmay = { publish = ["#"], subscribe = ["x"] }\n'
    refusal = pytest.raises(LoadError, match="refused a subscription: not authorized")
    with start_accord(config=config) as broker, refusal:
        measure(f"mqtt://{HOST}:{broker.port}", LoadShape())


def test_packets_that_the_node_does_not_take(node: RunningNode) -> None:
    with pytest.raises(LoadError, match="the node takes packets of at most"):
        measure(node.url, LoadShape(size=16_000_000))


def test_nobody_there(dead_url: str) -> None:
    with pytest.raises(ConnectionRefusedError):
        measure(dead_url, LoadShape())


def test_a_node_that_goes(tmp_path: Path) -> None:
    with start("accord", tmp_path) as broker, ChannelLoad(target(broker.url), LoadShape()) as load:  # noqa: SIM117
        with pytest.raises(LoadError, match=r"closed the connection|broke"):
            load.run(30, 100, lambda _: broker.kill())
