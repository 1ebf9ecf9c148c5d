"""Status of negotiated quality at a node, for operators and programs."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from msgspec import Struct

from accord.core.quality.action_log import QualityAction
from accord.core.quality.properties import Property, Value


class CapabilityStatus(Struct, frozen=True, kw_only=True):
    """One capability of a profile; `is_measured`: the node determines it.

    `cost` of operating at a value: a number, a line (`base`, `slope`) or a list of [value, cost].
    """

    property: str
    lower: Value
    upper: Value
    current: Value
    is_measured: bool = False
    cost: Any = 0.0


class ProfileStatus(Struct, frozen=True, kw_only=True):
    """Profile of one client on one channel, and how many expectations depend on it."""

    publisher: str
    capabilities: tuple[CapabilityStatus, ...]
    expectations: int
    utility: float
    source: str = ""  # the client whose events are measured for it, if it is another one


class NearestProfile(Struct, frozen=True, kw_only=True):
    """The profile that an expectation depends on, or else the one that comes nearest to it.

    Of a profile at another node, `publisher` names the node and the way there.
    """

    publisher: str
    channel: str
    capabilities: tuple[CapabilityStatus, ...]
    is_remote: bool = False


class SkylineStatus(Struct, frozen=True, kw_only=True):
    """Publishers on the skyline for these properties, at this node and at others."""

    properties: tuple[str, ...]
    members: tuple[str, ...]


class ExpectationStatus(Struct, frozen=True, kw_only=True):
    """One expectation; `reasons` are the insufficient properties with their current values.

    `subscription` is the filter as its client subscribed to it.
    """

    client: str
    id: str
    expect: dict[str, Any]
    state: str
    decision: str = ""
    reasons: dict[str, Value | None] = {}
    relies_on: tuple[str, ...] = ()
    subscription: str = ""
    nearest: NearestProfile | None = None


class ChannelQuality(Struct, frozen=True, kw_only=True):
    """Quality on a channel, or on a filter of an expectation."""

    channel: str
    profiles: tuple[ProfileStatus, ...] = ()
    skylines: tuple[SkylineStatus, ...] = ()
    expectations: tuple[ExpectationStatus, ...] = ()


class QualityTotals(Struct, frozen=True, kw_only=True):
    """Totals: `states` counts expectations by state; the others count since the start."""

    profiles: int = 0
    states: dict[str, int] = {}
    reactions: int = 0
    advice: int = 0
    told: int = 0
    usages: int = 0
    acts: int = 0
    filtered: int = 0


class QualityStatus(Struct, frozen=True, kw_only=True):
    """Quality at the node; `left_off` counts profiles and expectations beyond the display limit.

    `actions` are the newest advice to publishers and acts of the node, with what came of them.
    """

    node: str
    strategy: str
    totals: QualityTotals
    channels: tuple[ChannelQuality, ...] = ()
    left_off: int = 0
    actions: tuple[QualityAction, ...] = ()


class PropertyStatus(Struct, frozen=True, kw_only=True):
    """A property: `levels`, lowest first, or a `range`, with null for no end."""

    name: str
    better: str
    levels: tuple[str, ...] = ()
    range: tuple[float | None, float | None] | None = None
    unit: str = ""
    over_hops: str = "keep"
    measured: bool = False


def property_statuses(properties: Iterable[Property]) -> list[PropertyStatus]:
    return [
        PropertyStatus(
            name=each.name,
            better=each.better.value,
            levels=tuple(each.levels),
            range=None if each.levels else (_finite(each.lowest), _finite(each.highest)),
            unit=each.unit,
            over_hops=each.over_hops.value,
            measured=each.is_measured,
        )
        for each in properties
    ]


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: null is no end."""
    return value if value is not None and isfinite(value) else None
