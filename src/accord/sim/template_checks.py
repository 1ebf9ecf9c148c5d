"""Checks a template's guarantees in random networks with losses, faults and partitions.

    from accord.sim import check_template

    check_template(MyTemplate, loss=0.3, nodes=20, seeds=range(100))

Each seed is one scenario: a topology, channels bound to the template, clients that publish, join
and leave, and faults. Events and messages of the template are lost with the probability `loss`; in
every second scenario everything else is too, so that the overlay itself is uncertain of its links.
In two of four scenarios links and nodes fail. In the end all clients leave, and the template must
retain no state. The checks are those of the guarantees that the template declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Final

from accord.core.channels.channels import ROUTED, SHIPPED, Channels
from accord.core.channels.members import Members, rendezvous
from accord.core.channels.template import (
    BEST_EFFORT,
    COMPLETE,
    IN_ORDER,
    NO_DUPLICATES,
    SAME_ORDER,
    Template,
)
from accord.core.channels.tree_multicast import SingleSource, TreeMulticast, Unreliable, factor_of
from accord.core.channels.trees.tree import Tree
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Control
from accord.core.overlay.signalling import TemplateMessage
from accord.sim.best_effort import LossChecker, PathChecker
from accord.sim.checkers import Checker
from accord.sim.faults import Timed
from accord.sim.guarantee_checkers import (
    CompletenessChecker,
    IncarnationChecker,
    InOrderChecker,
    LeakChecker,
    NoDuplicatesChecker,
    SameOrderChecker,
)
from accord.sim.machine import Machine, Make, Publication, Start
from accord.sim.node import OverlayNode
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.template_scenarios import (
    CHANNELS,
    S,
    TemplateScenario,
    faults_of,
    model_of,
    topology_of,
    workload_of,
)
from accord.sim.topology import Topology
from accord.sim.workloads import Workload

NAME: Final = "checked"


LEAVE_US: Final = TemplateScenario().leave_us
END_US: Final = TemplateScenario().end_us


class TemplateNode(OverlayNode):
    """A node with an additional template, whose messages are lost at random."""

    def __init__(
        self,
        start: Start,
        template: type[Template],
        overlay: OverlayOptions,
        options: Mapping[str, str],
        loss: float,
    ) -> None:
        super().__init__(start, overlay)
        self.channels = Channels(self.overlay, {ROUTED: SHIPPED[ROUTED], NAME: template})
        self._random = start.random
        self._loss = loss
        for channel in CHANNELS:
            self.overlay.directory.create(_definition(channel, options))

    @property
    def template(self) -> Template:
        return self.channels.templates[NAME]

    @property
    def sends(self) -> list[tuple[str, Control]]:
        sends = self.overlay.sends
        if sends and self._loss:
            sends[:] = [each for each in sends if not self._is_lost(each[1])]
        return sends

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        frames = super().take(neighbour, bytes_wanted)
        kept = [each for each in frames if not (self._loss and self._random.random() < self._loss)]
        # Returning no frames would mean that none are queued.
        return kept if kept or not frames else self.take(neighbour, bytes_wanted)

    def _is_lost(self, message: Control) -> bool:
        return isinstance(message, TemplateMessage) and self._random.random() < self._loss


def check_template(
    template: type[Template],
    *,
    loss: float = 0.3,
    nodes: int = 20,
    seeds: Iterable[int] = range(100),
    options: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Run `template` in one scenario per seed; raises RunFailedError at the first failure."""
    world = TemplateScenario(loss=loss, nodes=nodes, options=options or {})
    return [template_run(template, world, seed).run(END_US).check() for seed in seeds]


def template_run(
    template: type[Template],
    world: TemplateScenario,
    seed: int,
    *,
    faults: Iterable[Timed] | None = None,
    replay: str = "",
) -> Simulation:
    """The simulation of one seed, ready to start."""
    random = Random(f"template {seed}")  # noqa: S311
    topology = topology_of(random, world.nodes)
    loses_all = bool(seed % 2)
    model = model_of(random, world, seed)
    fails = world.has_faults and bool(seed % 4 // 2)
    if faults is None:
        faults = faults_of(random, world).script(topology, seed) if fails else []
    script = list(faults)
    workload = workload_of(random, topology, world)
    checkers = _checkers(template.promises, world)
    if BEST_EFFORT in template.promises and not (loses_all or script):
        checkers += _best_effort(template, world, topology, workload)
    run = Simulation(
        topology,
        nodes_of(template, world, 0.0 if loses_all else world.loss),
        seed=seed,
        model=model,
        faults=script,
        workload=workload,
        checkers=checkers,
        options=Options(
            is_checking=world.is_checking,
            is_tracing=False,
            settle_us=world.settle_us,
            patience_us=world.patience_us,
            sample_us=S * world.slowness,
        ),
        replay=replay or f"check_template({template.__name__}, …, seeds=[{seed}])",
    )
    for checker in checkers:
        if isinstance(checker, IncarnationChecker):
            checker.uptime = run
    return run


def nodes_of(template: type[Template], world: TemplateScenario, loss: float) -> Make:
    overlay = OverlayOptions(
        publish_flows_us=0,
        publish_arrivals_us=0,
        ping_us=S * world.slowness,
        advertise_slowly_us=10 * S * world.slowness,
    )

    def make(start: Start) -> TemplateNode:
        return TemplateNode(start, template, overlay, world.options, loss)

    return make


def _definition(channel: str, options: Mapping[str, str]) -> ChannelDefinition:
    return ChannelDefinition(name=channel, template=NAME, options=dict(options))


def _members_of(machine: Machine, channel: str) -> tuple[str, ...] | None:
    template = machine.template if isinstance(machine, TemplateNode) else None
    members = getattr(template, "members", None)
    return members.of(channel) if isinstance(members, Members) else None


def _tree_of(machine: Machine, channel: str) -> Tree | None:
    template = machine.template if isinstance(machine, TemplateNode) else None
    return template.tree(channel) if isinstance(template, TreeMulticast) else None


def _best_effort(
    template: type[Template], world: TemplateScenario, topology: Topology, workload: Workload
) -> list[Checker]:
    """Checkers for scenarios without faults in which only the template's traffic is lost."""

    def root_of(publication: Publication) -> str | None:
        if issubclass(template, SingleSource):
            return publication.node
        if issubclass(template, Unreliable):
            return rendezvous(publication.channel, topology.nodes)
        return None

    since_us = {
        each.name: each.begin_us + world.settle_us
        for each in workload.subscribers
        if not each.away_us
    }
    return [
        PathChecker(_tree_of, root_of, factor_of(_definition(NAME, world.options))),
        LossChecker(world.loss, _tree_of, since_us),
    ]


def _checkers(promises: tuple[str, ...], world: TemplateScenario) -> list[Checker]:
    found: list[Checker] = [
        LeakChecker(lambda machine: getattr(machine, "template", None), world.end_us)
    ]
    if NO_DUPLICATES in promises:
        found.append(NoDuplicatesChecker())
    is_ordered = SAME_ORDER in promises
    if COMPLETE in promises:
        parted_us = world.settle_us if is_ordered else None
        found.append(CompletenessChecker(_members_of, CHANNELS, partition_us=parted_us))
    if IN_ORDER in promises:
        found.append(InOrderChecker())
    if is_ordered:
        found.append(SameOrderChecker())
    return found
