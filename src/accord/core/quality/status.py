"""How negotiated quality stands at a node, as people and programs see it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from accord.core.quality.properties import Value


class CapabilityStatus(Struct, frozen=True, kw_only=True):
    """`is_measured`: the node determines it."""

    property: str
    lower: Value
    upper: Value
    current: Value
    is_measured: bool = False


class ProfileStatus(Struct, frozen=True, kw_only=True):
    """What one client can give on one channel, and how many expectations rely on it."""

    publisher: str
    capabilities: tuple[CapabilityStatus, ...]
    expectations: int
    utility: float


class SkylineStatus(Struct, frozen=True, kw_only=True):
    """Of these properties nobody else has more: publishers here, and such at other nodes."""

    properties: tuple[str, ...]
    members: tuple[str, ...]


class ExpectationStatus(Struct, frozen=True, kw_only=True):
    """`reasons` are the properties that lack something, with what there is of them now."""

    client: str
    id: str
    expect: dict[str, Any]
    state: str
    decision: str = ""
    reasons: dict[str, Value | None] = {}
    relies_on: tuple[str, ...] = ()


class ChannelQuality(Struct, frozen=True, kw_only=True):
    """A channel, or a filter by which something is expected."""

    channel: str
    profiles: tuple[ProfileStatus, ...] = ()
    skylines: tuple[SkylineStatus, ...] = ()
    expectations: tuple[ExpectationStatus, ...] = ()


class QualityTotals(Struct, frozen=True, kw_only=True):
    """`states` counts expectations by how they stand; the others count since the start."""

    profiles: int = 0
    states: dict[str, int] = {}
    reactions: int = 0
    advice: int = 0
    told: int = 0
    usages: int = 0
    acts: int = 0
    filtered: int = 0


class QualityStatus(Struct, frozen=True, kw_only=True):
    """`left_off` are profiles and expectations that were too many to be shown."""

    node: str
    strategy: str
    totals: QualityTotals
    channels: tuple[ChannelQuality, ...] = ()
    left_off: int = 0


class PropertyStatus(Struct, frozen=True, kw_only=True):
    """`levels`, the lowest first, or a `range`; null where it has no end."""

    name: str
    better: str
    levels: tuple[str, ...] = ()
    range: tuple[float | None, float | None] | None = None
    unit: str = ""
    over_hops: str = "keep"
    measured: bool = False
