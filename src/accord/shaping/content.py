"""Input, output and interface of shapers."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from accord.core.model.errors import AccordError
from accord.core.scheduling.shaping_decision import ShapingTarget

_PER_PROPERTY = 5  # what MQTT adds to a name and a value


class ShapingError(AccordError):
    """The content can't be shaped; the event may still be sent as it is."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class Content(Struct, frozen=True, array_like=True):
    """The parts of an event that shaping may change; `properties` are its user properties."""

    payload: bytes
    content_type: str = ""
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """Approximate bytes needed to send it."""
        return len(self.payload) + sum(map(property_size, self.properties))


def property_size(item: tuple[str, str]) -> int:
    return _PER_PROPERTY + len(item[0].encode()) + len(item[1].encode())


class Shaper(Protocol):
    """Makes one kind of content smaller.

    Also the interface of plug-ins: an entry point of the group `accord.shapers`, named as the
    shaper is in preferences, provides one (an object, or a class without constructor arguments).
    Shapers run in worker processes, never in the node itself.
    """

    @property
    def name(self) -> str: ...

    def accepts(self, content_type: str, head: bytes) -> bool:
        """Whether it can shape such content, by its type and first bytes; must be fast."""
        ...

    def shape(self, content: Content, shape: ShapingTarget) -> Content:
        """`content` within the targets of `shape`, or as close as sensible. Raises ShapingError."""
        ...
