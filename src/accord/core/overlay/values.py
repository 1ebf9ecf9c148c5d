"""What nodes tell each other of themselves, their links and their needs, as facts."""

from __future__ import annotations

import msgspec


class NodeValue(msgspec.Struct, frozen=True, array_like=True):
    """What a node tells of itself: how long it takes until an event is with its clients."""

    processing_us: int


class LinkValue(msgspec.Struct, frozen=True, array_like=True):
    """What a node tells of its link to a neighbour; latency includes waiting for the link."""

    is_up: bool
    latency_us: int
    deviation_us: int = 0
    loss: float = 0.0
    failure: float = 0.0


class Need(msgspec.Struct, frozen=True, array_like=True):
    """As nodes tell it to each other."""

    filter: str
    where: str = ""
    xpath: str = ""
