"""What links do to messages, seen from two machines at their ends."""

from __future__ import annotations

from typing import Any

import pytest

from accord.sim.delays import Constant, Uniform
from accord.sim.links import LinkModel
from accord.sim.run import Simulation
from accord.sim.topology import line
from accord.sim.trace import SimulationError
from tests.sim.machines import S, Silent

MS = 1_000


class Pair:
    """Two linked machines, `a` and `b`, which have connected when the test begins."""

    def __init__(self, *, seed: int = 1, **model: Any) -> None:
        topology = line(2)
        self.model = LinkModel(**{"delay": Constant(10 * MS), **model})
        self.simulation = Simulation(topology, Silent, seed=seed, model=lambda _: self.model)
        self.simulation.advance(S)
        self.link = self.simulation.network.link("n0", "n1")

    @property
    def a(self) -> Silent:
        machine = self.simulation.machine("n0")
        assert isinstance(machine, Silent)
        return machine

    @property
    def b(self) -> Silent:
        machine = self.simulation.machine("n1")
        assert isinstance(machine, Silent)
        return machine

    @property
    def now_us(self) -> int:
        return self.simulation.clock.now_us

    def send(self, *messages: Any) -> None:
        self.a.sends.extend(("n1", message) for message in messages)
        self.simulation.touch("n0")

    def offer(self, *frames: bytes) -> None:
        self.a.data.setdefault("n1", []).extend(frames)
        self.a.ready.append("n1")
        self.simulation.touch("n0")

    def pass_time(self, time_us: int) -> None:
        self.simulation.advance(self.now_us + time_us)

    def got(self) -> list[Any]:
        return [message for _, _, message in self.b.received]


def test_a_message_arrives_after_the_delay() -> None:
    pair = Pair()
    pair.send("hello")
    pair.pass_time(10 * MS - 1)
    assert pair.got() == []
    pair.pass_time(1)
    assert pair.b.received == [(S + 10 * MS, "n0", "hello")]


def test_machines_are_told_once_the_connection_is_there() -> None:
    pair = Pair(connect_us=50 * MS)
    assert pair.a.links == [(70 * MS, "n1", True)]
    assert pair.b.links == [(70 * MS, "n0", True)]


def test_a_stream_keeps_order_whatever_the_delays() -> None:
    pair = Pair(delay=Uniform(MS, 50 * MS))
    pair.send(*range(200))
    pair.pass_time(S)
    assert pair.got() == list(range(200))


def test_datagrams_overtake_each_other_unless_that_is_off() -> None:
    pair = Pair(mode="datagram", delay=Uniform(MS, 50 * MS))
    pair.send(*range(200))
    pair.pass_time(S)
    assert pair.got() != list(range(200))
    assert sorted(pair.got()) == list(range(200))
    pair = Pair(mode="datagram", delay=Uniform(MS, 50 * MS), is_reordering=False)
    pair.send(*range(200))
    pair.pass_time(S)
    assert pair.got() == list(range(200))


def test_a_stream_turns_loss_into_delay() -> None:
    pair = Pair(loss=0.3)
    pair.send(*range(100))
    pair.pass_time(60 * S)
    assert pair.got() == list(range(100))
    times = [at_us for at_us, _, _ in pair.b.received]
    assert max(times) > S + 50 * MS
    assert times == sorted(times)
    assert 20 < pair.link.counts.retried < 90


def test_datagrams_are_lost() -> None:
    pair = Pair(mode="datagram", loss=0.3)
    pair.send(*range(1_000))
    pair.pass_time(S)
    assert 630 < len(pair.got()) < 770
    assert pair.link.counts.lost == 1_000 - len(pair.got())


def test_datagrams_come_twice() -> None:
    pair = Pair(mode="datagram", duplication=0.2)
    pair.send(*range(1_000))
    pair.pass_time(S)
    assert 1_150 < len(pair.got()) < 1_250
    assert set(pair.got()) == set(range(1_000))


def test_jitter_makes_it_longer() -> None:
    pair = Pair(mode="datagram", jitter_us=5 * MS)
    pair.send(*range(500))
    pair.pass_time(S)
    times = [at_us - S for at_us, _, _ in pair.b.received]
    assert min(times) < 11 * MS
    assert 14 * MS < max(times) <= 15 * MS


def test_too_much_loss_breaks_a_stream_and_it_connects_again() -> None:
    pair = Pair(loss=0.9, tries=3)
    pair.send(*range(20))
    pair.pass_time(60 * S)
    ups = [is_up for _, _, is_up in pair.b.links]
    assert ups[:3] == [True, False, True]
    assert len(pair.got()) < 20
    assert pair.got() == list(range(len(pair.got())))


def test_a_rate_spaces_messages_out() -> None:
    pair = Pair(rate_bps=8_000_000)  # a byte in a microsecond
    pair.send(b"x" * 1_000, b"y" * 1_000)
    pair.pass_time(S)
    assert [at_us - S for at_us, _, _ in pair.b.received] == [11 * MS, 12 * MS]


def test_data_is_pulled_only_as_the_link_can_take_it() -> None:
    pair = Pair(rate_bps=1_000_000)
    pair.offer(*[bytes([number]) * 1_250 for number in range(40)])  # 10 ms each
    assert len(pair.a.data["n1"]) == 38  # 1,500 are wanted, so two are taken
    pair.pass_time(100 * MS)
    assert 26 <= len(pair.a.data["n1"]) <= 30
    pair.send("control")
    pair.pass_time(50 * MS)
    assert "control" in pair.got()  # though 250 ms of data wait
    pair.pass_time(S)
    frames = [message for message in pair.got() if message != "control"]
    assert [frame[0] for frame in frames] == list(range(40))


def test_without_a_rate_all_data_goes_at_once() -> None:
    pair = Pair()
    pair.offer(*[b"x" * 50_000] * 10)
    assert pair.a.data["n1"] == []
    pair.pass_time(10 * MS)
    assert len(pair.got()) == 10
    assert pair.link.counts.data_bytes == 500_000


def test_a_full_queue_drops_datagrams_and_breaks_streams() -> None:
    pair = Pair(mode="datagram", rate_bps=8_000_000, queue_bytes=10_000)
    pair.send(*[b"x" * 1_000] * 15)
    pair.pass_time(S)
    assert len(pair.got()) == 10
    assert pair.link.counts.overflowed == 5
    assert pair.link.counts.most_queued_bytes == 10_000
    pair = Pair(rate_bps=8_000_000, queue_bytes=10_000)
    pair.send(*[b"x" * 1_000] * 15)
    pair.pass_time(S)
    assert [is_up for _, _, is_up in pair.b.links] == [True, False, True]


def test_what_is_sent_nowhere_is_counted() -> None:
    pair = Pair()
    pair.simulation.network.block("n0", "n1", "link", pair.now_us, is_reported=True)
    pair.send("lost")
    pair.pass_time(S)
    assert pair.got() == []
    assert pair.link.counts.unconnected == 1


@pytest.mark.parametrize(
    "change", [{"loss": 1.0}, {"loss": -0.1}, {"duplication": 1.5}, {"jitter_us": -1},
               {"delay": Constant(-1)}]
)  # fmt: skip
def test_impossible_models_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SimulationError, match="expected"):
        LinkModel(**change)
