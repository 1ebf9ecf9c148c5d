"""Whole runs with small machines: what is delivered, what is found, and that it happens again."""

# ruff: noqa: ARG002 (machines take what the protocol gives them)

from __future__ import annotations

from typing import Any

import pytest

from accord.sim.checkers import (
    CheckedRun,
    Checker,
    DeadlineChecker,
    DeliveryChecker,
    DuplicateChecker,
    OrderChecker,
    QueueChecker,
)
from accord.sim.delays import Constant
from accord.sim.faults import LinkDown, LinkUp, NodeDown, NodeUp, RandomFaults, Timed
from accord.sim.links import LinkModel
from accord.sim.machine import Delivery, Make, Publication, Start
from accord.sim.run import Options, Outcome, RunFailedError, Simulation
from accord.sim.topology import grid, line, ring, waxman
from accord.sim.trace import SimulationError
from accord.sim.workloads import Choice, Publisher, Subscriber, Workload
from tests.sim.machines import Flooder, Pinger, S, Silent

OPTIONS = Options(settle_us=S, patience_us=5 * S, is_checking=True)


def load(**facts: Any) -> Workload:
    return Workload(
        (
            Publisher(**{"name": "p", "node": "n0", "channel": "a/b", "rate_hz": 10.0, **facts}),
            Publisher(
                name="q",
                node="n2",
                channel="a/c",
                rate_hz=5.0,
                pattern="poisson",
                attributes={"kind": Choice(("uav", "car"))},
            ),
        ),
        (
            Subscriber(name="all", node="n3", filter="a/#"),
            Subscriber(name="uavs", node="n1", filter="a/c", where="kind = 'uav'"),
            Subscriber(name="moving", node="n2", filter="#", there_us=5 * S, away_us=5 * S),
        ),
    )


def checkers() -> list[Checker]:
    return [DeliveryChecker(), DuplicateChecker(), OrderChecker(), DeadlineChecker(1.0)]


def run(make: Make = Flooder, until_us: int = 60 * S, **facts: Any) -> Outcome:
    given = {"workload": load(), "checkers": checkers(), "options": OPTIONS, "seed": 1, **facts}
    return Simulation(given.pop("topology", ring(4)), make, **given).run(until_us)


def test_flooding_delivers_everything_once_and_in_order() -> None:
    outcome = run().check()
    steady, chance = outcome.channels["a/b"], outcome.channels["a/c"]
    assert steady.published == 600
    assert steady.wanted > 700
    assert steady.delivered + steady.excused == steady.wanted
    assert steady.lost == steady.duplicates == 0
    assert steady.latency_us.most == 20_000  # n0 to n2 and n3, at 10 ms each
    assert 240 < chance.published < 370
    assert chance.delivered < 3 * chance.published


def test_an_idle_day_costs_nothing() -> None:
    outcome = Simulation(grid(4, 4), Silent, seed=1).run(86_400 * S)
    assert outcome.until_us == 86_400 * S
    assert outcome.happened < 100


def test_pings_find_the_round_trip() -> None:
    simulation = Simulation(line(3), Pinger, seed=1, model=LinkModel(jitter_us=2_000))
    simulation.run(60 * S).check()
    middle = simulation.machine("n1")
    assert isinstance(middle, Pinger)
    assert sorted(middle.round_trips_us) == ["n0", "n2"]
    assert all(20_000 <= trip_us <= 24_000 for trip_us in middle.round_trips_us.values())


def test_missing_deliveries_are_found_with_time_node_and_seed() -> None:
    outage = [Timed(20 * S, LinkDown("n0", "n1")), Timed(20 * S, LinkDown("n3", "n0"))]
    model = LinkModel(mode="datagram")
    outcome = run(model=model, faults=outage, seed=23)
    # No way leads out of n0: nothing that it publishes then is lost, and nothing else is.
    assert outcome.is_good
    assert outcome.channels["a/b"].unreachable > 300

    class Forgetful(Flooder):
        def publish(self, publication: Publication, now_us: int) -> None:
            if publication.sequence != 400:
                super().publish(publication, now_us)

    outcome = run(Forgetful, model=model, seed=23)
    with pytest.raises(RunFailedError) as caught:
        outcome.check()
    text = str(caught.value)
    assert "seed 23" in text
    assert "n3: delivery: all did not get p a/b 400" in text
    assert "replay with: Simulation(…, seed=23)" in text
    assert all(finding.at_us >= 45 * S for finding in outcome.findings)


