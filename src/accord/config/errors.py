"""Errors of a configuration: all problems at once, each with its location."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from accord.core.model.errors import AccordError


class ConfigProblem(Struct, frozen=True):
    """`place` is a file and line, or an option; `problem` states what was expected there."""

    place: str
    key: str
    problem: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.key, self.problem) if part)


class ConfigError(AccordError):
    """A configuration that cannot be used."""

    def __init__(self, mistakes: Sequence[ConfigProblem]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))

    def parts(self) -> list[str]:
        return [str(mistake) for mistake in self.mistakes]
