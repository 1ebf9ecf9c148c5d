"""Random faults are scripts: from a seed, within their time, as often as asked for."""

from __future__ import annotations

import pytest

from accord.sim.faults import (
    ChangeLoss,
    Heal,
    LinkDown,
    LinkUp,
    NodeDown,
    NodeUp,
    Partition,
    RandomFaults,
    SlowDown,
    Timed,
    problem_with,
)
from accord.sim.run import Simulation
from accord.sim.topology import line, ring, waxman
from accord.sim.trace import SimulationError
from tests.sim.machines import S, Silent

HOUR = 3_600 * S
ALL = RandomFaults(
    begin_us=60 * S,
    end_us=HOUR,
    link_down_share=0.04,
    link_slow_share=0.02,
    node_down_share=0.02,
    disk_torn_share=0.3,
    disk_lost_share=0.3,
    silent_share=0.5,
    partition_share=0.1,
)


def test_a_script_is_made_of_its_seed() -> None:
    topology = waxman(20, 1)
    script = ALL.script(topology, 7)
    assert script == ALL.script(topology, 7)
    assert script != ALL.script(topology, 8)
    assert [timed.at_us for timed in script] == sorted(timed.at_us for timed in script)
    assert all(60 * S <= timed.at_us <= HOUR for timed in script)
    assert all(problem_with(timed.fault, topology) is None for timed in script)


def test_links_are_down_for_their_share_of_the_time() -> None:
    topology = ring(40)
    faults = RandomFaults(end_us=HOUR, link_down_share=0.04, link_down_us=5 * S)
    down_us = 0
    since: dict[tuple[str, str], int] = {}
    for timed in faults.script(topology, 3):
        fault = timed.fault
        assert isinstance(fault, LinkDown | LinkUp)
        if isinstance(fault, LinkDown):
            since[fault.one, fault.other] = timed.at_us
        else:
            down_us += timed.at_us - since.pop((fault.one, fault.other))
    assert not since
    assert 0.035 < down_us / (HOUR * len(topology.spans)) < 0.045


def test_all_is_well_at_the_end() -> None:
    simulation = Simulation(waxman(20, 1), Silent, seed=1, faults=ALL.script(waxman(20, 1), 7))
    simulation.advance(HOUR)
    assert len(simulation.machines()) == 20
    assert not any(link.blocks for link in simulation.network.links.values())
    assert all(link.slowdown == 1.0 for link in simulation.network.links.values())
    assert simulation.crashes > 5
    simulation.advance(HOUR + 60 * S)
    assert all(link.is_up for link in simulation.network.links.values())


def test_crashes_differ_in_what_they_take() -> None:
    crashes = [
        timed.fault for timed in ALL.script(waxman(20, 1), 7) if isinstance(timed.fault, NodeDown)
    ]
    assert {crash.disk for crash in crashes} == {"kept", "torn", "lost"}
    assert {crash.is_silent for crash in crashes} == {True, False}


def test_partitions_are_connected_parts() -> None:
    topology = waxman(20, 1)
    parts = [
        timed.fault.groups[0]
        for timed in ALL.script(topology, 7)
        if isinstance(timed.fault, Partition)
    ]
    assert parts
    neighbours = topology.neighbours()
    for part in parts:
        reached = {part[0]}
        waiting = [part[0]]
        while waiting:
            fresh = [
                each for each in neighbours[waiting.pop()] if each in part and each not in reached
            ]
            reached.update(fresh)
            waiting += fresh
        assert reached == set(part)
        assert 1 <= len(part) <= 10


def test_what_is_kept_on_disk_depends_on_the_crash() -> None:
    class Writing(Silent):
        def write(self) -> None:
            sink = self.start.disk.create("synced")
            sink.append([b"1"])
            sink.sync()
            self.start.disk.sync_names()
            self.start.disk.create("waiting")

    found = {}
    for disk in ("kept", "torn", "lost"):
        script = [Timed(2 * S, NodeDown("n0", disk)), Timed(3 * S, NodeUp("n0"))]
        simulation = Simulation(line(2), Writing, seed=4, faults=script)
        simulation.advance(S)
        machine = simulation.machine("n0")
        assert isinstance(machine, Writing)
        machine.write()
        simulation.advance(4 * S)
        restarted = simulation.machine("n0")
        assert isinstance(restarted, Writing)
        assert restarted is not machine
        assert restarted.start.incarnation > machine.start.incarnation
        found[disk] = restarted.start.disk.names()
    assert found["kept"] == ["synced", "waiting"]
    assert "synced" in found["torn"]
    assert found["lost"] == []


def test_loss_can_be_changed() -> None:
    simulation = Simulation(line(2), Silent, seed=1, faults=[Timed(S, ChangeLoss("n0", "n1", 0.5))])
    simulation.advance(2 * S)
    assert simulation.network.link("n1", "n0").model.loss == 0.5


def test_shares_and_times_are_checked() -> None:
    with pytest.raises(
        SimulationError, match="link_down_share: expected at least 0 and less than 1"
    ):
        RandomFaults(end_us=1, link_down_share=1.0)
    with pytest.raises(SimulationError, match="node_down_us: expected 0 or more"):
        RandomFaults(end_us=1, node_down_us=-1)


def test_faults_that_can_not_happen() -> None:
    topology = line(3)
    assert problem_with(Heal(), topology) is None
    assert problem_with(SlowDown("n0", "n1", 2.0), topology) is None
    assert "expected two linked nodes" in (problem_with(LinkUp("n0", "n2"), topology) or "")
    assert "got 'x'" in (problem_with(Partition((("n0", "x"),)), topology) or "")
    assert "got 'x'" in (problem_with(NodeUp("x"), topology) or "")
    assert "got 'x'" in (problem_with(LinkDown("n0", "x"), topology) or "")
