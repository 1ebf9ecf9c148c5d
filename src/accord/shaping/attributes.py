"""Trimming: drops attributes of an event that are unwanted or too large.

The shape's argument lists the wanted attributes by name; all others are dropped. If the byte target
is still exceeded, attributes are dropped one by one, largest first. What the system itself needs,
the key and the deadline, is always kept, and so is the payload.
"""

from __future__ import annotations

from typing import Final

from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.shaping.content import Content, property_size

_KEPT: Final = frozenset(("key", "deadline-ms"))


class Trimming:
    """Drops attributes."""

    name = "trimming"

    def accepts(self, content_type: str, head: bytes) -> bool:  # noqa: ARG002
        return True

    def shape(self, content: Content, shape: ShapingTarget) -> Content:
        wanted = frozenset(name for part in shape.argument.split(",") if (name := part.strip()))
        properties = content.properties
        if wanted:
            properties = tuple(item for item in properties if item[0] in wanted | _KEPT)
        if shape.max_bytes:
            properties = _largest_dropped(properties, shape.max_bytes - len(content.payload))
        return Content(content.payload, content.content_type, properties)


def _largest_dropped(
    properties: tuple[tuple[str, str], ...], max_bytes: int
) -> tuple[tuple[str, str], ...]:
    sizes = [property_size(item) for item in properties]
    excess = sum(sizes) - max_bytes
    dropped: set[int] = set()
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        if excess <= 0:
            break
        if properties[place][0] not in _KEPT:
            dropped.add(place)
            excess -= sizes[place]
    return tuple(item for place, item in enumerate(properties) if place not in dropped)
