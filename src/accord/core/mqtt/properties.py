"""The properties of MQTT 5 packets, and the user properties reserved for the node.

One table defines the properties, their types and the packets they may occur in; decoding dispatches
on it by identifier. Of the standard's two error classes, unknown or misplaced identifiers and
broken values are malformed packets, repetitions and values out of range are protocol errors.

Reserved user properties are on kept events that the node sends, on replies and on DISCONNECT;
clients can't set them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from accord.core.mqtt.codes import PacketType, ProtocolError, Reason, malformed, violation
from accord.core.mqtt.wire import binary_bytes, read_varint, string_bytes, varint_bytes


class Properties(msgspec.Struct, frozen=True, kw_only=True, gc=False, repr_omit_defaults=True):
    """All properties of one packet; None (or empty) if absent."""

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: bool | None = None
    will_delay_s: int | None = None
    request_response_information: bool | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: bool | None = None
    user: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: bool | None = None
    subscription_identifiers_available: bool | None = None
    shared_subscription_available: bool | None = None


NO_PROPERTIES: Final = Properties()

WILL: Final = 0  # stands for the properties of a CONNECT's will


# Encodings of a property's value. The order matters to decode_properties.
_BOOLEAN: Final = 1
_BIT: Final = 2  # a byte that is 0 or 1, but not a boolean
_TWO_BYTES: Final = 3
_FOUR_BYTES: Final = 4
_VARINT: Final = 5
_STRING: Final = 6
_BINARY: Final = 7
_PAIR: Final = 8

_CONNECT: Final = 1 << PacketType.CONNECT
_CONNACK: Final = 1 << PacketType.CONNACK
_PUBLISH: Final = 1 << PacketType.PUBLISH
_SUBSCRIBE: Final = 1 << PacketType.SUBSCRIBE
_UNSUBSCRIBE: Final = 1 << PacketType.UNSUBSCRIBE
_DISCONNECT: Final = 1 << PacketType.DISCONNECT
_AUTH: Final = 1 << PacketType.AUTH
_MESSAGE: Final = _PUBLISH | 1 << WILL
_EITHER_CONNECT: Final = _CONNECT | _CONNACK
_REPLY_PACKETS: Final = sum(
    1 << PacketType[name]
    for name in ("CONNACK", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBACK", "UNSUBACK")
) | _DISCONNECT | _AUTH  # fmt: skip

_TABLE: Final[tuple[tuple[int, str, int, int], ...]] = (
    (1, "payload_format", _BIT, _MESSAGE),
    (2, "message_expiry_s", _FOUR_BYTES, _MESSAGE),
    (3, "content_type", _STRING, _MESSAGE),
    (8, "response_topic", _STRING, _MESSAGE),
    (9, "correlation_data", _BINARY, _MESSAGE),
    (11, "subscription_identifiers", _VARINT, _PUBLISH | _SUBSCRIBE),
    (17, "session_expiry_s", _FOUR_BYTES, _EITHER_CONNECT | _DISCONNECT),
    (18, "assigned_client_id", _STRING, _CONNACK),
    (19, "server_keep_alive_s", _TWO_BYTES, _CONNACK),
    (21, "authentication_method", _STRING, _EITHER_CONNECT | _AUTH),
    (22, "authentication_data", _BINARY, _EITHER_CONNECT | _AUTH),
    (23, "request_problem_information", _BOOLEAN, _CONNECT),
    (24, "will_delay_s", _FOUR_BYTES, 1 << WILL),
    (25, "request_response_information", _BOOLEAN, _CONNECT),
    (26, "response_information", _STRING, _CONNACK),
    (28, "server_reference", _STRING, _CONNACK | _DISCONNECT),
    (31, "reason_string", _STRING, _REPLY_PACKETS),
    (33, "receive_maximum", _TWO_BYTES, _EITHER_CONNECT),
    (34, "topic_alias_maximum", _TWO_BYTES, _EITHER_CONNECT),
    (35, "topic_alias", _TWO_BYTES, _PUBLISH),
    (36, "maximum_qos", _BIT, _CONNACK),
    (37, "retain_available", _BOOLEAN, _CONNACK),
    (38, "user", _PAIR, _REPLY_PACKETS | _MESSAGE | _CONNECT | _SUBSCRIBE | _UNSUBSCRIBE),
    (39, "maximum_packet_size", _FOUR_BYTES, _EITHER_CONNECT),
    (40, "wildcard_subscription_available", _BOOLEAN, _CONNACK),
    (41, "subscription_identifiers_available", _BOOLEAN, _CONNACK),
    (42, "shared_subscription_available", _BOOLEAN, _CONNACK),
)

_USER: Final = 38
MAX_USER: Final = 2_000  # each takes many times its bytes in memory
_NAMES: Final[dict[int, str]] = {number: name for number, name, _, _ in _TABLE}
_KINDS: Final[dict[int, int]] = {number: kind for number, _, kind, _ in _TABLE}
_ALLOWED: Final[dict[int, int]] = {  # by packet: one bit per identifier
    packet: sum(1 << number for number, _, _, packets in _TABLE if packets >> packet & 1)
    for packet in (WILL, *PacketType)
}


def decode_properties(data: bytes, start: int, end: int, packet: int) -> tuple[Properties, int]:
    """The properties of `packet` (a PacketType or WILL), and the position after them.

    `start` is the offset of their length, `end` that of the packet's end.
    """
    if start < end and data[start] == 0:
        return NO_PROPERTIES, start + 1
    length, at = read_varint(data, start, end)
    stop = at + length
    if stop > end:
        raise malformed(f"properties of {length} bytes, but {end - at} are left")
    user: list[tuple[str, str]] = []
    found: dict[str, Any] = {}
    allowed = _ALLOWED[packet]
    # Reads beyond `stop` are harmless: they are detected at the end, or by an IndexError.
    try:
        while at < stop:
            number = data[at]
            if not allowed >> number & 1:
                raise _misplaced(number, packet)
            if number == _USER:  # by far the most frequent: attributes
                middle = at + 3 + (data[at + 1] << 8 | data[at + 2])
                last = middle + 2 + (data[middle] << 8 | data[middle + 1])
                name, text = data[at + 3 : middle].decode(), data[middle + 2 : last].decode()
                if "\0" in name or "\0" in text:
                    raise _null_character()
                user.append((name, text))
                if len(user) > MAX_USER:
                    problem = f"expected at most {MAX_USER} user properties"
                    raise ProtocolError(Reason.QUOTA_EXCEEDED, problem)
                at = last
            else:
                at = _read_one(data, at + 1, stop, number, found)
    except UnicodeDecodeError:
        raise malformed("a property that is not UTF-8 text") from None
    except IndexError:
        raise malformed("a property runs over the end of the packet") from None
    if at != stop:
        raise malformed("a property runs over the end of the properties")
    if found:
        _check(found, packet)
    if user:
        found["user"] = tuple(user)
    return Properties(**found), stop


def _read_one(data: bytes, at: int, stop: int, number: int, found: dict[str, Any]) -> int:
    """Read a property other than a user property into `found`; returns the position after it."""
    name, kind = _NAMES[number], _KINDS[number]
    if kind == _VARINT:
        identifier, at = read_varint(data, at, stop)
        found.setdefault(name, []).append(identifier)
        return at
    if name in found:
        raise violation(f"{_display_name(name)} given twice")
    if kind >= _STRING:
        last = at + 2 + (data[at] << 8 | data[at + 1])
        block = data[at + 2 : last]
        if kind == _STRING and 0 in block:
            raise _null_character()
        found[name] = block.decode() if kind == _STRING else block
        return last
    if kind >= _TWO_BYTES:
        last = at + (2 if kind == _TWO_BYTES else 4)
        found[name] = int.from_bytes(data[at:last], "big")
        return last
    if at >= stop:
        raise malformed("a property runs over the end of the properties")
    value = data[at]
    if value > 1:
        raise violation(f"{_display_name(name)} of {value}, expected 0 or 1")
    found[name] = value == 1 if kind == _BOOLEAN else value
    return at + 1


def _misplaced(number: int, packet: int) -> ProtocolError:
    where = "WILL" if packet == WILL else PacketType(packet).name
    if number in _NAMES:
        return malformed(f"{_display_name(_NAMES[number])} does not belong into {where}")
    return malformed(f"unknown property {number} in {where}")


def _display_name(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")


def _check(found: dict[str, Any], packet: int) -> None:
    for name in ("receive_maximum", "maximum_packet_size"):
        if found.get(name) == 0:
            raise violation(f"{_display_name(name)} of 0")
    if found.get("topic_alias") == 0:
        raise ProtocolError(Reason.TOPIC_ALIAS_INVALID, "a topic alias of 0")
    if identifiers := found.get("subscription_identifiers"):
        if 0 in identifiers:
            raise violation("a subscription identifier of 0")
        if len(identifiers) > 1 and packet == PacketType.SUBSCRIBE:
            raise violation("subscription identifier given twice")
        found["subscription_identifiers"] = tuple(identifiers)
    if "authentication_data" in found and "authentication_method" not in found:
        raise violation("authentication data without authentication method")
    topic = found.get("response_topic")
    if topic is not None and (not topic or "+" in topic or "#" in topic):
        raise violation(f"expected a response topic without wildcards, got {topic[:80]!r}")


def _null_character() -> ProtocolError:
    return malformed("a property with a null character")


def encode_properties(properties: Properties) -> bytes:
    """The encoded properties with their length prefix."""
    if properties is NO_PROPERTIES:
        return b"\0"
    parts: list[bytes] = []
    for number, name, kind, _ in _TABLE:
        value = getattr(properties, name)
        if value is None or value == ():
            continue
        mark = number.to_bytes(1, "big")
        if kind == _PAIR:
            for key, text in value:
                parts += (mark, string_bytes(key), string_bytes(text))
        elif kind == _VARINT:
            for identifier in value:
                parts += (mark, varint_bytes(identifier))
        else:
            parts += (mark, _value_bytes(kind, value))
    body = b"".join(parts)
    return varint_bytes(len(body)) + body


def _value_bytes(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return string_bytes(value)
    if kind == _BINARY:
        return binary_bytes(value)
    size = {_TWO_BYTES: 2, _FOUR_BYTES: 4}.get(kind, 1)
    return int(value).to_bytes(size, "big")


def forwarded_properties(properties: Properties) -> Properties:
    """The properties of a PUBLISH that receivers get unchanged; the expiry is separate."""
    return Properties(
        payload_format=properties.payload_format,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user=properties.user,
    )


def read_block(block: bytes) -> Properties:
    """The PUBLISH properties of a block without length prefix; raises ProtocolError if damaged."""
    encoded = varint_bytes(len(block)) + block
    return decode_properties(encoded, 0, len(encoded), PacketType.PUBLISH)[0]


def read_forwarded(block: bytes) -> Properties:
    """As `read_block`, but also raises ProtocolError for properties that are not passed on."""
    properties = read_block(block)
    if properties != forwarded_properties(properties):
        raise malformed("a property that is not passed on")
    return properties


def forwarded_block(properties: Properties) -> bytes:
    """The properties of `forwarded_properties`, encoded without length prefix."""
    encoded = encode_properties(forwarded_properties(properties))
    return encoded[read_varint(encoded, 0, len(encoded))[1] :]


OWN_PREFIX: Final = "accord-"  # their common prefix
CHANNEL: Final = "accord-channel"
EVENT: Final = "accord-event"
RECEIVED: Final = "accord-received-ms"
PUBLISHER: Final = "accord-publisher"
NODE: Final = "accord-node"  # the publisher's node
ORIGIN: Final = "accord-origin"  # in a journal, the event ID if it differs: NUMBER@NODE
PAGE: Final = "accord-page"  # the message after the events of a page: (PAGE, END)
END: Final = "end"
ENDED: Final = "accord-ended"  # in a DISCONNECT: the filter of a subscription that the node ended