def test_duplicates_disorder_lateness_and_what_nobody_wanted_are_found() -> None:
    class Careless(Flooder):
        def _pass_on(self, carried: Any, origin: str) -> None:
            super()._pass_on(carried, origin)
            if carried.publication == 50 and self.name == "n3":
                self.deliveries += [self.deliveries[-1]] if self.deliveries else []
                self.deliveries.append(Delivery("stranger", carried.payload))

    found = run(Careless).findings
    assert {finding.checker for finding in found} == {"duplicates", "delivery"}
    assert any("stranger got publication 50" in finding.problem for finding in found)

    model = LinkModel(mode="datagram", jitter_us=500_000)
    found = run(workload=load(deadline_us=300_000), model=model).findings
    assert {finding.checker for finding in found} == {"order", "deadlines"}
    assert {finding.node for finding in found} <= {"n1", "n2", "n3", ""}


def test_a_share_is_judged_at_the_end() -> None:
    model = LinkModel(mode="datagram", loss=0.3)
    strict = run(topology=line(4), model=model)
    assert strict.found > 100
    missed = [finding for finding in strict.findings if finding.checker == "delivery"]
    assert len(missed) == 100  # the first of them
    lax = [DeliveryChecker(0.2), DeadlineChecker(0.2)]
    assert run(topology=line(4), model=model, checkers=lax).is_good
    high = [DeliveryChecker(0.99), DeadlineChecker(0.99)]
    problems = [each.problem for each in run(topology=line(4), model=model, checkers=high).findings]
    assert len(problems) == 4
    assert all(problem.endswith("expected 99.000%") for problem in problems)


def test_subscriptions_come_back_after_a_crash() -> None:
    faults = [Timed(20 * S, NodeDown("n3")), Timed(30 * S, NodeUp("n3"))]
    workload = Workload(
        (Publisher(name="p", node="n0", channel="a/b", rate_hz=10.0),),
        (Subscriber(name="s", node="n3", filter="a/#"),),
    )
    outcome = run(faults=faults, workload=workload).check()
    assert outcome.crashes == 1
    tally = outcome.channels["a/b"]
    assert 478 <= tally.wanted <= 482  # not while it is down, nor in the second after
    assert tally.delivered >= tally.wanted - 1


def test_what_is_published_at_a_node_that_is_down_is_not_published() -> None:
    faults = [Timed(20 * S, NodeDown("n0")), Timed(30 * S, NodeUp("n0"))]
    outcome = run(faults=faults).check()
    assert outcome.unpublished == 100
    assert outcome.channels["a/b"].published == 500


def test_a_broken_invariant_ends_the_run_where_it_breaks() -> None:
    class Broken(Flooder):
        def check_invariants(self) -> None:
            assert len(self.seen) < 30, "too many seen"

    outcome = run(Broken)
    (finding,) = [each for each in outcome.findings if each.checker == "invariants"]
    assert finding.problem == "check_invariants: too many seen"
    assert finding.at_us == outcome.until_us < 10 * S
    assert finding.node in ("n0", "n2")
    assert run(Broken, options=Options(settle_us=S)).is_good  # only in test mode


def test_an_exception_is_a_finding_with_its_node() -> None:
    class Failing(Flooder):
        def receive(self, neighbour: str, message: Any, now_us: int) -> None:
            if now_us > 10 * S and self.name == "n2":
                raise ZeroDivisionError("oh")
            super().receive(neighbour, message, now_us)

    simulation = Simulation(ring(4), Failing, seed=1, workload=load(), options=OPTIONS)
    outcome = simulation.run(60 * S)
    (finding,) = outcome.findings
    assert (finding.node, finding.checker) == ("n2", "exception")
    assert finding.problem.startswith("ZeroDivisionError in test_run.py:")
    assert 10 * S < outcome.until_us < 11 * S
    assert isinstance(simulation.error, ZeroDivisionError)
    assert outcome.last  # the trace shows what came before


def test_a_machine_that_is_always_due_is_found() -> None:
    class Stuck(Silent):
        def next_due_us(self) -> int | None:
            return 5 * S

    outcome = Simulation(line(1), Stuck, seed=1).run(60 * S)
    assert "n0 is due at 5000000 µs whatever it does" in outcome.findings[0].problem
    assert outcome.until_us == 5 * S


