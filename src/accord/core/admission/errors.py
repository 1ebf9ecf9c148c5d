"""Errors of admission control."""

from __future__ import annotations

from accord.core.model.errors import AccordError


class AdmissionError(AccordError):
    """An unacceptable advertisement or request: the part concerned, and what was expected."""

    def __init__(self, part: str, problem: str) -> None:
        self.part = part
        self.problem = problem
        super().__init__(f"{part}: {problem}")
