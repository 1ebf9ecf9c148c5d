"""The story of `accord demo five-cities` in virtual time, where it can be told to the millisecond:
by which paths each channel goes in each phase, and how long its events are late after a change."""

from __future__ import annotations

from typing import Final

import pytest

from accord.apps.five_cities.cities import (
    CHANNELS,
    CITIES,
    DENVER,
    LINKS,
    LOOSE,
    LOS_ANGELES,
    ORLANDO,
    SEATTLE,
    SLOW_LINK,
    SLOW_MS,
    SOURCE,
    TIGHT,
    WASHINGTON,
)
from accord.core.overlay.options import OverlayOptions
from accord.sim.checkers import Checker
from accord.sim.faults import LinkDown, NodeDown, SlowDown, Timed
from accord.sim.links import LinkModel, with_delays
from accord.sim.machine import ChannelSpec, Publication
from accord.sim.node import OverlayNode, overlay_nodes
from accord.sim.run import Options, Simulation
from accord.sim.topology import Span, Topology
from accord.sim.workloads import Publisher, Subscriber, Workload

S: Final = 1_000_000
MS: Final = 1_000
PING_MS: Final = 100
PHASE_US: Final = 10 * S
SLOW_US, CUT_US, KILL_US = (phase * PHASE_US for phase in (1, 2, 3))
BOUND_US: Final = (3 * PING_MS + 200) * MS  # until events are in time again

Paths = list[tuple[str, ...]]


class LateChecker(Checker):
    """When the events were published that came too late."""

    name = "late"

    def __init__(self) -> None:
        super().__init__()
        self.late: dict[str, list[int]] = {channel.name: [] for channel in CHANNELS}

    def delivered(
        self,
        publication: Publication,
        subscriber: str,  # noqa: ARG002
        node: str,  # noqa: ARG002
        now_us: int,
        *,
        is_first: bool,
    ) -> None:
        assert is_first, "an event came twice"
        if now_us - publication.published_us > publication.deadline_us:
            self.late[publication.channel].append(publication.published_us)

    def missed(self, publication: Publication, subscriber: str, node: str, now_us: int) -> None:
        self.find(now_us, node, f"{subscriber} did not get {publication.sequence}")


def the_story(late: LateChecker, seed: int) -> Simulation:
    spans = [Span(one, other, ms * MS) for (one, other), ms in LINKS.items()]
    factor = SLOW_MS / LINKS[SLOW_LINK]
    return Simulation(
        Topology("five cities", CITIES, spans),
        overlay_nodes(OverlayOptions(ping_us=PING_MS * MS)),
        seed=seed,
        model=with_delays(LinkModel(), "normal", 0.02),
        faults=[
            Timed(SLOW_US, SlowDown(*SLOW_LINK, factor)),
            Timed(CUT_US, LinkDown(*SLOW_LINK, is_told=True)),
            Timed(KILL_US, NodeDown(DENVER)),
        ],
        workload=Workload(
            tuple(
                Publisher(
                    name=f"p {channel.name}",
                    node=SOURCE,
                    channel=channel.name,
                    rate_hz=50,
                    qos=1,
                    deadline_us=channel.max_delay_ms * MS,
                    begin_us=5 * S,
                    end_us=4 * PHASE_US,
                )
                for channel in CHANNELS
            ),
            tuple(
                Subscriber(
                    name=f"s {channel.name}",
                    node=channel.destination,
                    filter=channel.name,
                    qos=1,
                )
                for channel in CHANNELS
            ),
        ),
        channels=[
            ChannelSpec(channel.name, max_delay_us=channel.max_delay_ms * MS, paths=2)
            for channel in CHANNELS
        ],
        checkers=[late],
        options=Options(settle_us=4 * S, is_tracing=False),
    )


def paths(world: Simulation, destination: str) -> Paths:
    node = world.machines()[SOURCE]
    assert isinstance(node, OverlayNode)
    flows = [each for each in node.overlay.routes.flows.values() if each.destination == destination]
    assert len(flows) == 1
    return sorted(tuple(route.path) for route in flows[0].usable())


@pytest.mark.parametrize("seed", range(5))
def test_paths_are_as_in_the_story_and_events_are_late_only_for_a_moment(seed: int) -> None:
    late = LateChecker()
    world = the_story(late, seed)
    tight: list[Paths] = []
    loose: list[Paths] = []
    for phase in range(1, 5):
        world.advance(phase * PHASE_US - 1)
        tight.append(paths(world, WASHINGTON))
        loose.append(paths(world, ORLANDO))
    world.run(4 * PHASE_US + 15 * S).check()
    over_denver, over_los_angeles = (SEATTLE, DENVER), (SEATTLE, LOS_ANGELES)
    assert tight == [
        [(*over_denver, WASHINGTON), (*over_los_angeles, WASHINGTON)],
        [(*over_los_angeles, DENVER, WASHINGTON), (*over_los_angeles, WASHINGTON)],
        [(*over_los_angeles, DENVER, WASHINGTON), (*over_los_angeles, WASHINGTON)],
        [(*over_los_angeles, ORLANDO, WASHINGTON), (*over_los_angeles, WASHINGTON)],
    ]
    assert loose == [
        [(*over_denver, ORLANDO), (*over_los_angeles, ORLANDO)],
        [(*over_denver, ORLANDO), (*over_los_angeles, ORLANDO)],
        [(*over_los_angeles, DENVER, ORLANDO), (*over_los_angeles, ORLANDO)],
        [(*over_los_angeles, ORLANDO), (*over_los_angeles, WASHINGTON, ORLANDO)],
    ]
    for channel in (TIGHT, LOOSE):
        for moment_us in late.late[channel.name]:
            assert moment_us % PHASE_US < BOUND_US, f"{channel.name} late at {moment_us}"
