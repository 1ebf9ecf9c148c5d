"""Whether a template keeps what it promises, in random networks that lose, break and divide.

from accord.sim import check_template

check_template(MyTemplate, loss=0.3, nodes=20, seeds=range(100))

Each seed is one world: a topology, channels bound to the template, clients that publish, come and
go, and things that fail. Events and messages of the template are lost with the probability `loss`;
in every second world everything else is too, so that the overlay itself is unsure of its links. In
two of four worlds links and nodes fail. In the end all clients leave, and the template must have
kept nothing. What is looked for is what the template says it promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from msgspec import Struct

from accord.core.channels.channels import SHIPPED, Channels
from accord.core.channels.template import ALL, BEST_EFFORT, IN_ORDER, ONCE, SAME_ORDER, Template
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Control
from accord.core.overlay.registry import ChannelDefinition
from accord.core.overlay.signals import Said
from accord.sim.checkers import Checker
from accord.sim.delays import Lognormal
from accord.sim.faults import RandomFaults, Timed
from accord.sim.links import LinkModel
from accord.sim.machine import Delivery, Make, Publication, Start, Wish
from accord.sim.node import OverlayNode
from accord.sim.outcome import Outcome
from accord.sim.promises import (
    AllChecker,
    InOrderChecker,
    LeftChecker,
    LivesChecker,
    OnceChecker,
    SameOrderChecker,
    ShareChecker,
)
from accord.sim.run import Options, Simulation
from accord.sim.topologies import barabasi_albert, geometric, waxman
from accord.sim.topology import Topology
from accord.sim.workloads import FOREVER, Publisher, Subscriber, Workload

NAME: Final = "checked"
S: Final = 1_000_000
CHANNELS: Final = ("room/one", "room/two")
PUBLISH_US: Final = 12 * S  # from then on
FAULTS_END: Final = 43 * S
PUBLISHED_US: Final = 48 * S  # until then
PATIENCE_US: Final = 50 * S
LEAVE_US: Final = PUBLISHED_US + PATIENCE_US + 3 * S
END_US: Final = LEAVE_US + 145 * S


class World(Struct, frozen=True, kw_only=True):
    """What is done to a template in one run."""

    loss: float = 0.3
    nodes: int = 20
    rate_hz: float = 2.0
    has_faults: bool = True
    is_checking: bool = False  # invariants after each step
    options: Mapping[str, str] = {}  # of the channels


class TemplateNode:
    """A node with one more template, of which what it sends is lost now and then."""

    def __init__(
        self,
        start: Start,
        template: type[Template],
        overlay: OverlayOptions,
        options: Mapping[str, str],
        loss: float,
    ) -> None:
        self.node = OverlayNode(start, overlay)
        self.node.channels = Channels(self.node.overlay, {**SHIPPED, NAME: template})
        self._random = start.random
        self._loss = loss
        for channel in CHANNELS:
            definition = ChannelDefinition(name=channel, template=NAME, options=dict(options))
            self.node.overlay.registry.create(definition)

    @property
    def template(self) -> Template:
        return self.node.channels.templates[NAME]

    @property
    def sends(self) -> list[tuple[str, Control]]:
        sends = self.node.sends
        if self._loss:
            sends[:] = [each for each in sends if not self._is_lost(each[1])]
        return sends

    @property
    def ready(self) -> list[str]:
        return self.node.ready

    @property
    def deliveries(self) -> list[Delivery]:
        return self.node.deliveries

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        frames = self.node.take(neighbour, bytes_wanted)
        kept = [each for each in frames if not (self._loss and self._random.random() < self._loss)]
        # No frames at all would mean that none are waiting.
        return kept if kept or not frames else self.take(neighbour, bytes_wanted)

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        self.node.receive(neighbour, message, now_us)

    def advance(self, now_us: int) -> None:
        self.node.advance(now_us)

    def next_due_us(self) -> int:
        return self.node.next_due_us()

    def link_up(self, neighbour: str, now_us: int) -> None:
        self.node.link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.node.link_down(neighbour, now_us)

    def publish(self, publication: Publication, now_us: int) -> None:
        self.node.publish(publication, now_us)

    def subscribe(self, wish: Wish, now_us: int) -> None:
        self.node.subscribe(wish, now_us)

    def unsubscribe(self, wish: Wish, now_us: int) -> None:
        self.node.unsubscribe(wish, now_us)

    def check_invariants(self) -> None:
        self.node.check_invariants()

    def _is_lost(self, message: Control) -> bool:
        return isinstance(message, Said) and self._random.random() < self._loss


def check_template(
    template: type[Template],
    *,
    loss: float = 0.3,
    nodes: int = 20,
    seeds: Iterable[int] = range(100),
    options: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Run `template` in one world for each seed; raises RunFailedError at the first that fails."""
    world = World(loss=loss, nodes=nodes, options=options or {})
    return [template_run(template, world, seed).run(END_US).check() for seed in seeds]


