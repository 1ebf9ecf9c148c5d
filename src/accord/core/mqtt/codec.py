"""Packet codec: encodes and decodes MQTT 5.0 and 3.1.1 packets.

When encoding, the caller is responsible for what the standards allow; only values that do not fit
the wire raise ValueError or OverflowError. For 3.1.1, what it lacks (properties, most reasons) is
omitted. Decoding is strict: everything the standards forbid raises ProtocolError with the reason
code they specify, and `decode` raises nothing else. Checks that depend on the connection's state or
direction (an unknown packet identifier, a client that sends CONNACK) are left to the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Final, assert_never

from accord.core.model.channels import problem_with_channel, problem_with_filter
from accord.core.mqtt.codes import (
    REASONS,
    RETURN_CODES,
    V5,
    V311,
    PacketType,
    ProtocolError,
    Reason,
    malformed,
    return_code,
    violation,
)
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
from accord.core.mqtt.properties import (
    NO_PROPERTIES,
    WILL,
    Properties,
    decode_properties,
    encode_properties,
)
from accord.core.mqtt.wire import (
    MAX_VARINT,
    binary_bytes,
    read_binary,
    read_byte,
    read_string,
    read_two_bytes,
    string_bytes,
    varint_bytes,
)

MAX_FILTERS: Final = 10_000  # in one packet
SHARED: Final = "$share/"

_NAME: Final = "MQTT"
_TWO: Final = 0b0010  # the flags of PUBREL, SUBSCRIBE and UNSUBSCRIBE


def decode(first: int, body: bytes, version: int) -> Packet:
    """The packet whose header starts with the byte `first`; a CONNECT has its own version."""
    kind = first >> 4
    if kind == PacketType.PUBLISH:
        return _decode_publish(first, body, version)
    if kind == 0 or (kind == PacketType.AUTH and version != V5):
        raise malformed(f"packet type {kind} does not exist in this version")
    wanted = _TWO if kind in _WITH_FLAGS else 0
    if first & 0x0F != wanted:
        raise malformed(f"flags {first & 0x0F:04b} in {PacketType(kind).name}, not {wanted:04b}")
    return _DECODERS[PacketType(kind)](body, version)


def problem_with_subscription(pattern: str) -> str | None:
    """Why a topic filter, shared or not, can't be subscribed to; None if it can."""
    if not pattern.startswith(SHARED):
        return problem_with_filter(pattern)
    name, slash, rest = pattern[len(SHARED) :].partition("/")
    if not name or not slash or "+" in name or "#" in name:
        return f"expected $share/NAME/FILTER, got {pattern!r}"
    return problem_with_filter(rest)


def _decode_publish(first: int, body: bytes, version: int) -> Publish:
    qos = first >> 1 & 3
    if qos == 3:
        raise malformed("a PUBLISH with QoS 3")
    if qos == 0 and first & 8:
        raise malformed("a PUBLISH with QoS 0 marked as sent before")
    end = len(body)
    topic, at = read_string(body, 0, end)
    packet_id = 0
    if qos:
        packet_id, at = _read_packet_id(body, at)
    properties = NO_PROPERTIES
    if version == V5:
        properties, at = decode_properties(body, at, end, PacketType.PUBLISH)
    if topic:
        _check_topic(topic)
    elif version == V311:
        raise ProtocolError(Reason.TOPIC_NAME_INVALID, "a PUBLISH without topic")
    elif properties.topic_alias is None:
        raise violation("a PUBLISH without topic and without topic alias")
    return Publish(topic, body[at:], qos, bool(first & 1), bool(first & 8), packet_id, properties)


def _decode_connect(body: bytes, _: int) -> Connect:
    end = len(body)
    name, at = read_string(body, 0, end)
    version, at = read_byte(body, at, end)
    if name != _NAME or version not in (V311, V5):
        raise ProtocolError(
            Reason.UNSUPPORTED_PROTOCOL_VERSION,
            f"protocol {name[:20]!r} version {version}, expected 'MQTT' version 4 or 5",
        )
    flags, at = read_byte(body, at, end)
    _check_connect_flags(flags, version)
    keep_alive_s, at = read_two_bytes(body, at, end)
    properties = NO_PROPERTIES
    if version == V5:
        properties, at = decode_properties(body, at, end, PacketType.CONNECT)
    client_id, at = read_string(body, at, end)
    will = username = password = None
    if flags & 0x04:
        will, at = _read_will(body, at, flags, version)
    if flags & 0x80:
        username, at = read_string(body, at, end)
    if flags & 0x40:
        password, at = read_binary(body, at, end)
    _check_end(body, at)
    clean = bool(flags & 0x02)
    return Connect(client_id, version, clean, keep_alive_s, username, password, will, properties)


