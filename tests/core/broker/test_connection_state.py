"""Each packet in each state of a connection: bytes in, bytes out, as the table says."""

from __future__ import annotations

import sys
from typing import Final

import pytest
from tests.core.broker.dialogue import Peer, Table

from accord.core.broker.connection_state import (
    AUTHENTICATING,
    AWAITING_CONNECT,
    AWAITING_LOGIN,
    BUFFERED,
    CLOSED,
    IGNORED,
    OPEN,
    REFUSALS,
    STATES,
)
from accord.core.broker.handshake import AuthExchange, AuthStep, LoginGate
from accord.core.mqtt.codes import PacketType, Reason
from accord.core.mqtt.packets import (
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
)
from accord.core.mqtt.properties import Properties
from accord.core.router.rights import EVERYTHING

UNKNOWN: Final = Reason.PACKET_IDENTIFIER_NOT_FOUND
METHOD: Final = Properties(authentication_method="Q")
MORE: Final = Auth(Reason.CONTINUE_AUTHENTICATION, METHOD)

# A well-formed packet of each type, and the reply to it where it is accepted by an open connection.
SAMPLES: Final[dict[PacketType, tuple[Packet, list[Packet]]]] = {
    PacketType.CONNECT: (Connect("ada"), []),
    PacketType.CONNACK: (Connack(), []),
    PacketType.PUBLISH: (
        Publish("a", qos=1, packet_id=1),
        [Puback(1, Reason.NO_MATCHING_SUBSCRIBERS)],
    ),
    PacketType.PUBACK: (Puback(1), []),
    PacketType.PUBREC: (Pubrec(1), [Pubrel(1, UNKNOWN)]),
    PacketType.PUBREL: (Pubrel(1), [Pubcomp(1, UNKNOWN)]),
    PacketType.PUBCOMP: (Pubcomp(1), []),
    PacketType.SUBSCRIBE: (Subscribe(1, (TopicFilter("a"),)), [Suback(1, (0,))]),
    PacketType.SUBACK: (Suback(1, (0,)), []),
    PacketType.UNSUBSCRIBE: (
        Unsubscribe(1, ("a",)),
        [Unsuback(1, (Reason.NO_SUBSCRIPTION_EXISTED,))],
    ),
    PacketType.UNSUBACK: (Unsuback(1, (0,)), []),
    PacketType.PINGREQ: (Pingreq(), [Pingresp()]),
    PacketType.PINGRESP: (Pingresp(), []),
    PacketType.DISCONNECT: (Disconnect(), []),
    PacketType.AUTH: (Auth(Reason.REAUTHENTICATE, METHOD), [MORE]),
}


class TwoSteps(AuthExchange):
    def __init__(self) -> None:
        self.is_begun = False

    def step(self, data: bytes) -> AuthStep:
        rights = EVERYTHING if self.is_begun else None
        self.is_begun = True
        return AuthStep(data, rights)


def in_state(state: int) -> Peer:
    """A client of MQTT 5 whose connection is in this state, and has read every reply so far."""
    table = Table(gate=LoginGate({"Q": TwoSteps}))
    if state == AWAITING_CONNECT:
        table.gate = None
    peer = table.open()
    if state == AWAITING_LOGIN:
        peer.send(Connect("ada"))
    elif state != AWAITING_CONNECT:
        peer.send(Connect("ada", properties=METHOD))
        if state != AUTHENTICATING:
            peer.send(MORE)
        if state == CLOSED:
            peer.send(Disconnect())
    peer.hear()
    peer.data = b""
    assert peer.connection.state == state
    return peer


def expect_refusal(peer: Peer, state: int, sentence: str) -> None:
    properties = Properties(reason_string=sentence)
    if state == OPEN:
        peer.expect(Disconnect(Reason.PROTOCOL_ERROR, properties))
    elif state == AWAITING_CONNECT:
        assert peer.data == b"", "the version is not known before CONNECT"
    else:
        peer.expect(Connack(False, Reason.PROTOCOL_ERROR, properties))
    assert (peer.is_closed, peer.connection.reason) == (True, f"protocol error: {sentence}")


@pytest.mark.parametrize("kind", PacketType, ids=lambda kind: kind.name)
@pytest.mark.parametrize("state", range(len(STATES)), ids=lambda state: STATES[state].name)
def test_a_packet_in_a_state(state: int, kind: PacketType) -> None:
    row = STATES[state]
    peer = in_state(state)
    packet, replies = SAMPLES[kind]
    if state == AUTHENTICATING and kind == PacketType.AUTH:
        packet = MORE
    peer.send(packet)
    if REFUSALS[state][kind]:
        expect_refusal(peer, state, REFUSALS[state][kind])
    elif kind in row.accepted:
        if state == OPEN:
            peer.expect(*replies)
            assert peer.is_closed == (kind == PacketType.DISCONNECT)
        else:
            (answer,) = peer.hear()
            assert isinstance(answer, Connack)
            assert (answer.reason, peer.connection.state) == (Reason.SUCCESS, OPEN)
    elif row.others == IGNORED:
        assert (peer.data, peer.connection.reason) == (b"", "by the client")
    else:
        assert row.others == BUFFERED
        assert (peer.data, peer.connection.state) == (b"", state)


@pytest.mark.parametrize("kind", PacketType, ids=lambda kind: kind.name)
def test_a_buffered_packet_is_handled_as_if_it_came_after_the_login(kind: PacketType) -> None:
    buffered, prompt = in_state(AWAITING_LOGIN), in_state(AWAITING_LOGIN)
    packet, _ = SAMPLES[kind]
    buffered.send(packet).admit(EVERYTHING)
    prompt.admit(EVERYTHING)
    buffered.table.turn()
    prompt.send(packet)
    assert buffered.data == prompt.data
    assert buffered.connection.reason == prompt.connection.reason
    assert buffered.connection.state == prompt.connection.state != AWAITING_LOGIN


@pytest.mark.parametrize("state", range(len(STATES)), ids=lambda state: STATES[state].name)
def test_a_type_that_mqtt_reserves_is_refused_or_not_handled(state: int) -> None:
    peer = in_state(state).send_bytes(b"\x00\x00")
    assert peer.is_closed == (state != AWAITING_LOGIN)
    assert (peer.connection.state == CLOSED) == peer.is_closed


@pytest.mark.parametrize("state", range(len(STATES)), ids=lambda state: STATES[state].name)
def test_a_closed_connection_is_in_no_reference_cycle(state: int) -> None:
    peer = in_state(state)
    if state == OPEN:
        peer.subscribe("a")
        peer.publish("a", b"one", 1)
        peer.publish("a", b"two")
    peer.drop()
    table, connection = peer.table, peer.connection
    connection.write = None  # as a driver does
    table.peers.clear()
    if table.gate is not None:
        table.gate.logins.clear()
    del peer
    count = sys.getrefcount(connection)
    assert count == 2, "more than this name and the argument"


def test_only_the_transitions_of_the_table_are_possible() -> None:
    for state, row in enumerate(STATES):
        for other in range(len(STATES)):
            connection = in_state(state).connection
            if other in row.successors:
                connection.change_state(other)
                assert connection.state == other
            else:
                with pytest.raises(AssertionError, match=f"{row.name} to {STATES[other].name}"):
                    connection.change_state(other)
                assert connection.state == state
