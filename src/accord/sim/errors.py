"""Errors of the simulator."""

from __future__ import annotations

from accord.core.model.errors import AccordError


class SimulationError(AccordError):
    """A simulation can't be set up, or a machine breaks its contract."""


class GraphError(AccordError):
    """A topology or latency file can't be used: `place` is the location in it."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")
