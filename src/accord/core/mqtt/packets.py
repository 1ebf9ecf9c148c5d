"""MQTT packets as frozen values, the same for both versions.

What 3.1.1 lacks (properties, most reasons, subscription options) has its default there. Reasons are
those of MQTT 5 in either version; `codec` translates.
"""

from __future__ import annotations

import msgspec

from accord.core.mqtt.codes import V5
from accord.core.mqtt.properties import NO_PROPERTIES, Properties


class Will(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The message published for a client that disconnects without a DISCONNECT."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    client_id: str = ""
    version: int = V5
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES


class Connack(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    session_present: bool = False
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Publish(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A PUBLISH; `packet_id` is 0 at QoS 0, `topic` is empty if an alias replaces it."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


class Puback(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Pubrec(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Pubrel(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Pubcomp(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class TopicFilter(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One topic filter of a SUBSCRIBE with its options."""

    pattern: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    packet_id: int
    filters: tuple[TopicFilter, ...]
    properties: Properties = NO_PROPERTIES


class Suback(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


class Unsubscribe(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    packet_id: int
    patterns: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class Unsuback(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """An UNSUBACK; `reasons` is empty in 3.1.1."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


class Pingreq(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    pass


class Pingresp(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    pass


class Disconnect(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Auth(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    reason: int = 0
    properties: Properties = NO_PROPERTIES


Acknowledgement = Puback | Pubrec | Pubrel | Pubcomp
Packet = (
    Connect
    | Connack
    | Publish
    | Acknowledgement
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