def _check_connect_flags(flags: int, version: int) -> None:
    if flags & 0x01:
        raise malformed("the reserved flag of CONNECT is set")
    if not flags & 0x04 and flags & 0x38:
        raise malformed("a CONNECT without will, but with the will's QoS or retain flag")
    if flags & 0x18 == 0x18:
        raise malformed("a will with QoS 3")
    if version == V311 and flags & 0xC0 == 0x40:
        raise malformed("a CONNECT with a password and no user name")


def _read_will(body: bytes, at: int, flags: int, version: int) -> tuple[Will, int]:
    end = len(body)
    properties = NO_PROPERTIES
    if version == V5:
        properties, at = decode_properties(body, at, end, WILL)
    topic, at = read_string(body, at, end)
    _check_topic(topic)
    payload, at = read_binary(body, at, end)
    return Will(topic, payload, flags >> 3 & 3, bool(flags & 0x20), properties), at


def _decode_connack(body: bytes, version: int) -> Connack:
    flags, at = read_byte(body, 0, len(body))
    code, at = read_byte(body, at, len(body))
    if flags > 1:
        raise malformed("reserved flags of CONNACK are set")
    properties = NO_PROPERTIES
    if version == V5:
        _check_reason(PacketType.CONNACK, code)
        properties, at = decode_properties(body, at, len(body), PacketType.CONNACK)
    elif code < len(RETURN_CODES):
        code = RETURN_CODES[code]
    else:
        raise violation(f"return code {code} in CONNACK, expected 0 to 5")
    _check_end(body, at)
    if flags and code:
        raise violation("a refusing CONNACK that says the session is present")
    return Connack(bool(flags), code, properties)


_Acknowledge = type[Puback] | type[Pubrec] | type[Pubrel] | type[Pubcomp]


def _decode_ack(kind: PacketType, make: _Acknowledge) -> Callable[[bytes, int], Packet]:
    def decode_acknowledgement(body: bytes, version: int) -> Packet:
        packet_id, at = _read_packet_id(body, 0)
        reason, properties = 0, NO_PROPERTIES
        if version == V5 and at < len(body):
            reason, properties, at = _read_outcome(body, at, kind)
        _check_end(body, at)
        return make(packet_id, reason, properties)

    return decode_acknowledgement


def _decode_subscribe(body: bytes, version: int) -> Subscribe:
    packet_id, properties, at = _read_start(body, version, PacketType.SUBSCRIBE)
    filters: list[TopicFilter] = []
    while at < len(body):
        pattern, at = _read_filter(body, at)
        options, at = read_byte(body, at, len(body))
        filters.append(_decode_filter(pattern, options, version))
        _check_count(filters)
    if not filters:
        raise violation("a SUBSCRIBE without topic filter")
    return Subscribe(packet_id, tuple(filters), properties)


def _decode_filter(pattern: str, options: int, version: int) -> TopicFilter:
    if options & (0xC0 if version == V5 else 0xFC):
        raise malformed(f"reserved subscription options are set in {options:08b}")
    qos = options & 3
    if qos == 3:
        raise violation("a subscription with QoS 3")
    no_local, retain_handling = bool(options & 4), options >> 4 & 3
    if retain_handling == 3:
        raise violation("a subscription with retain handling 3")
    if no_local and pattern.startswith(SHARED):
        raise violation("a shared subscription with the no local option")
    return TopicFilter(pattern, qos, no_local, bool(options & 8), retain_handling)


def _decode_suback(body: bytes, version: int) -> Suback:
    packet_id, properties, at = _read_start(body, version, PacketType.SUBACK)
    reasons = tuple(body[at:])
    if not reasons:
        raise violation("a SUBACK without reason code")
    allowed = REASONS[PacketType.SUBACK] if version == V5 else (0, 1, 2, 0x80)
    for reason in reasons:
        if reason not in allowed:
            raise violation(f"reason code 0x{reason:02x} in SUBACK")
    return Suback(packet_id, reasons, properties)


def _decode_unsubscribe(body: bytes, version: int) -> Unsubscribe:
    packet_id, properties, at = _read_start(body, version, PacketType.UNSUBSCRIBE)
    patterns: list[str] = []
    while at < len(body):
        pattern, at = _read_filter(body, at)
        patterns.append(pattern)
        _check_count(patterns)
    if not patterns:
        raise violation("an UNSUBSCRIBE without topic filter")
    return Unsubscribe(packet_id, tuple(patterns), properties)


