"""States of an MQTT connection at its server: one table.

`Connection` changes its state, and judges each packet, by this table. docs/ARCHITECTURE.md shows it
("Connection states"), and a test compares the two.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from accord.core.mqtt.codes import PacketType

AWAITING_CONNECT: Final = 0
AWAITING_LOGIN: Final = 1  # the driver checks user name and password
AUTHENTICATING: Final = 2  # the client's next AUTH is expected
OPEN: Final = 3
CLOSED: Final = 4

# Treatment of packets without a refusal.
BUFFERED: Final = "buffered until the login is concluded"
IGNORED: Final = "ignored"

_FROM_SERVERS: Final[tuple[PacketType, ...]] = (
    PacketType.CONNACK,
    PacketType.SUBACK,
    PacketType.UNSUBACK,
    PacketType.PINGRESP,
)
_NOT_FOR_SERVERS: Final = {_FROM_SERVERS: "{} is for clients to receive"}


class ConnectionState(NamedTuple):
    """One row of the table."""

    name: str
    accepted: tuple[PacketType, ...]
    refused: dict[tuple[PacketType, ...], str]  # with this sentence about the packet's name
    others: str  # BUFFERED, IGNORED, or the sentence that refuses them
    successors: tuple[int, ...]

    def refusal(self, kind: int) -> str:
        """The sentence that refuses packets of type `kind`; empty if they are not refused."""
        for kinds, sentence in self.refused.items():
            if kind in kinds:
                return sentence.format(PacketType(kind).name)
        return "" if kind in self.accepted or self.others in (BUFFERED, IGNORED) else self.others


STATES: Final = (
    ConnectionState(
        "AWAITING_CONNECT",
        accepted=(PacketType.CONNECT,),
        refused={},
        others="expected CONNECT first",
        successors=(AWAITING_LOGIN, AUTHENTICATING, OPEN, CLOSED),
    ),
    ConnectionState(
        "AWAITING_LOGIN", accepted=(), refused={}, others=BUFFERED, successors=(OPEN, CLOSED)
    ),
    ConnectionState(
        "AUTHENTICATING",
        accepted=(PacketType.AUTH,),
        refused=_NOT_FOR_SERVERS,
        others="expected AUTH",
        successors=(OPEN, CLOSED),
    ),
    ConnectionState(
        "OPEN",
        accepted=tuple(
            each for each in PacketType if each not in (PacketType.CONNECT, *_FROM_SERVERS)
        ),
        refused={(PacketType.CONNECT,): "a second {}", **_NOT_FOR_SERVERS},
        others="",  # only the reserved type 0, which the decoder refuses
        successors=(CLOSED,),
    ),
    ConnectionState("CLOSED", accepted=(), refused={}, others=IGNORED, successors=()),
)

# By state and packet type, the sentence that refuses a packet, or an empty one.
REFUSALS: Final = tuple(tuple(map(state.refusal, range(16))) for state in STATES)
