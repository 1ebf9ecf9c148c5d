"""Random runs of nodes that negotiate quality over a real overlay: all from a seed.

Clients come, change their minds and go; links lose, duplicate and fail; nodes crash, some of them
a moment after something was asked. Then all is left alone, and must be as it is in truth; then
nobody expects anything any more, and nothing may be left. `scripts/negotiation_runs.py` makes many.

All the time, at each node, there is *no contradictory state*:
- all invariants of the negotiation hold: who is told to be satisfied relies on as many publishers
  as it wants, each of which is good enough now; who is told that something is being done relies on
  whom it is asked of; nothing is tried, held or withheld that nobody needs;
- what a client was told last is how its expectation stands, unless it is about to be told;
- the node does what it was ordered to and was not ordered to undo, and the coordinator knows of it;
- nobody is advised to do less than is needed of it, nor was before and is to do so still; nor more
  than it can.
In the end also between nodes:
- each state, as it is known and as it was told, and each skyline is that of a global computation;
- what a node relies on at a neighbour the neighbour knows of, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final, cast

from accord.core.overlay.options import OverlayOptions
from accord.core.quality.costs import FREE, LinearCost
from accord.core.quality.expectations import Expectation, PropertyRequirement
from accord.core.quality.negotiation import NegotiationOptions as QualityOptions
from accord.core.quality.profiles import Capability, Profile
from accord.core.quality.properties import Better, Property
from accord.sim.checkers import CheckedRun, Checker
from accord.sim.delays import Lognormal
from accord.sim.faults import ChangeLoss, NodeDown, NodeUp, RandomFaults, Timed
from accord.sim.links import LinkModel
from accord.sim.machine import Machine, Start
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.topology import Topology, barabasi_albert, geometric, grid, line, ring, waxman
from tests.sim.negotiation_truth import Nodes, is_quiet, left_over, problems
from tests.sim.quality_nodes import Home, Key, Publisher, QualityNode

MS: Final = 1_000
S: Final = 1_000_000
FAULTS_END: Final = 16 * S
CHANGES_END: Final = 18 * S
SETTLED: Final = 24 * S
SAMPLE: Final = 3 * S
PATIENCE: Final = 30 * S  # in which there must be a quiet moment
STEP: Final = 50 * MS
CLEAN: Final = 9 * S
_CHANNELS: Final = ("uav/imagery", "uav/track", "sea")
_FILTERS: Final = (*_CHANNELS, "uav/+", "#")
_SHARPNESS: Final = Property(name="sharpness", better=Better.HIGHER, highest=100.0)


class ContradictionChecker(Checker):
    """Now and then all invariants; those of the run as a whole come from outside."""

    name = "contradictions"

    def sampled(self, world: CheckedRun, now_us: int) -> None:  # noqa: ARG002
        for machine in world.machines().values():
            machine.check_invariants()


class QualityRun:
    script = "negotiation_runs"

    def __init__(self, seed: int, *, is_checking: bool = False) -> None:
        self.random = Random(f"negotiation {seed}")  # noqa: S311
        self.topology = self._topology()
        self.homes = {name: Home() for name in self.topology.nodes}
        self.changes = 0
        self._count = 0
        self._counts = {"advice": 0, "acts": 0, "withdrawn": 0}
        self._overlay_options = OverlayOptions(ping_us=S // 2)
        self._quality_options = QualityOptions(
            strategy=self.random.choice(("pareto", "cheapest", "freeing")),
            mechanism_timeout_us=2 * S,
            remote_timeout_us=6 * S,
            retry_us=10 * S,
            visits=self.random.choice((1, 4)),
        )
        loss = self.random.choice((0.0, 0.01, 0.1, 0.3))
        model = LinkModel(
            delay=Lognormal(self.random.choice((2_000, 20_000)), 0.3),
            loss=loss,
            duplication=self.random.choice((0.0, 0.1)),
            mode=self.random.choice(("stream", "datagram")),
            dead_us=3 * S,
        )
        self.checker = ContradictionChecker()
        self.simulation = Simulation(
            self.topology,
            self._make,
            seed=seed,
            model=model,
            faults=[*self._faults(seed), *self._calm(loss)],
            checkers=[self.checker],
            options=Options(is_checking=is_checking, is_tracing=False, sample_us=SAMPLE),
            replay=f"python scripts/{self.script}.py --seed {seed}",
        )
        for _ in range(self.random.randint(20, 50)):
            at_us = self.random.randrange(S, CHANGES_END)
            self.simulation.clock.at(at_us, self._change)

    def _topology(self) -> Topology:
        return topology_of(self.random)

    def run(self) -> Outcome:
        simulation = self.simulation
        simulation.advance(SETTLED)
        if not simulation.found:
            self._end()
        return simulation.finish()

    def nodes(self) -> Nodes:
        return cast("Mapping[str, QualityNode]", self.simulation.machines())

    def counts(self) -> dict[str, int]:
        """What happened in it, so that it can be judged what it is worth."""
        return {"changes": self.changes, "expectations": self._count, **self._counts}

    def _make(self, start: Start) -> Machine:
        home = self.homes[start.name]
        return QualityNode(start, home, self._overlay_options, self._quality_options, self._counts)

    def _faults(self, seed: int) -> list[Timed]:
        random = self.random
        faults = RandomFaults(
            begin_us=2 * S,
            end_us=FAULTS_END,
            link_down_share=random.choice((0.0, 0.05, 0.2)),
            link_down_us=random.choice((1, 4)) * S,
            link_slow_share=random.choice((0.0, 0.1)),
            node_down_share=random.choice((0.0, 0.05)),
            node_down_us=3 * S,
            silent_share=0.5,
            partition_share=random.choice((0.0, 0.1)),
            partition_us=4 * S,
        )
        return faults.script(self.topology, seed)

    def _calm(self, loss: float) -> list[Timed]:
        """Links that lose so much that they fail again and again do not, at last."""
        if loss < 0.05:
            return []
        spans = self.topology.spans
        return [Timed(FAULTS_END, ChangeLoss(span.one, span.other, 0.01)) for span in spans]

    # Changes

    def _change(self, now_us: int, _: object) -> None:
        name = self.random.choice(self.topology.nodes)
        node = self.simulation.machines().get(name)
        if node is None:
            return
        assert isinstance(node, QualityNode)
        node.now_us = now_us
        self.changes += 1
        self._act(node, self.random.random())
        self.simulation.touch(name)
        if self.random.random() < 0.05 and now_us < FAULTS_END - 2 * S:
            self._crash_in_a_moment(now_us)

    def _crash_in_a_moment(self, now_us: int) -> None:
        """While what was just asked is on its way."""
        name = self.random.choice(self.topology.nodes)
        down_us = now_us + self.random.randrange(200 * MS)
        up_us = down_us + self.random.randrange(10 * MS, 2 * S)
        is_silent = self.random.random() < 0.5
        crash = NodeDown(name, "kept", is_silent)
        for at_us, fault in ((down_us, crash), (up_us, NodeUp(name))):
            self.simulation.clock.at(at_us, _apply, (self.simulation, fault))

    def _act(self, node: QualityNode, chance: float) -> None:
        home = node.home
        if chance < 0.3:
            key = f"{node.name}P{self.random.randrange(3)}", self.random.choice(_CHANNELS)
            self._publish(node, key)
        elif chance < 0.35:
            home.properties[_SHARPNESS.name] = _SHARPNESS
            node.tell(node.quality.define(_SHARPNESS, now_us=node.now_us))
        elif chance < 0.4 and home.publishers:
            key = self.random.choice(list(home.publishers))
            del home.publishers[key]
            node.leave(key)
        elif chance < 0.7 or not home.expectations:
            self._expect(node)
        else:
            self._change_mind(node, self.random.choice(list(home.expectations)))

    def _publish(self, node: QualityNode, key: Key) -> None:
        random = self.random
        rate = float(random.randint(2, 12))
        price = LinearCost(0.0, random.choice((0.1, 1.0)))
        capabilities = [
            Capability("rate", 0.0, rate, float(random.randint(0, int(rate))), price),
            Capability("confidence", 0.0, 100.0, float(random.randrange(100)), FREE),
        ]
        if _SHARPNESS.name in node.home.properties and random.random() < 0.5:
            capabilities.append(Capability(_SHARPNESS.name, 10.0, 90.0, 40.0, price))
        profile = Profile(publisher=key[0], channel=key[1], capabilities=tuple(capabilities))
        node.home.publishers[key] = Publisher(
            profile,
            latency_ms=float(random.choice((1, 20, 80))),
            obeys=random.random() < 0.8,
            is_helped=random.random() < 0.6,
        )
        node.publish(key)

    def _expect(self, node: QualityNode) -> None:
        self._count += 1
        expectation = self._expectation(node, f"{node.name}X{self._count}")
        node.home.expectations[expectation.id] = expectation
        node.tell(node.quality.register(expectation, now_us=node.now_us))

    def _expectation(self, node: QualityNode, id_: str) -> Expectation:
        random = self.random
        wanted = {
            "rate": PropertyRequirement("rate", float(random.randint(1, 13))),
            "confidence": PropertyRequirement("confidence", float(random.randrange(100))),
            "latency": PropertyRequirement("latency", None, float(random.choice((10, 50, 150)))),
        }
        names = random.sample(("rate", "confidence", "latency"), random.choice((1, 1, 2, 3)))
        requirements = [wanted[name] for name in names]
        if _SHARPNESS.name in node.home.properties and random.random() < 0.3:
            requirements.append(PropertyRequirement(_SHARPNESS.name, 60.0))
        return Expectation(
            id=id_,
            subscription=id_
            if random.random() < 0.6
            else f"{node.name}S{random.randrange(2)}{id_[-1]}",
            channel=random.choice(_FILTERS),
            requirements=tuple(requirements),
            utility=float(random.randint(1, 5)),
            publishers=random.choice((1, 1, 1, 2, 3)),
        )

    def _change_mind(self, node: QualityNode, id_: str) -> None:
        home, chance = node.home, self.random.random()
        if id_ in home.suspended and chance < 0.7:
            del home.suspended[id_]
            node.tell(node.quality.resume(id_, now_us=node.now_us))
        elif id_ not in home.suspended and chance < 0.3:
            home.suspended[id_] = True
            node.suspend(id_)
        elif chance < 0.7:
            del home.expectations[id_]
            home.suspended.pop(id_, None)
            node.revoke(id_)
        else:
            before = home.expectations[id_]
            drawn = self._expectation(node, id_)
            changed = home.expectations[id_] = Expectation(
                id=id_,
                subscription=before.subscription,
                channel=drawn.channel,
                requirements=drawn.requirements,
                utility=drawn.utility,
                publishers=drawn.publishers,
            )
            node.tell(node.quality.update(changed, now_us=node.now_us))

    # The end

    def _end(self) -> None:
        simulation = self.simulation
        for name in self.topology.nodes:  # all know it now, those too that did not need to
            node = self.nodes()[name]
            node.now_us = simulation.clock.now_us
            node.tell(node.quality.define(_SHARPNESS, now_us=node.now_us))
            simulation.touch(name)
        simulation.advance(SETTLED + 2 * S)
        while not simulation.found and not is_quiet(self.nodes()):
            simulation.advance(simulation.clock.now_us + STEP)
            if simulation.clock.now_us > SETTLED + PATIENCE:
                self.checker.find(simulation.clock.now_us, "", "it does not come to rest")
                break
        if simulation.found:
            return
        for name, problem in problems(self.nodes()):
            self.checker.find(simulation.clock.now_us, name, problem)
        self._clean_up()

    def _clean_up(self) -> None:
        simulation = self.simulation
        for name, node in self.nodes().items():
            node.now_us = simulation.clock.now_us
            for id_ in list(node.home.expectations):
                node.revoke(id_)
            simulation.touch(name)
        simulation.advance(simulation.clock.now_us + CLEAN)
        for name, problem in left_over(self.nodes()):
            self.checker.find(simulation.clock.now_us, name, problem)


def _apply(now_us: int, what: Any) -> None:
    simulation, fault = what
    fault.apply(simulation, now_us)


def topology_of(random: Random, most: int = 6) -> Topology:
    count = random.randint(3, most)
    seed = random.randrange(1 << 30)
    return random.choice(
        (
            lambda: ring(count),
            lambda: line(count),
            lambda: grid(3, 2),
            lambda: geometric(count, seed),
            lambda: waxman(count, seed),
            lambda: barabasi_albert(count, seed),
        )
    )()


def run(seed: int, *, is_checking: bool = False) -> Outcome:
    return QualityRun(seed, is_checking=is_checking).run()
