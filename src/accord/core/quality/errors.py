"""Errors in properties, expectations and profiles."""

from __future__ import annotations

from accord.core.model.errors import AccordError


class QualityError(AccordError):
    """The input is refused: `place` is its location, `problem` what is wrong or was expected."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")
