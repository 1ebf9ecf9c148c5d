"""What is published before there is any route need not wait until one is established."""

from __future__ import annotations

import pytest

from accord.sim.links import LinkModel
from accord.sim.machine import ChannelSpec
from accord.sim.node import overlay_nodes
from accord.sim.run import Options, Simulation
from accord.sim.topology import line
from accord.sim.workloads import Publisher, Subscriber, Workload

S = 1_000_000
DELAY_US = 10_000


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("mode", ["stream", "datagram"])
def test_the_first_event_is_as_quick_as_any(qos: int, mode: str) -> None:
    publisher = Publisher(
        name="p", node="n0", channel="uav", rate_hz=1, qos=qos, deadline_us=4 * DELAY_US,
        begin_us=10 * S, end_us=15 * S,
    )  # fmt: skip
    world = Simulation(
        line(4, DELAY_US),
        overlay_nodes(),
        seed=1,
        model=LinkModel(mode=mode),  # type: ignore[arg-type]
        workload=Workload((publisher,), (Subscriber(name="s", node="n3", filter="uav", qos=qos),)),
        channels=[ChannelSpec("uav", max_delay_us=4 * DELAY_US)],
        options=Options(is_checking=True, settle_us=5 * S),
    )
    tally = world.run(30 * S).check().channels["uav"]
    assert (tally.delivered, tally.in_time, tally.duplicates) == (5, 5, 0)
