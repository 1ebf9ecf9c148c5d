"""Scenarios in which templates are checked: network, workload and faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from accord.sim.delays import Lognormal
from accord.sim.faults import RandomFaults
from accord.sim.links import LinkModel
from accord.sim.topology import Span, Topology, barabasi_albert, geometric, waxman
from accord.sim.workloads import FOREVER, Publisher, Subscriber, Workload

S: Final = 1_000_000
CHANNELS: Final = ("room/one", "room/two")
PUBLISH_US: Final = 12 * S  # start of publishing
_LOSSES: Final = (0.0, 0.1, 0.4, 1.0)  # link losses in a long run, as fractions of `loss`


# Timeouts of channels that wait for members: longer than anything in these scenarios lasts.
WAITING: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {"slow_members": "wait"},
    {"slow_members": "wait", "stall_timeout_ms": "30000"},
    {"stall_timeout_ms": "30000"},
    {"stall_timeout_ms": "80000"},
)
# The same for long runs. Half of it, the time that members wait for a position, exceeds the time to
# detect a failed node (three pings of `slowness` seconds) and to continue without it.
PATIENT: Final[Mapping[str, str]] = {"stall_timeout_ms": "180000"}


class TemplateScenario(Struct, frozen=True, kw_only=True):
    """What happens to a template in one run.

    In a long run links differ in their losses, everything happens more slowly, and nodes ping each
    other less often.
    """

    loss: float = 0.3
    nodes: int = 20
    rate_hz: float = 2.0
    has_faults: bool = True
    is_checking: bool = False  # invariants after each step
    options: Mapping[str, str] = {}  # of the channels
    publish_us: int = 28 * S  # duration of publishing
    is_long: bool = False

    @property
    def slowness(self) -> int:
        return 10 if self.is_long else 1

    @property
    def settle_us(self) -> int:
        return 10 * S if not self.is_long else 60 * S

    @property
    def patience_us(self) -> int:
        """Time limit of a delivery: longer than sources and members wait for each other.

        In a short run failed nodes and links recover before these timeouts.
        """
        return 42 * S if not self.is_long else 210 * S

    @property
    def published_us(self) -> int:
        return PUBLISH_US + self.publish_us

    @property
    def leave_us(self) -> int:
        """When all members leave."""
        return self.published_us + self.patience_us + 3 * S

    @property
    def end_us(self) -> int:
        """When all state has expired: incomplete state, a minute after its source's timeout.

        A sequencer expires two minutes after it has granted the last position. Until then it
        informs nodes that become reachable of the order, and they keep that for two minutes too.
        """
        return self.leave_us + (435 if self.is_long else 205) * S


def topology_of(random: Random, count: int) -> Topology:
    seed = random.randrange(1 << 30)
    return random.choice(
        (
            lambda: geometric(count, seed),
            lambda: waxman(count, seed),
            lambda: barabasi_albert(count, seed),
        )
    )()


def model_of(
    random: Random, world: TemplateScenario, seed: int
) -> LinkModel | Callable[[Span], LinkModel]:
    loses_all = bool(seed % 2)
    model = LinkModel(
        delay=Lognormal(random.choice((2_000, 10_000, 30_000)), 0.3),
        loss=world.loss if loses_all else 0.0,
        duplication=random.choice((0.0, 0.05)) if loses_all else 0.0,
        mode="datagram" if loses_all else "stream",
        dead_us=3 * S * world.slowness,
    )
    return _mixed(model, seed) if world.is_long else model


def _mixed(model: LinkModel, seed: int) -> Callable[[Span], LinkModel]:
    """A random loss for each link."""

    def choose(span: Span) -> LinkModel:
        random = Random(f"loss {seed} {span.one} {span.other}")  # noqa: S311
        return replace(model, loss=model.loss * random.choice(_LOSSES))

    return choose


def faults_of(random: Random, world: TemplateScenario) -> RandomFaults:
    rarely = 5 if world.is_long else 1
    return RandomFaults(
        begin_us=PUBLISH_US + 3 * S,
        end_us=world.published_us - 4 * S * world.slowness,
        link_down_share=random.choice((0.0, 0.05, 0.1)) / rarely,
        link_down_us=random.choice((2, 8)) * S * world.slowness,
        link_slow_share=random.choice((0.0, 0.1)) / rarely,
        node_down_share=random.choice((0.0, 0.05, 0.1)) / rarely,
        node_down_us=random.choice((1, 6)) * S * world.slowness,
        silent_share=0.5,
        partition_share=random.choice((0.0, 0.0, 0.2)) / rarely,
        partition_us=6 * S * world.slowness,
    )


def workload_of(random: Random, topology: Topology, world: TemplateScenario) -> Workload:
    publishers, subscribers = [], []
    for place, channel in enumerate(CHANNELS):
        for number in range(1 if place == 0 else random.randint(2, 3)):
            publishers.append(
                Publisher(
                    name=f"p{place}{number}",
                    node=random.choice(topology.nodes),
                    channel=channel,
                    rate_hz=random.choice((0.5, 1.0, 4.0)) * world.rate_hz,
                    pattern=random.choice(("steady", "poisson", "burst")),
                    begin_us=PUBLISH_US,
                    end_us=world.published_us,
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
                    there_us=15 * S * world.slowness,
                    away_us=5 * S * world.slowness if is_restless else 0,
                    end_us=world.leave_us if not is_restless else world.published_us,
                )
            )
    assert all(each.end_us < FOREVER for each in subscribers)
    return Workload(publishers=tuple(publishers), subscribers=tuple(subscribers))
