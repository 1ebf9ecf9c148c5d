"""Properties that nodes measure of a publisher's information; publishers never declare them.

A measurement applies to one publisher on a channel, or to all on it. It holds the current value and
the best one that the node could reach by acting (a higher importance, or another path).

Measured values jitter, and each change would be matched and announced to all nodes. So small
changes are ignored: within a hundredth of the property's range if that is finite, else within a
tenth of the last accepted value. A decision may be off by that much and no more.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from accord.core.quality.costs import FREE
from accord.core.quality.profiles import Capability
from accord.core.quality.properties import Better, Property, PropertyRegistry, QualityError, Value

EVERYBODY: Final = ""

_OF_VALUE: Final = 0.1
_OF_RANGE: Final = 0.01


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A value measured at a node: of one publisher on a channel, or of all there."""

    channel: str
    property: str
    value: Value
    best: Value | None = None  # if the node acts; None: no better
    publisher: str = EVERYBODY


class Measurements:
    def __init__(self, registry: PropertyRegistry) -> None:
        self._registry = registry
        self._channels: dict[str, dict[str, dict[str, Capability]]] = {}  # then publisher, property

    def record(self, measurement: Measurement) -> bool:
        """Records a measurement; False if it is within the jitter."""
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
        """All measurements of one publisher; its own take precedence over those for EVERYBODY."""
        of_channel = self._channels.get(channel, {})
        found = {**of_channel.get(EVERYBODY, {}), **of_channel.get(publisher, {})}
        return tuple(found.values())

    def remove(self, channel: str, publisher: str) -> None:
        """Removes the measurements of one publisher, or of EVERYBODY."""
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
