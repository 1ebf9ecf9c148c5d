"""Faults and their times: scripted, or random from a seed.

Random faults are generated in advance as a script like any other. So a failed run can be repeated
with a part of its faults, until only the relevant ones are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from accord.sim.clock import stream
from accord.sim.network import Network
from accord.sim.topology import Topology
from accord.sim.trace import SimulationError

MAX_FAULTS: Final = 1_000_000

Disk = Literal["kept", "torn", "lost"]


class FaultTarget(Protocol):
    """What faults act upon."""

    @property
    def network(self) -> Network: ...

    def crash(self, node: str, now_us: int, *, disk: Disk, is_silent: bool) -> None: ...

    def restart(self, node: str, now_us: int) -> None: ...


class LinkDown(Struct, frozen=True, tag="link_down"):
    """Blocks a link, in both directions unless `is_one_way`.

    Both ends have to detect it, unless `is_told`.
    """

    one: str
    other: str
    is_one_way: bool = False
    is_told: bool = False

    def apply(self, world: FaultTarget, now_us: int) -> None:
        for source, target in _directions(self.one, self.other, self.is_one_way):
            world.network.block(source, target, "link", now_us, is_reported=self.is_told)


class LinkUp(Struct, frozen=True, tag="link_up"):
    one: str
    other: str
    is_one_way: bool = False

    def apply(self, world: FaultTarget, now_us: int) -> None:
        for source, target in _directions(self.one, self.other, self.is_one_way):
            world.network.unblock(source, target, "link", now_us)


class SlowDown(Struct, frozen=True, tag="slow_down"):
    """Multiplies all delays of a link by `factor`; 1 restores them."""

    one: str
    other: str
    factor: float
    is_one_way: bool = False

    def apply(self, world: FaultTarget, now_us: int) -> None:  # noqa: ARG002
        for source, target in _directions(self.one, self.other, self.is_one_way):
            world.network.link(source, target).slowdown = self.factor


class ChangeLoss(Struct, frozen=True, tag="change_loss"):
    """Sets the loss probability of a link."""

    one: str
    other: str
    loss: float
    is_one_way: bool = False

    def apply(self, world: FaultTarget, now_us: int) -> None:  # noqa: ARG002
        for source, target in _directions(self.one, self.other, self.is_one_way):
            link = world.network.link(source, target)
            link.model = replace(link.model, loss=self.loss)


class NodeDown(Struct, frozen=True, tag="node_down"):
    """Stops a node without notice: its process, or the whole computer if `is_silent`.

    `disk`: written data is kept; or torn, so that unsynced data may be missing; or lost entirely.
    """

    node: str
    disk: Disk = "kept"
    is_silent: bool = False

    def apply(self, world: FaultTarget, now_us: int) -> None:
        world.crash(self.node, now_us, disk=self.disk, is_silent=self.is_silent)


class NodeUp(Struct, frozen=True, tag="node_up"):
    node: str

    def apply(self, world: FaultTarget, now_us: int) -> None:
        world.restart(self.node, now_us)


class Partition(Struct, frozen=True, tag="partition"):
    """The groups can't reach each other, nor the nodes in none of them."""

    groups: tuple[tuple[str, ...], ...]

    def apply(self, world: FaultTarget, now_us: int) -> None:
        world.network.partition(self.groups, now_us)


class Heal(Struct, frozen=True, tag="heal"):
    """Ends all partitions."""

    def apply(self, world: FaultTarget, now_us: int) -> None:
        world.network.heal(now_us)


Fault = LinkDown | LinkUp | SlowDown | ChangeLoss | NodeDown | NodeUp | Partition | Heal


class Timed(Struct, frozen=True):
    at_us: int
    fault: Fault


