"""Errors at Accord's edges, with the facts a caller needs to show or act on.

Malformed messages from other nodes are not errors: `decode_or_none` tolerates them.

Errors of admission control.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec


class AccordError(Exception):
    """Base of all errors that Accord raises on purpose.

    Answered over HTTP, an error has this `status`; `place` is the part of the input concerned.
    """

    status: int = 400
    place: str = ""

    def parts(self) -> list[str]:
        """The problems, one line each."""
        return [str(self)]


def file_problem(error: OSError | ValueError) -> str:
    """The system's reason for refusing a file, and the remedy."""
    if isinstance(error, FileNotFoundError):
        return "no such file or directory; check the path"
    if isinstance(error, IsADirectoryError):
        return "is a directory; expected a file"
    if isinstance(error, PermissionError):
        return "permission denied; check who may use it"
    return (getattr(error, "strerror", None) or str(error)).lower()


class PredicateError(AccordError):
    """A predicate that is not acceptable: the problem, its location, and what was expected."""

    def __init__(
        self, problem: str, *, text: str, position: int | None = None, expected: str = ""
    ) -> None:
        self.problem = problem
        self.text = text
        self.position = position
        self.expected = expected
        super().__init__(self.summary)

    @property
    def summary(self) -> str:
        """The problem in one line, fit for a reason string."""
        where = "" if self.position is None else f" at character {self.position + 1}"
        expected = f", expected {self.expected}" if self.expected else ""
        return f"{self.problem}{where}{expected}"

    def pointed(self) -> str:
        """The problem with its line, and a caret below the character."""
        if self.position is None:
            return self.summary
        start = self.text.rfind("\n", 0, self.position) + 1
        end = self.text.find("\n", self.position)
        line = self.text[start : end if end >= 0 else len(self.text)].replace("\t", " ")
        return f"{self.summary}\n  {line}\n  {' ' * (self.position - start)}^"


class InputError(AccordError):
    """A problem in a file or an option: `where` is its location, `problem` what was expected."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"{where}: {problem}")


class EventError(AccordError):
    """An event that is not acceptable: `field` names the part, `problem` what is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class PolicyError(AccordError):
    """Policies that are not acceptable: `place` is the location, `problem` what was expected."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}" if place else problem)


T = TypeVar("T")


def decode_or_none(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T | None:
    """Returns None for data that `decoder` does not accept.

    All of msgspec's own errors are ValueErrors; so is what it raises for text that is not UTF-8.
    """
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError, OverflowError):
        return None


class AdmissionError(AccordError):
    """An unacceptable advertisement or request: the part concerned, and what was expected."""

    def __init__(self, part: str, problem: str) -> None:
        self.part = self.place = part
        self.problem = problem
        super().__init__(f"{part}: {problem}")
