"""What is wrong with a property, an expectation or a profile."""

from __future__ import annotations

from accord.core.model.errors import AccordError


class QualityError(AccordError):
    """Can't be accepted: `place` says where, `problem` what is wrong or was expected instead."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")
