"""How long members get nothing when a node fails that their events depend on, and what is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import median, quantiles
from typing import Final

from accord.core.channels.channels import SHIPPED
from accord.core.channels.reliable import Reliable
from accord.core.channels.total_order import TotalOrder
from accord.sim.checkers import Checker
from accord.sim.delays import Lognormal
from accord.sim.faults import NodeDown
from accord.sim.guarantee_checkers import (
    IncarnationChecker,
    InOrderChecker,
    NoDuplicatesChecker,
    SameOrderChecker,
)
from accord.sim.links import LinkModel
from accord.sim.machine import Publication
from accord.sim.run import Options as RunOptions
from accord.sim.run import Simulation
from accord.sim.template_checks import TemplateNode, nodes_of
from accord.sim.template_scenarios import CHANNELS, S, TemplateScenario, topology_of
from accord.sim.topology import Topology
from accord.sim.workloads import Publisher, Subscriber, Workload
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "Simulated networks of 10 nodes, links of about 10 ms; members at all nodes, and two sources "
    "with 5 events a second each. Then a node fails for good: the sequencer of the channel, or the "
    "node through which a source reaches most others. Resumed: when the last of the members that "
    "are left gets the first event that was published after the failure. That a node fails is "
    "noticed at once where connections break, else by three pings that are not answered, one a "
    "second. Lost: of what the nodes that are left had published and ought to get, before the "
    "failure and after."
)
_CHANNEL: Final = CHANNELS[1]
_NODES: Final = 10
_RATE_HZ: Final = 5.0
_BEGIN_US: Final = 8 * S
_FAIL_US: Final = 14 * S
_PUBLISHED_US: Final = _FAIL_US + 15 * S
_PATIENCE_US: Final = 20 * S


@dataclass(frozen=True)
class Case:
    template: str
    what: str  # that fails
    is_silent: bool
    loss: float


@dataclass(frozen=True)
class Recovered:
    """`resumed_us` is None where delivery did not resume at all members."""

    resumed_us: int | None
    delivered: int
    lost: int
    findings: int


class ResumedChecker(Checker):
    """When each member got the first event that was published after the failure."""

    name = "resumed"

    def __init__(self) -> None:
        super().__init__()
        self.since_us = 1 << 62
        self.at_us: dict[str, int] = {}

    def delivered(
        self,
        publication: Publication,
        subscriber: str,
        node: str,  # noqa: ARG002
        now_us: int,
        *,
        is_first: bool,  # noqa: ARG002
    ) -> None:
        if publication.published_us >= self.since_us:
            self.at_us.setdefault(subscriber, now_us)


def run(options: Options) -> list[Table]:
    seeds = range(4 if options.is_quick else 25)
    table = Table(
        f"From the failure until all members get events again, {len(seeds)} networks each",
        ["template", "what fails", "noticed", "loss", "p50 s", "p95 s", "longest s", "delivered",
         "lost", "promises broken"],
    )  # fmt: skip
    for template, what in (
        ("total_order", "sequencer"),
        ("total_order", "parent"),
        ("reliable", "parent"),
    ):
        for is_silent, loss in ((False, 0.0), (True, 0.0), (True, 0.3)):
            case = Case(template, what, is_silent, loss)
            progress(f"recovery: {case}")
            _add(table, case, [measure(case, seed) for seed in seeds])
    table.notes = [
        "Loss: of all messages on all links, pings too. Promises: each event once, in the order of",
        "its source, and by total_order in the same order everywhere.",
    ]
    return [table]


def measure(case: Case, seed: int) -> Recovered:
    random = Random(f"recovery {seed}")
    topology = topology_of(random, _NODES)
    while (victims := _spare(topology)) and len(victims) < _NODES:
        topology = topology_of(random, _NODES)  # any node may fail: the others must stay together
    sources = random.sample(topology.nodes, 2)
    checker = ResumedChecker()
    world = _simulation(case, topology, sources, checker, seed)
    fail_us = _FAIL_US + random.randrange(S)
    world.advance(fail_us)
    victim = _victim(world, case, sources)
    checker.since_us = fail_us
    NodeDown(victim, is_silent=case.is_silent).apply(world, fail_us)
    outcome = world.run(_PUBLISHED_US + _PATIENCE_US + S)
    left = [each.name for each in _subscribers(topology) if each.node != victim]
    times = [checker.at_us.get(name) for name in left]
    known = [each for each in times if each is not None]
    tally = outcome.channels[_CHANNEL]
    return Recovered(
        resumed_us=max(known) - fail_us if len(known) == len(left) else None,
        delivered=tally.delivered,
        lost=tally.lost,
        findings=outcome.found,
    )


def _simulation(
    case: Case, topology: Topology, sources: Sequence[str], resumed: Checker, seed: int
) -> Simulation:
    checkers: list[Checker] = [resumed, NoDuplicatesChecker(), InOrderChecker()]
    if case.template == "total_order":
        checkers.append(SameOrderChecker())
    publishers = tuple(
        Publisher(
            name=f"p{place}",
            node=node,
            channel=_CHANNEL,
            rate_hz=_RATE_HZ,
            begin_us=_BEGIN_US,
            end_us=_PUBLISHED_US,
        )
        for place, node in enumerate(sources)
    )
    world = Simulation(
        topology,
        nodes_of(SHIPPED[case.template], TemplateScenario(loss=case.loss, nodes=_NODES), 0.0),
        seed=seed,
        model=LinkModel(
            delay=Lognormal(10_000, 0.3),
            loss=case.loss,
            # Only connections break: datagrams just don't arrive.
            mode="datagram" if case.is_silent else "stream",
            dead_us=3 * S,
        ),
        workload=Workload(publishers=publishers, subscribers=_subscribers(topology)),
        checkers=checkers,
        options=RunOptions(is_tracing=False, settle_us=4 * S, patience_us=_PATIENCE_US),
    )
    for checker in checkers:
        if isinstance(checker, IncarnationChecker):
            checker.uptime = world
    return world


def _subscribers(topology: Topology) -> tuple[Subscriber, ...]:
    return tuple(Subscriber(name=f"s{name}", node=name, filter=_CHANNEL) for name in topology.nodes)


def _victim(world: Simulation, case: Case, sources: Sequence[str]) -> str:
    """The sequencer, or else the node next to the first source that most others are beyond."""
    machine = world.machines()[sources[0]]
    assert isinstance(machine, TemplateNode)
    template = machine.template
    assert isinstance(template, Reliable)
    if case.what == "sequencer":
        assert isinstance(template, TotalOrder)
        return template.queues[_CHANNEL].latest[1]
    digest = template.senders[_CHANNEL].stream.digest
    trees = template.relay.trees
    around = trees.neighbours(digest, world.clock.now_us) or ()
    others = [each for each in around if each not in sources] or list(around)
    return max(others, key=lambda each: (len(trees.beyond(digest, each)), each))


def _spare(topology: Topology) -> list[str]:
    """The nodes without which all others still reach each other."""
    neighbours = topology.neighbours()
    found = []
    for victim in topology.nodes:
        rest = [name for name in topology.nodes if name != victim]
        reached = {rest[0]: True}
        for name in (waiting := [rest[0]]):
            for each in neighbours[name]:
                if each != victim and each not in reached:
                    reached[each] = True
                    waiting.append(each)
        if len(reached) == len(rest):
            found.append(victim)
    return found


def _add(table: Table, case: Case, found: Sequence[Recovered]) -> None:
    times_s = sorted(each.resumed_us / S for each in found if each.resumed_us is not None)
    never = len(found) - len(times_s)
    table.add(
        case.template,
        case.what,
        "by pings" if case.is_silent else "at once",
        f"{case.loss:.0%}",
        significant(median(times_s)),
        significant(quantiles(times_s, n=20, method="inclusive")[-1]),
        significant(times_s[-1]) + (f", {never} never" if never else ""),
        number(sum(each.delivered for each in found)),
        number(sum(each.lost for each in found)),
        number(sum(each.findings for each in found)),
    )
