"""Values and errors of a configuration.

An error carries all problems at once, each with its location. Sizes and durations are parsed as
`accord.toml` writes them: `16 MB`, `64 MiB`, `24h`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from accord.core.model.errors import AccordError
from accord.core.model.units import DURATIONS_S, SIZES, parse, render


class ConfigProblem(Struct, frozen=True):
    """`place` is a file and line, or an option; `problem` states what was expected there."""

    place: str
    key: str
    problem: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.key, self.problem) if part)


class ConfigError(AccordError):
    """A configuration that cannot be used."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(mistake) for mistake in self.problems))

    def parts(self) -> list[str]:
        return [str(mistake) for mistake in self.problems]


def parse_size(text: str) -> int | None:
    """Bytes, or None if `text` is not a whole number of them."""
    return parse(text, SIZES)


def parse_duration(text: str) -> int | None:
    """Seconds, or None if `text` is not a whole number of them."""
    return parse(text, DURATIONS_S)


def format_size(size: int) -> str:
    """The shortest way to write `size` exactly."""
    return render(size, SIZES)


def format_duration(duration_s: int) -> str:
    return render(duration_s, DURATIONS_S, space="")
