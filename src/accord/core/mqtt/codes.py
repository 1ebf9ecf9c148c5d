"""Numeric codes of the MQTT standards, and the error for a peer that violates them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from accord.core.model.errors import AccordError

V311: Final = 4
V5: Final = 5


class PacketType(IntEnum):
    """The upper four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Reason(IntEnum):
    """MQTT 5 reason codes; failures from 0x80 on."""

    SUCCESS = 0
    GRANTED_QOS_1 = 1
    GRANTED_QOS_2 = 2
    DISCONNECT_WITH_WILL = 4
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class ProtocolError(AccordError):
    """A violation by a peer; `reason` goes into the DISCONNECT or CONNACK that closes it."""

    def __init__(self, reason: Reason, problem: str) -> None:
        self.reason = reason
        self.problem = problem
        super().__init__(f"{reason.name.lower().replace('_', ' ')}: {problem}")


def malformed(problem: str) -> ProtocolError:
    return ProtocolError(Reason.MALFORMED_PACKET, problem)


def violation(problem: str) -> ProtocolError:
    return ProtocolError(Reason.PROTOCOL_ERROR, problem)


_PUBLISH_OUTCOMES: Final = frozenset({0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_RELEASE_OUTCOMES: Final = frozenset({0, 0x92})

# Reason codes permitted in each MQTT 5 packet, in either direction.
REASONS: Final[dict[PacketType, frozenset[int]]] = {
    PacketType.CONNACK: frozenset(
        {0, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F}
    ),
    PacketType.PUBACK: _PUBLISH_OUTCOMES,
    PacketType.PUBREC: _PUBLISH_OUTCOMES,
    PacketType.PUBREL: _RELEASE_OUTCOMES,
    PacketType.PUBCOMP: _RELEASE_OUTCOMES,
    PacketType.SUBACK: frozenset({0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}),
    PacketType.UNSUBACK: frozenset({0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}),
    PacketType.DISCONNECT: frozenset(
        {0, 4, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, *range(0x8B, 0x91), *range(0x93, 0xA3)}
    ),
    PacketType.AUTH: frozenset({0, 0x18, 0x19}),
}

# The return codes of a 3.1.1 CONNACK.
RETURN_CODES: Final[tuple[Reason, ...]] = (
    Reason.SUCCESS,
    Reason.UNSUPPORTED_PROTOCOL_VERSION,
    Reason.CLIENT_IDENTIFIER_NOT_VALID,
    Reason.SERVER_UNAVAILABLE,
    Reason.BAD_USER_NAME_OR_PASSWORD,
    Reason.NOT_AUTHORIZED,
)

_NOT_AUTHORIZED: Final = frozenset({Reason.BANNED, Reason.BAD_AUTHENTICATION_METHOD})


def return_code(reason: int) -> int:
    """The 3.1.1 return code nearest to an MQTT 5 reason."""
    for code, known in enumerate(RETURN_CODES):
        if known == reason:
            return code
    return 5 if reason in _NOT_AUTHORIZED else 3
