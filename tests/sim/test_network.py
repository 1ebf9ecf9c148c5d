"""Links that are down, partitions, and nodes that end: who learns what, and when."""

from __future__ import annotations

import pytest

from accord.sim.clock import Clock
from accord.sim.faults import Heal, LinkDown, LinkUp, NodeDown, NodeUp, Partition, SlowDown, Timed
from accord.sim.links import LinkModel
from accord.sim.network import Network
from accord.sim.run import Simulation
from accord.sim.topology import line, ring
from accord.sim.trace import SimulationError
from tests.sim.machines import S, Silent
from tests.sim.test_links import MS, Pair


def failing(pair: Pair, *faults: LinkDown | LinkUp | NodeDown | NodeUp | SlowDown) -> None:
    for fault in faults:
        fault.apply(pair.simulation, pair.now_us)


DOWN, UP = LinkDown("n0", "n1"), LinkUp("n0", "n1")


def test_a_stream_holds_what_a_blocked_link_does_not_take() -> None:
    pair = Pair()
    pair.send("before")
    failing(pair, DOWN)
    pair.send("during")
    pair.pass_time(5 * S)
    assert pair.got() == []
    assert len(pair.b.links) == 1  # nobody is told
    failing(pair, UP)
    pair.send("after")
    pair.pass_time(S)
    assert pair.got() == ["before", "during", "after"]


def test_datagrams_on_a_blocked_link_are_lost_also_those_on_their_way() -> None:
    pair = Pair(mode="datagram")
    pair.send("before")
    failing(pair, DOWN)
    pair.send("during")
    pair.pass_time(S)
    failing(pair, UP)
    pair.send("after")
    pair.pass_time(S)
    assert pair.got() == ["after"]
    assert pair.link.counts.blocked == 2


def test_a_stream_breaks_when_nothing_gets_through_for_too_long() -> None:
    pair = Pair(dead_us=3 * S)
    failing(pair, DOWN)
    pair.send("lost")
    pair.pass_time(3 * S - 1)
    assert len(pair.b.links) == 1
    pair.pass_time(1)
    assert [is_up for _, _, is_up in pair.a.links] == [True, False]
    assert [is_up for _, _, is_up in pair.b.links] == [True, False]
    failing(pair, UP)
    pair.pass_time(S)
    assert [is_up for _, _, is_up in pair.a.links] == [True, False, True]
    pair.send("found")
    pair.pass_time(S)
    assert pair.got() == ["found"]