def _decode_unsuback(body: bytes, version: int) -> Unsuback:
    packet_id, properties, at = _read_start(body, version, PacketType.UNSUBACK)
    if version == V311:
        _check_end(body, at)
        return Unsuback(packet_id)
    reasons = tuple(body[at:])
    if not reasons:
        raise violation("an UNSUBACK without reason code")
    for reason in reasons:
        _check_reason(PacketType.UNSUBACK, reason)
    return Unsuback(packet_id, reasons, properties)


def _decode_pingreq(body: bytes, _: int) -> Pingreq:
    _check_end(body, 0)
    return Pingreq()


def _decode_pingresp(body: bytes, _: int) -> Pingresp:
    _check_end(body, 0)
    return Pingresp()


def _decode_disconnect(body: bytes, version: int) -> Disconnect:
    if not body or version == V311:
        _check_end(body, 0)
        return Disconnect()
    reason, properties, at = _read_outcome(body, 0, PacketType.DISCONNECT)
    _check_end(body, at)
    return Disconnect(reason, properties)


def _decode_auth(body: bytes, _: int) -> Auth:
    if not body:
        return Auth()
    if len(body) == 1:
        raise malformed("an AUTH that ends where its properties were expected")
    reason, properties, at = _read_outcome(body, 0, PacketType.AUTH)
    _check_end(body, at)
    if properties.authentication_method is None:
        raise violation("an AUTH without authentication method")
    return Auth(reason, properties)


def _read_packet_id(body: bytes, at: int) -> tuple[int, int]:
    packet_id, at = read_two_bytes(body, at, len(body))
    if packet_id == 0:
        raise violation("a packet identifier of 0")
    return packet_id, at


def _read_start(body: bytes, version: int, kind: PacketType) -> tuple[int, Properties, int]:
    packet_id, at = _read_packet_id(body, 0)
    if version != V5:
        return packet_id, NO_PROPERTIES, at
    properties, at = decode_properties(body, at, len(body), kind)
    return packet_id, properties, at


def _read_outcome(body: bytes, at: int, kind: PacketType) -> tuple[int, Properties, int]:
    """A reason code, and the properties unless the packet ends before them."""
    reason = body[at]
    at += 1
    _check_reason(kind, reason)
    if at == len(body):
        return reason, NO_PROPERTIES, at
    properties, at = decode_properties(body, at, len(body), kind)
    return reason, properties, at


def _read_filter(body: bytes, at: int) -> tuple[str, int]:
    pattern, at = read_string(body, at, len(body))
    if problem := problem_with_subscription(pattern):
        raise ProtocolError(Reason.TOPIC_FILTER_INVALID, problem)
    return pattern, at


def _check_count(filters: Sized) -> None:
    if len(filters) > MAX_FILTERS:
        raise ProtocolError(
            Reason.QUOTA_EXCEEDED, f"expected at most {MAX_FILTERS} topic filters in a packet"
        )


def _check_topic(topic: str) -> None:
    if problem := problem_with_channel(topic):
        raise ProtocolError(Reason.TOPIC_NAME_INVALID, problem)


def _check_reason(kind: PacketType, reason: int) -> None:
    if reason not in REASONS[kind]:
        raise violation(f"reason code 0x{reason:02x} in {kind.name}")


def _check_end(body: bytes, at: int) -> None:
    if at != len(body):
        raise malformed(f"{len(body) - at} bytes behind the end of the packet")


_WITH_FLAGS: Final = (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)

_DECODERS: Final[dict[PacketType, Callable[[bytes, int], Packet]]] = {
    PacketType.CONNECT: _decode_connect,
    PacketType.CONNACK: _decode_connack,
    PacketType.PUBACK: _decode_ack(PacketType.PUBACK, Puback),
    PacketType.PUBREC: _decode_ack(PacketType.PUBREC, Pubrec),
    PacketType.PUBREL: _decode_ack(PacketType.PUBREL, Pubrel),
    PacketType.PUBCOMP: _decode_ack(PacketType.PUBCOMP, Pubcomp),
    PacketType.SUBSCRIBE: _decode_subscribe,
    PacketType.SUBACK: _decode_suback,
    PacketType.UNSUBSCRIBE: _decode_unsubscribe,
    PacketType.UNSUBACK: _decode_unsuback,
    PacketType.PINGREQ: _decode_pingreq,
    PacketType.PINGRESP: _decode_pingresp,
    PacketType.DISCONNECT: _decode_disconnect,
    PacketType.AUTH: _decode_auth,
}


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


__all__ = ["SHARED", "decode", "encode", "problem_with_subscription"]
