"""Encodes MQTT 5.0 and 3.1.1 packets.

The caller is responsible for what the standards allow; only values that do not fit the wire raise
ValueError or OverflowError. For 3.1.1, what it lacks (properties, most reasons) is omitted.
"""

from __future__ import annotations

from typing import Final, assert_never

from accord.core.mqtt.codes import V5, PacketType, return_code
from accord.core.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicFilter,
    Unsuback,
    Unsubscribe,
    Will,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties, encode_properties
from accord.core.mqtt.wire import MAX_VARINT, binary_bytes, string_bytes, varint_bytes

_FIRST: Final[dict[type, bytes]] = {
    Connect: b"\x10",
    Connack: b"\x20",
    Puback: b"\x40",
    Pubrec: b"\x50",
    Pubrel: b"\x62",
    Pubcomp: b"\x70",
    Subscribe: b"\x82",
    Suback: b"\x90",
    Unsubscribe: b"\xa2",
    Unsuback: b"\xb0",
    Pingreq: b"\xc0",
    Pingresp: b"\xd0",
    Disconnect: b"\xe0",
    Auth: b"\xf0",
}


def encode(packet: Packet, version: int) -> bytes:
    """The whole packet with its header; a CONNECT has its own version."""
    if isinstance(packet, Publish):
        flags = packet.dup << 3 | packet.qos << 1 | packet.retain
        first = (PacketType.PUBLISH << 4 | flags).to_bytes(1, "big")
    else:
        first = _FIRST[type(packet)]
    parts = _body(packet, version)
    size = sum(map(len, parts))
    if size > MAX_VARINT:
        raise ValueError(f"expected a packet of at most {MAX_VARINT} bytes, got {size}")
    return b"".join([first, varint_bytes(size), *parts])


def _body(packet: Packet, version: int) -> list[bytes]:
    match packet:
        case Publish():
            return _publish(packet, version)
        case Puback() | Pubrec() | Pubrel() | Pubcomp():
            return _acknowledgement(packet, version)
        case Connect():
            return _connect(packet)
        case Connack():
            return _connack(packet, version)
        case Subscribe():
            start = _start(packet.packet_id, packet.properties, version)
            return start + [part for each in packet.filters for part in _filter(each, version)]
        case Unsubscribe():
            start = _start(packet.packet_id, packet.properties, version)
            return start + [string_bytes(pattern) for pattern in packet.patterns]
        case Suback():
            reasons = packet.reasons
            if version != V5:
                reasons = tuple(min(reason, 0x80) for reason in reasons)
            return [*_start(packet.packet_id, packet.properties, version), bytes(reasons)]
        case Unsuback():
            reasons = packet.reasons if version == V5 else ()
            return [*_start(packet.packet_id, packet.properties, version), bytes(reasons)]
        case Pingreq() | Pingresp():
            return []
        case Disconnect() | Auth():
            return _outcome(packet.reason, packet.properties) if version == V5 else []
    assert_never(packet)


def _publish(packet: Publish, version: int) -> list[bytes]:
    parts = [string_bytes(packet.topic)]
    if packet.qos:
        parts.append(packet.packet_id.to_bytes(2, "big"))
    if version == V5:
        parts.append(encode_properties(packet.properties))
    parts.append(packet.payload)
    return parts


def _acknowledgement(packet: Acknowledgement, version: int) -> list[bytes]:
    parts = [packet.packet_id.to_bytes(2, "big")]
    if version == V5:
        parts += _outcome(packet.reason, packet.properties)
    return parts


def _outcome(reason: int, properties: Properties) -> list[bytes]:
    """The shortest encoding: success without properties needs no byte."""
    if properties != NO_PROPERTIES:
        return [reason.to_bytes(1, "big"), encode_properties(properties)]
    return [reason.to_bytes(1, "big")] if reason else []


def _connect(packet: Connect) -> list[bytes]:
    will = packet.will
    flags = packet.clean_start << 1
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
    flags |= (packet.password is not None) << 6 | (packet.username is not None) << 7
    parts = [b"\0\4MQTT", bytes((packet.version, flags)), packet.keep_alive_s.to_bytes(2, "big")]
    if packet.version == V5:
        parts.append(encode_properties(packet.properties))
    parts.append(string_bytes(packet.client_id))
    if will is not None:
        parts += _will(will, packet.version)
    if packet.username is not None:
        parts.append(string_bytes(packet.username))
    if packet.password is not None:
        parts.append(binary_bytes(packet.password))
    return parts


def _will(will: Will, version: int) -> list[bytes]:
    properties = [encode_properties(will.properties)] if version == V5 else []
    return [*properties, string_bytes(will.topic), binary_bytes(will.payload)]


def _connack(packet: Connack, version: int) -> list[bytes]:
    if version != V5:
        return [bytes((packet.session_present, return_code(packet.reason)))]
    return [bytes((packet.session_present, packet.reason)), encode_properties(packet.properties)]


def _start(packet_id: int, properties: Properties, version: int) -> list[bytes]:
    identifier = packet_id.to_bytes(2, "big")
    return [identifier, encode_properties(properties)] if version == V5 else [identifier]


def _filter(each: TopicFilter, version: int) -> tuple[bytes, bytes]:
    options = each.qos
    if version == V5:
        options |= each.no_local << 2 | each.retain_as_published << 3 | each.retain_handling << 4
    return string_bytes(each.pattern), options.to_bytes(1, "big")