class RandomFaults(Struct, frozen=True, kw_only=True):
    """Each link and node fails independently, at exponential intervals.

    Shares are fractions of the time that it is down, or slow. Faults occur from `begin_us` to
    `end_us` only, and all are repaired at the end.
    """

    begin_us: int = 0
    end_us: int
    link_down_share: float = 0.0
    link_down_us: int = 10_000_000  # mean, like the other durations
    link_slow_share: float = 0.0
    link_slow_us: int = 30_000_000
    link_slow_factor: float = 5.0
    node_down_share: float = 0.0
    node_down_us: int = 30_000_000
    disk_torn_share: float = 0.0  # of crashes
    disk_lost_share: float = 0.0
    silent_share: float = 0.0
    partition_share: float = 0.0
    partition_us: int = 30_000_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name.endswith("_share") and not 0.0 <= value < 1.0:
                raise SimulationError(f"{name}: expected at least 0 and less than 1, got {value}")
            if value < 0:
                raise SimulationError(f"{name}: expected 0 or more, got {value}")

    def script(self, topology: Topology, seed: int) -> list[Timed]:
        """The faults, ordered by time."""
        found: list[Timed] = []
        for span in topology.spans:
            ends = (span.one, span.other)
            random = stream(seed, "fault", "link", *ends)
            spells = self._spells(random, self.link_down_share, self.link_down_us)
            _add(found, ((LinkDown(*ends), LinkUp(*ends), spell) for spell in spells))
            slow = SlowDown(*ends, self.link_slow_factor)
            random = stream(seed, "fault", "slow", *ends)
            spells = self._spells(random, self.link_slow_share, self.link_slow_us)
            _add(found, ((slow, SlowDown(*ends, 1.0), spell) for spell in spells))
        for node in topology.nodes:
            random = stream(seed, "fault", "node", node)
            spells = self._spells(random, self.node_down_share, self.node_down_us)
            random = stream(seed, "fault", "crash", node)
            _add(found, ((self._crash(node, random), NodeUp(node), spell) for spell in spells))
        random = stream(seed, "fault", "partition")
        spells = self._spells(random, self.partition_share, self.partition_us)
        random = stream(seed, "fault", "groups")
        _add(found, ((_halves(topology, random), Heal(), spell) for spell in spells))
        return sorted(found, key=lambda timed: timed.at_us)

    def _crash(self, node: str, random: Random) -> NodeDown:
        chance = random.random()
        disk: Disk = "kept"
        if chance < self.disk_lost_share:
            disk = "lost"
        elif chance < self.disk_lost_share + self.disk_torn_share:
            disk = "torn"
        return NodeDown(node, disk, random.random() < self.silent_share)

    def _spells(self, random: Random, share: float, mean_us: int) -> Iterator[tuple[int, int]]:
        """Alternating start and end times."""
        if not share:
            return
        between_us = mean_us * (1.0 - share) / share
        at_us = self.begin_us + round(random.expovariate(1.0) * between_us)
        while at_us < self.end_us:
            ends_us = at_us + 1 + round(random.expovariate(1.0) * mean_us)
            yield at_us, min(ends_us, self.end_us)
            at_us = ends_us + 1 + round(random.expovariate(1.0) * between_us)


def _add(found: list[Timed], spells: Iterable[tuple[Fault, Fault, tuple[int, int]]]) -> None:
    for begin, end, (begin_us, end_us) in spells:
        if len(found) >= MAX_FAULTS:
            raise SimulationError(f"expected at most {MAX_FAULTS} faults")
        found.append(Timed(begin_us, begin))
        found.append(Timed(end_us, end))


def _halves(topology: Topology, random: Random) -> Partition:
    """A connected part of the network, grown from a node, and the rest."""
    neighbours = topology.neighbours()
    size = random.randint(1, max(1, len(topology.nodes) // 2))
    first = topology.nodes[random.randrange(len(topology.nodes))]
    part = {first: True}
    border = list(neighbours[first])
    while border and len(part) < size:
        name = border.pop(random.randrange(len(border)))
        if name not in part:
            part[name] = True
            border += neighbours[name]
    return Partition((tuple(part),))


def _directions(one: str, other: str, is_one_way: bool) -> Sequence[tuple[str, str]]:
    return ((one, other),) if is_one_way else ((one, other), (other, one))


def problem_with(fault: Fault, topology: Topology) -> str | None:
    """Return why a fault is impossible on `topology`, or None."""
    match fault:
        case NodeDown(node=node) | NodeUp(node=node):
            names: Sequence[str] = (node,)
        case Partition(groups=groups):
            names = [name for group in groups for name in group]
        case Heal():
            names = ()
        case _:
            names = (fault.one, fault.other)
            if all(name in topology.nodes for name in names) and not topology.has_span(*names):
                return f"expected two linked nodes, got {fault.one} and {fault.other}"
    for name in names:
        if name not in topology.nodes:
            return f"expected a node of the topology, got {name!r}"
    return None
