"""Prints the hash of a run's trace: for tests that run it under different hash seeds."""

from __future__ import annotations

import sys

from accord.sim.faults import RandomFaults
from accord.sim.links import LinkModel
from accord.sim.run import Options, Simulation
from accord.sim.topology import waxman
from accord.sim.workloads import Choice, Publisher, Subscriber, Workload
from tests.sim.machines import Flooder, S


class Careless(Flooder):
    """Passes events on only to the two neighbours that a set happens to give first."""

    def link_up(self, neighbour: str, now_us: int) -> None:
        super().link_up(neighbour, now_us)
        self.up = dict.fromkeys(list({*self.up})[:2], True)

    def link_down(self, neighbour: str, now_us: int) -> None:  # noqa: ARG002
        self.up.pop(neighbour, None)


def main(make: type[Flooder]) -> str:
    topology = waxman(12, 3)
    faults = RandomFaults(
        end_us=50 * S,
        link_down_share=0.1,
        link_slow_share=0.1,
        node_down_share=0.05,
        node_down_us=5 * S,
        disk_torn_share=0.5,
        partition_share=0.2,
        partition_us=3 * S,
    )
    workload = Workload(
        tuple(
            Publisher(
                name=f"p-{node}",
                node=node,
                channel=f"c/{node}",
                pattern="poisson",
                attributes={"kind": Choice(("uav", "car"))},
            )
            for node in topology.nodes
        ),
        tuple(
            Subscriber(name=f"s-{node}", node=node, filter="c/+", there_us=9 * S, away_us=S)
            for node in topology.nodes
        ),
    )
    simulation = Simulation(
        topology,
        make,
        seed=5,
        model=LinkModel(loss=0.1, jitter_us=9_000),
        faults=faults.script(topology, 5),
        workload=workload,
        options=Options(settle_us=S, patience_us=S),
    )
    outcome = simulation.run(60 * S)
    assert outcome.is_good, outcome.findings
    return outcome.trace


if __name__ == "__main__":
    print(main(Careless if "careless" in sys.argv else Flooder))
