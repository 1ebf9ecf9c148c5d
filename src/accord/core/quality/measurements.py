"""What nodes determine of a publisher's information: measured here, never declared.

A measurement counts for one publisher on a channel, or for all on it. It says what is had now and
what is the best to be had if the node acts (with a higher importance, or over another path).

Measured values jitter. Each change would be matched and told to all nodes, so small ones are
passed over: those within a tenth of what was taken last, or within a hundredth of a property's
range where that is finite. A decision may be off by so much, and no more.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from accord.core.quality.costs import FREE
from accord.core.quality.errors import QualityError
from accord.core.quality.profiles import Capability
from accord.core.quality.properties import Better, Property, PropertyRegistry, Value

EVERYBODY: Final = ""

_OF_VALUE: Final = 0.1
_OF_RANGE: Final = 0.01


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What a node found out: of one publisher on a channel, or of all there."""

    channel: str
    property: str
    value: Value
    best: Value | None = None  # if the node acts; None: no better
    publisher: str = EVERYBODY


class Measurements:
    def __init__(self, registry: PropertyRegistry) -> None:
        self._registry = registry
        self._channels: dict[str, dict[str, dict[str, Capability]]] = {}  # then publisher, property

    def take(self, measurement: Measurement) -> bool:
        """Whether that is something new."""
        name = measurement.property
        property_ = self._registry.get(name)
        if not property_.is_measured:
            raise QualityError(name, "is declared by publishers; a node can't measure it")
        value, best = measurement.value, measurement.best
        measured = _capability(property_, value, value if best is None else best)
        of_channel = self._channels.setdefault(measurement.channel, {})
        of_publisher = of_channel.setdefault(measurement.publisher, {})
        known = of_publisher.get(name)
        if known is not None and _is_close(property_, known, measured):
            return False
        of_publisher[name] = measured
        return True

    def capabilities(self, channel: str, publisher: str) -> tuple[Capability, ...]:
        """All that is measured of one publisher: its own before what counts for everybody."""
        of_channel = self._channels.get(channel, {})
        found = {**of_channel.get(EVERYBODY, {}), **of_channel.get(publisher, {})}
        return tuple(found.values())

    def forget(self, channel: str, publisher: str) -> None:
        """It is gone; or all on the channel are, where that is EVERYBODY."""
        of_channel = self._channels.get(channel, {})
        of_channel.pop(publisher, None)
        if channel in self._channels and not of_channel:
            del self._channels[channel]

    def check_invariants(self) -> None:
        for of_channel in self._channels.values():
            assert of_channel
            for of_publisher in of_channel.values():
                for name, measured in of_publisher.items():
                    assert name == measured.property
                    assert self._registry.get(name).is_measured


def is_close(property_: Property, one: Value, other: Value) -> bool:
    """Whether the difference is no more than jitter."""
    if property_.levels:
        return one == other
    before, after = property_.position(one), property_.position(other)
    if not (math.isfinite(before) and math.isfinite(after)):
        return before == after
    span = property_.highest - property_.lowest
    slack = _OF_RANGE * span if math.isfinite(span) else _OF_VALUE * abs(before)
    return abs(after - before) <= slack


def _capability(property_: Property, value: Value, best: Value) -> Capability:
    if property_.is_better(value, best):
        best = value
    lower, upper = (value, best) if property_.better is Better.HIGHER else (best, value)
    return Capability(property_.name, lower, upper, value, FREE)


def _is_close(property_: Property, known: Capability, new: Capability) -> bool:
    pairs = ((known.lower, new.lower), (known.upper, new.upper), (known.current, new.current))
    return all(is_close(property_, one, other) for one, other in pairs)
