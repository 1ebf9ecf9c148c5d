"""What a simulation can't do, and why."""

from __future__ import annotations

from accord.core.model.errors import AccordError


class SimulationError(AccordError):
    """A simulation that can't be set up, or a machine that does what no machine may."""


class GraphError(AccordError):
    """A file of a topology or of latencies that can't be used: `place` says where in it."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")