def template_run(
    template: type[Template],
    world: World,
    seed: int,
    *,
    faults: Iterable[Timed] | None = None,
    replay: str = "",
) -> Simulation:
    """The simulation of one seed, about to begin."""
    random = Random(f"template {seed}")  # noqa: S311
    topology = topology_of(random, world.nodes)
    loses_all = bool(seed % 2)
    model = LinkModel(
        delay=Lognormal(random.choice((2_000, 10_000, 30_000)), 0.3),
        loss=world.loss if loses_all else 0.0,
        duplication=random.choice((0.0, 0.05)) if loses_all else 0.0,
        mode="datagram" if loses_all else "stream",
        dead_us=3 * S,
    )
    fails = world.has_faults and bool(seed % 4 // 2)
    if faults is None:
        faults = _faults(random).script(topology, seed) if fails else []
    script = list(faults)
    checkers = _checkers(template.promises, loses_all=loses_all)
    if BEST_EFFORT in template.promises and not (loses_all or script):
        checkers.append(ShareChecker(world.loss, topology))
    run = Simulation(
        topology,
        _nodes(template, world, 0.0 if loses_all else world.loss),
        seed=seed,
        model=model,
        faults=script,
        workload=_workload(random, topology, world.rate_hz),
        checkers=checkers,
        options=Options(
            is_checking=world.is_checking,
            is_tracing=False,
            settle_us=10 * S,
            patience_us=PATIENCE_US,
        ),
        replay=replay or f"check_template({template.__name__}, …, seeds=[{seed}])",
    )
    for checker in checkers:
        if isinstance(checker, LivesChecker):
            checker.places = run
    return run


def topology_of(random: Random, count: int) -> Topology:
    seed = random.randrange(1 << 30)
    return random.choice(
        (
            lambda: geometric(count, seed),
            lambda: waxman(count, seed),
            lambda: barabasi_albert(count, seed),
        )
    )()


def _nodes(template: type[Template], world: World, loss: float) -> Make:
    overlay = OverlayOptions(tell_flows_us=0, tell_arrivals_us=0)

    def make(start: Start) -> TemplateNode:
        return TemplateNode(start, template, overlay, world.options, loss)

    return make


def _checkers(promises: tuple[str, ...], *, loses_all: bool) -> list[Checker]:
    found: list[Checker] = [LeftChecker(lambda machine: getattr(machine, "template", None), END_US)]
    if ONCE in promises:
        found.append(OnceChecker())
    is_ordered = SAME_ORDER in promises
    # Where the overlay loses its own pings it takes nodes for cut off that are not.
    if ALL in promises and not (is_ordered and loses_all):
        found.append(AllChecker(excuses_parted=is_ordered))
    if IN_ORDER in promises:
        found.append(InOrderChecker())
    if is_ordered:
        found.append(SameOrderChecker())
    return found


def _faults(random: Random) -> RandomFaults:
    return RandomFaults(
        begin_us=PUBLISH_US + 3 * S,
        end_us=FAULTS_END,
        link_down_share=random.choice((0.0, 0.05, 0.1)),
        link_down_us=random.choice((2, 8)) * S,
        link_slow_share=random.choice((0.0, 0.1)),
        node_down_share=random.choice((0.0, 0.05, 0.1)),
        node_down_us=random.choice((1, 6)) * S,
        silent_share=0.5,
        partition_share=random.choice((0.0, 0.0, 0.2)),
        partition_us=6 * S,
    )


def _workload(random: Random, topology: Topology, rate_hz: float) -> Workload:
    publishers, subscribers = [], []
    for place, channel in enumerate(CHANNELS):
        for number in range(1 if place == 0 else random.randint(2, 3)):
            publishers.append(
                Publisher(
                    name=f"p{place}{number}",
                    node=random.choice(topology.nodes),
                    channel=channel,
                    rate_hz=random.choice((0.5, 1.0, 4.0)) * rate_hz,
                    pattern=random.choice(("steady", "poisson", "burst")),
                    begin_us=PUBLISH_US,
                    end_us=PUBLISHED_US,
                )
            )
        for number in range(random.randint(2, max(2, len(topology.nodes) * 2 // 3))):
            is_restless = random.random() < 1 / 4
            subscribers.append(
                Subscriber(
                    name=f"s{place}{number}",
                    node=random.choice(topology.nodes),
                    filter=random.choice((channel, channel, "room/#")),
                    begin_us=0 if random.random() < 2 / 3 else random.randrange(30) * S,
                    there_us=15 * S,
                    away_us=5 * S if is_restless else 0,
                    end_us=LEAVE_US if not is_restless else PUBLISHED_US,
                )
            )
    assert all(each.end_us < FOREVER for each in subscribers)
    return Workload(publishers=tuple(publishers), subscribers=tuple(subscribers))
