"""What can't be accepted of advertisements and requests."""

from __future__ import annotations

from accord.core.model.errors import AccordError


class AdmissionError(AccordError):
    """Says which part can't be accepted, and what was expected instead."""

    def __init__(self, part: str, problem: str) -> None:
        self.part = part
        self.problem = problem
        super().__init__(f"{part}: {problem}")
