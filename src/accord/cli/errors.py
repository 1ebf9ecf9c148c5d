"""Errors in user input."""

from __future__ import annotations

from accord.core.model.errors import AccordError


class InputError(AccordError):
    """A problem in a file or an option: `where` is its location, `problem` what was expected."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"{where}: {problem}")
