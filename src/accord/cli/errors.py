"""What a user gave that can't be used."""

from __future__ import annotations

from accord.core.model.errors import AccordError


class InputError(AccordError):
    """A mistake in a file or an option: `where` names the place, `problem` what was expected."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"{where}: {problem}")
