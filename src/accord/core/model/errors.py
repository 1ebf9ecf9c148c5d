"""What can go wrong at Accord's edges, with the facts a caller needs to show or act on."""

from __future__ import annotations


class AccordError(Exception):
    """Base of everything Accord raises on purpose."""

    def parts(self) -> list[str]:
        """The mistakes it tells of, each of them a line."""
        return [str(self)]


def file_problem(error: OSError | ValueError) -> str:
    """What the system has against a file, and what to do."""
    if isinstance(error, FileNotFoundError):
        return "no such file or directory; check the path"
    if isinstance(error, IsADirectoryError):
        return "is a directory; expected a file"
    if isinstance(error, PermissionError):
        return "permission denied; check who may use it"
    return (getattr(error, "strerror", None) or str(error)).lower()


class PredicateError(AccordError):
    """A predicate that can't be accepted: says what, where, and what was expected instead."""

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
        """The mistake in one line, fit for a reason string."""
        where = "" if self.position is None else f" at character {self.position + 1}"
        expected = f", expected {self.expected}" if self.expected else ""
        return f"{self.problem}{where}{expected}"

    def pointed(self) -> str:
        """The mistake with the line it stands in, and a caret below the character."""
        if self.position is None:
            return self.summary
        start = self.text.rfind("\n", 0, self.position) + 1
        end = self.text.find("\n", self.position)
        line = self.text[start : end if end >= 0 else len(self.text)].replace("\t", " ")
        return f"{self.summary}\n  {line}\n  {' ' * (self.position - start)}^"


class EventError(AccordError):
    """An event that can't be accepted: `field` names the part, `problem` says what is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class PolicyError(AccordError):
    """Policies that can't be accepted: `place` says where, `problem` what was expected instead."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")