def test_a_machine_that_talks_to_strangers_or_without_end_is_found() -> None:
    class Lost(Silent):
        def link_up(self, neighbour: str, now_us: int) -> None:
            self.sends.append(("nobody", "hello"))

    class Endless(Silent):
        def link_up(self, neighbour: str, now_us: int) -> None:
            self.ready.append(neighbour)

        def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
            return [b"x"]

    found = Simulation(line(2), Lost, seed=1).run(S).findings
    assert "expected a neighbour, got 'nobody'" in found[0].problem
    found = Simulation(line(2), Endless, seed=1).run(S).findings
    assert "n0>n1: data without end" in found[0].problem


def test_a_machine_is_called_when_it_wants_to_be() -> None:
    class Timer(Silent):
        def __init__(self, start: Start) -> None:
            super().__init__(start)
            self.wanted = [3 * S, S, 7 * S]
            self.due_us = 5 * S

        def receive(self, neighbour: str, message: Any, now_us: int) -> None:
            self.due_us = message

        def advance(self, now_us: int) -> None:
            super().advance(now_us)

    simulation = Simulation(line(2), Timer, seed=1)
    simulation.advance(S)
    one, other = simulation.machine("n0"), simulation.machine("n1")
    assert isinstance(one, Timer)
    assert isinstance(other, Timer)
    one.sends.append(("n1", 9 * S))  # later than it said
    other.sends.append(("n0", 2 * S))  # earlier
    simulation.touch("n0")
    simulation.touch("n1")
    simulation.advance(60 * S)
    assert one.advanced == [2 * S]
    assert other.advanced == [9 * S]


def test_queues_that_grow_too_long_are_found() -> None:
    class Hoarding(Flooder):
        def queued_bytes(self) -> int:
            return 100 * len(self.seen)

    slow = LinkModel(delay=Constant(1_000), rate_bps=8_000)
    found = run(Hoarding, model=slow, checkers=[QueueChecker(200, 5_000)]).findings
    assert {finding.problem.split(" queued at ")[1].split(" ")[0] for finding in found} == {
        "link",
        "the",
    }
    assert run(Hoarding, model=slow, checkers=[QueueChecker(1_000_000, 1_000_000)]).is_good


def test_checkers_can_look_at_everything() -> None:
    class Counting(Checker):
        name = "counting"

        def sampled(self, world: CheckedRun, now_us: int) -> None:
            if len(world.machines()) != 4:
                self.find(now_us, "", f"{len(world.machines())} machines")

    faults = [Timed(20 * S + 1, NodeDown("n3")), Timed(22 * S + 1, NodeUp("n3"))]
    found = run(faults=faults, checkers=[Counting()]).findings
    assert [(each.at_us, each.problem) for each in found] == [
        (21 * S, "3 machines"),
        (22 * S, "3 machines"),
    ]


def test_clients_at_unknown_nodes_and_machines_without_clients_are_refused() -> None:
    with pytest.raises(SimulationError, match="p: expected a node of the topology, got 'n0'"):
        Simulation(waxman(12, 1), Flooder, seed=1, workload=load())
    outcome = Simulation(ring(4), Silent, seed=1, workload=load()).run(S)
    assert "expected a node that clients can use" in outcome.findings[0].problem


def test_the_same_seed_gives_the_same_run() -> None:
    faults = RandomFaults(
        end_us=40 * S, link_down_share=0.2, node_down_share=0.1, node_down_us=3 * S
    )
    topology = waxman(9, 2)

    def outcome(seed: int) -> Outcome:
        script = faults.script(topology, seed)
        model = LinkModel(loss=0.1, jitter_us=3_000)
        return run(topology=topology, faults=script, model=model, checkers=[], seed=seed)

    assert outcome(1).trace == outcome(1).trace
    assert outcome(1).trace != outcome(2).trace
    assert outcome(1).happened == outcome(1).happened


def test_after_the_last_outage_everything_arrives_again() -> None:
    faults = [Timed(20 * S, LinkDown("n0", "n1")), Timed(25 * S, LinkUp("n0", "n1"))]
    outcome = run(topology=line(4), faults=faults, options=Options(settle_us=S, patience_us=30 * S))
    assert outcome.is_good  # streams hold what they could not send
    assert outcome.channels["a/b"].latency_us.most > 4 * S
