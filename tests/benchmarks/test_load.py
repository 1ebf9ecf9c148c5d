"""Load arrives completely, in every shape, or what is missing is counted."""

from __future__ import annotations

import itertools
import os
import socket

import pytest
from benchmarks.contenders import CONTENDERS, Broker
from benchmarks.load import BurstLane, Load, Messages, Shape, in_turns, plan_of
from benchmarks.mqtt import Mqtt
from benchmarks.race import Case, attempt, race
from tests.benchmarks.relay import relay

from accord.apps.load.frames import LoadError
from accord.apps.load.traffic import LoadClient, LoadPublisher, Plan
from benchmarks import load as load_module

SHAPES = (
    Shape("1→1"),
    Shape("1→3", subscribers=3),
    Shape("3→1", publishers=3),
    Shape("3→3 in pairs", lanes=3),
    Shape("1→3 by topic", subscribers=3, topics=3),
)


def _broker(port: int) -> Broker:
    # What is measured is this process: the relay lives in it.
    return Broker(CONTENDERS[0], os.getpid(), port)


@pytest.mark.parametrize("dialect", [Mqtt(4), Mqtt(4, qos=1), Mqtt(5, qos=1)])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_everything_arrives(shape: Shape, dialect: Mqtt) -> None:
    with relay() as port:
        load = Load(_broker(port).connect, dialect, shape, Messages(1_000))
        for count in (1, 2_000):
            burst = load.run(count)
            assert burst.published >= count
            assert burst.expected == burst.published * shape.subscribers // shape.topics
            assert burst.lost == 0
        load.close()


@pytest.mark.parametrize("qos", [0, 1])
def test_a_loss_is_counted(qos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "_STALL_S", 1.0)
    with relay(loses_every=100) as port:
        load = Load(_broker(port).connect, Mqtt(4, qos), Shape("1→1"), Messages(1_000))
        assert load.run(250).lost == 2
        load.close()


def test_chunks_and_windows_are_bounded_in_bytes_and_by_what_a_broker_takes() -> None:
    assert plan_of(112, 60_000) == Plan(chunk=292, window=16 * 292)
    assert plan_of(112, 60_000, topics=10) == Plan(chunk=290, window=16 * 290, topics=10)
    assert plan_of(1_000, 40) == Plan(chunk=32, window=32)
    assert plan_of(112, 1) == Plan(chunk=1, window=1)


def test_no_more_than_a_window_is_on_its_way() -> None:
    pairs = [socket.socketpair() for _ in range(4)]
    for _, theirs in pairs:
        theirs.settimeout(10)
    (first, _), (second, _), (quick, to_quick), (slow, to_slow) = pairs
    source = in_turns([b"chunk"], 10)
    publishers = [LoadPublisher(each, Mqtt(4), source, 40) for each in (first, second)]
    subscribers = [LoadClient(each, Mqtt(4)) for each in (quick, slow)]
    lane = BurstLane(publishers, subscribers, Plan(40, 10))
    assert lane.begin(95) == 2 * 100
    lane.feed()
    assert [publisher.published for publisher in publishers] == [20, 20]

    message = Mqtt(4).message("bench/0", b"xyz", 0)
    to_quick.sendall(message * 40)
    to_slow.sendall(message * 15)
    for subscriber in subscribers:
        subscriber.take(bytearray(4_096), 0)
    lane.feed()
    assert lane.published == 50
    assert not lane.is_done
    for end in itertools.chain.from_iterable(pairs):
        end.close()


def test_a_race_reports_cost_and_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(SHAPES[0], 100, 0)
    with relay() as port:
        measured = race([_broker(port)], case, 2, 0.01)["mosquitto"]
        assert len(measured.cpu_us) == len(measured.rate_hz) == 2
        assert all(cost > 0 for cost in measured.cpu_us)
        assert measured.trouble is None
    monkeypatch.setattr(load_module, "_STALL_S", 0.2)
    with relay(loses_every=1_000) as port:
        measured = race([_broker(port)], case, 2, 0.01)["mosquitto"]
        assert measured.cpu_us == []
        assert "messages were lost" in str(measured.trouble)
    # Nobody listens there any more.
    assert "refused" in str(race([_broker(port)], case, 1, 0.01)["mosquitto"].trouble)


def test_who_fails_leaves_the_race() -> None:
    def act(number: int) -> None:
        if number > 1:
            raise LoadError(f"{number} is too many")

    entrants = {"one": 1, "two": 2}
    assert attempt(entrants, act) == {"two": "2 is too many"}
    assert entrants == {"one": 1}
