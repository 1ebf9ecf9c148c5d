"""Random runs of nodes of two tiers that negotiate quality: the same as in `negotiation_runs`.

A child tells and asks both of its parents, and nothing of what it negotiates goes over it from one
to the other. `scripts/tier_quality_runs.py` makes many.
"""

from __future__ import annotations

from accord.sim.machine import Machine, Start
from accord.sim.run import Outcome
from accord.sim.topology import Span, Topology
from tests.sim.negotiation_runs import QualityRun, topology_of
from tests.sim.tier_nodes import CHILD, is_child
from tests.sim.tier_quality_nodes import BackboneQuality, SecondaryQuality


class TierQualityRun(QualityRun):
    script = "tier_quality_runs"

    def __init__(self, seed: int, *, is_checking: bool = False) -> None:
        super().__init__(seed, is_checking=is_checking)
        self.crossed = {"down": 0, "up": 0, "switches": 0}

    def counts(self) -> dict[str, int]:
        return {**super().counts(), **self.crossed}

    def _end(self) -> None:
        for name, node in self.nodes().items():
            for _, path in node.quality.engine.dependencies.all():
                self.crossed["down"] += is_child(name) and bool(path)
                self.crossed["up"] += bool(path) and is_child(path[-1])
            if isinstance(node, SecondaryQuality):
                self.crossed["switches"] += node.child.status().switches
        super()._end()

    def _topology(self) -> Topology:
        """Some backbone nodes, and children of one or two of them each."""
        backbone = topology_of(self.random, most=4)
        children = [f"{CHILD}{number}" for number in range(self.random.randint(1, 3))]
        spans = list(backbone.spans)
        for child in children:
            parents = self.random.sample(list(backbone.nodes), self.random.choice((1, 2, 2, 3)))
            spans += [Span(child, parent) for parent in parents]
        return Topology("tiers", [*backbone.nodes, *children], spans)

    def _make(self, start: Start) -> Machine:
        kind = SecondaryQuality if is_child(start.name) else BackboneQuality
        home = self.homes[start.name]
        return kind(start, home, self._overlay_options, self._quality_options, self._counts)


def run(seed: int, *, is_checking: bool = False) -> Outcome:
    return TierQualityRun(seed, is_checking=is_checking).run()
