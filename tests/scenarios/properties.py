"""Properties as paho and aiomqtt want them: an untyped class with names of its own."""

from __future__ import annotations

from typing import Any

from paho.mqtt.properties import Properties


def properties_of(packet: int, **values: Any) -> Any:
    properties: Any = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(properties, name, value)
    return properties
