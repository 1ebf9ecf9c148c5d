"""MQTT properties of transit events."""

from __future__ import annotations

import msgspec

from accord.core.mqtt.codes import ProtocolError
from accord.core.mqtt.properties import Properties, read_passed_on
from accord.core.overlay.signalling import Carried
from accord.core.overlay.validation import problem_with_event


def properties_of_transit_event(event: Carried) -> Properties | None:
    """The event's properties with its expiry; None if no node could have sent such an event."""
    if problem_with_event(event) is not None:
        return None
    try:
        properties = read_passed_on(event.block)
    except ProtocolError:
        return None
    if event.expiry_s >= 0:
        properties = msgspec.structs.replace(properties, message_expiry_s=event.expiry_s)
    return properties