def test_an_outage_that_ends_in_time_does_not_break_it_later() -> None:
    pair = Pair(dead_us=3 * S)
    failing(pair, DOWN)
    pair.pass_time(2 * S)
    failing(pair, UP)
    pair.pass_time(S // 2)
    failing(pair, DOWN)
    pair.pass_time(2 * S)
    failing(pair, UP)
    pair.pass_time(10 * S)
    assert len(pair.b.links) == 1


def test_an_outage_that_is_told_is_told_at_once() -> None:
    for mode in ("stream", "datagram"):
        pair = Pair(mode=mode)
        failing(pair, LinkDown("n0", "n1", is_told=True))
        assert [is_up for _, _, is_up in pair.a.links] == [True, False]
        assert [is_up for _, _, is_up in pair.b.links] == [True, False]
        failing(pair, UP)
        pair.pass_time(S)
        assert [is_up for _, _, is_up in pair.a.links] == [True, False, True]
        assert [is_up for _, _, is_up in pair.b.links] == [True, False, True]


def test_one_direction_can_be_down() -> None:
    pair = Pair(mode="datagram")
    failing(pair, LinkDown("n1", "n0", is_one_way=True))
    pair.send("there")
    pair.b.sends.append(("n0", "back"))
    pair.simulation.touch("n1")
    pair.pass_time(S)
    assert pair.got() == ["there"]
    assert pair.a.received == []


def test_a_slow_link_takes_longer() -> None:
    pair = Pair()
    failing(pair, SlowDown("n0", "n1", 5.0))
    pair.send("slow")
    pair.pass_time(S)
    failing(pair, SlowDown("n0", "n1", 1.0))
    pair.send("quick")
    pair.pass_time(S)
    assert [at_us for at_us, _, _ in pair.b.received] == [S + 50 * MS, 2 * S + 10 * MS]


def test_the_end_of_a_process_is_noticed_after_the_delay() -> None:
    pair = Pair()
    a = pair.a
    failing(pair, NodeDown("n1"))
    pair.pass_time(10 * MS)
    assert a.links[-1] == (S + 10 * MS, "n1", False)
    failing(pair, NodeUp("n1"))
    pair.pass_time(S)
    assert a.links[-1][2] is True
    assert [is_up for _, _, is_up in pair.b.links] == [True]  # another machine than before


def test_the_end_of_a_machine_is_noticed_late() -> None:
    pair = Pair(dead_us=5 * S)
    a = pair.a
    failing(pair, NodeDown("n1", is_silent=True))
    pair.pass_time(5 * S - 1)
    assert len(a.links) == 1
    pair.pass_time(1)
    assert len(a.links) == 2


def test_a_node_that_comes_back_at_once_breaks_its_old_connections() -> None:
    pair = Pair()
    failing(pair, NodeDown("n1", is_silent=True), NodeUp("n1"))
    pair.pass_time(S)
    assert [is_up for _, _, is_up in pair.a.links] == [True, False, True]
    assert [is_up for _, _, is_up in pair.b.links] == [True]
    pair.send("hello")
    pair.pass_time(S)
    assert pair.got() == ["hello"]


def test_over_datagrams_nobody_learns_of_a_crash() -> None:
    pair = Pair(mode="datagram")
    failing(pair, NodeDown("n1"))
    pair.send("lost")
    pair.pass_time(S)
    failing(pair, NodeUp("n1"))
    pair.send("found")
    pair.pass_time(S)
    assert len(pair.a.links) == 1
    assert [is_up for _, _, is_up in pair.b.links] == [True]
    assert pair.got() == ["found"]


def test_data_goes_on_after_an_outage() -> None:
    pair = Pair()
    failing(pair, DOWN)
    pair.offer(b"data")
    assert pair.a.data["n1"] == [b"data"]  # it waits where it can be managed
    failing(pair, UP)
    pair.pass_time(S)
    assert pair.got() == [b"data"]


def test_a_partition_separates_and_heals_without_undoing_other_outages() -> None:
    simulation = Simulation(ring(4), Silent, seed=1, model=LinkModel(mode="datagram"))
    simulation.advance(S)
    network = simulation.network
    LinkDown("n0", "n1").apply(simulation, S)
    Partition((("n0", "n1"),)).apply(simulation, S)
    assert network.part("n2") == network.part("n3")
    assert network.part("n0") != network.part("n3")
    assert network.part("n0") != network.part("n1")
    Heal().apply(simulation, S)
    assert network.link("n0", "n1").blocks
    assert not network.link("n1", "n2").blocks
    assert network.part("n0") == network.part("n1")  # the long way round
    NodeDown("n3").apply(simulation, S)
    assert network.part("n0") != network.part("n1")


def test_what_does_not_fit_is_refused() -> None:
    network = Network(
        Clock(), 1, arrive=lambda *_: None, notify=lambda *_: None, pull=lambda *_: None
    )
    network.add_node("a")
    network.add_node("b")
    for ends in (("a", "a"), ("a", "c")):
        with pytest.raises(SimulationError, match="expected"):
            network.join(*ends, LinkModel())
    with pytest.raises(SimulationError, match="one mode"):
        network.join("a", "b", LinkModel(), LinkModel(mode="datagram"))
    network.join("a", "b", LinkModel())
    with pytest.raises(SimulationError, match="linked once"):
        network.join("b", "a", LinkModel())
    with pytest.raises(SimulationError, match="twice"):
        network.add_node("a")
    with pytest.raises(SimulationError, match="expected a node, got 'z'"):
        network.partition([["a", "z"]], 0)
    with pytest.raises(SimulationError, match="expected two linked nodes"):
        Simulation(line(3), Silent, seed=1, faults=[Timed(0, LinkDown("n0", "n2"))])
    with pytest.raises(SimulationError, match="expected a node of the topology"):
        Simulation(line(3), Silent, seed=1, faults=[Timed(0, NodeDown("n9"))])
