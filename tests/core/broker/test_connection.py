from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.broker.dialogue import Peer, Table
from tests.mqtt_strategies import packets

from accord.core.broker.handshake import AuthExchange, AuthStep, LoginGate
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5, V311, ProtocolError, Reason
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
    Will,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.router.limits import Limits
from accord.core.router.rights import EVERYTHING, Rights

VERSIONS: Final = [V311, V5]
SMALL: Final = Limits(packet_bytes=2_000, receive_maximum=2, channel_levels=3)

both = pytest.mark.parametrize("version", VERSIONS, ids=["3.1.1", "5.0"])


# Coming in.


def test_a_client_is_told_what_it_may_do() -> None:
    table = Table(SMALL)
    table.open().send(Connect("ada")).expect(
        Connack(
            properties=Properties(
                receive_maximum=2, maximum_packet_size=2_000, topic_alias_maximum=1_024
            )
        )
    )
    table.open(V311).send(Connect("bob", V311)).expect(Connack())


def test_a_client_without_a_name_gets_one() -> None:
    table = Table()
    (answer,) = table.open().send(Connect("")).hear()
    assert isinstance(answer, Connack)
    assert answer.properties.assigned_client_id == "client-1"
    assert list(table.broker.sessions) == ["client-1"]
    table.open(V311).send(Connect("", V311)).expect(Connack())
    refused = table.open(V311).send(Connect("", V311, clean_start=False))
    refused.expect(Connack(reason=Reason.CLIENT_IDENTIFIER_NOT_VALID))
    assert refused.is_closed


@both
def test_another_protocol_is_told_so_at_its_first_byte(version: int) -> None:
    peer = Table().open(version).send_bytes(b"G")
    assert peer.is_closed
    assert (peer.data, peer.connection.reason) == (b"", "protocol error: expected CONNECT first")


def test_who_does_not_say_connect_in_time_is_sent_away() -> None:
    table = Table()
    silent, slow = table.open(), table.open()
    table.wait(9_999)
    slow.send_bytes(encode(Connect("slow"), V5)[:-1])
    assert [silent.is_closed, slow.is_closed] == [False, False]
    table.wait(1)
    assert [silent.is_closed, slow.is_closed] == [True, True]


def test_who_is_silent_for_longer_than_it_promised_is_sent_away() -> None:
    table = Table()
    ada = table.join("ada", keep_alive_s=10)
    bob = table.join("bob", keep_alive_s=10)
    table.wait(14_000)
    bob.send(Pingreq()).expect(Pingresp())
    table.wait(1_000)
    ada.expect(Disconnect(Reason.KEEP_ALIVE_TIMEOUT))
    table.wait(13_999)
    assert not bob.is_closed
    table.wait(1)
    assert bob.is_closed


def test_a_will_is_looked_at_when_it_is_left() -> None:
    table = Table(Limits(channel_levels=3, will_bytes=10))
    deep = table.open().send(Connect("ada", will=Will("a/b/c/d")))
    large = table.open().send(Connect("ada", will=Will("a", bytes(11))))
    forbidden = [
        table.open().send(Connect("ada", will=Will(topic)))
        for topic in ("$SYS/a", "$accord/expectations", "$accord/advice")
    ]
    reasons = [answer.reason for peer in (deep, large, *forbidden) for answer in connacks(peer)]
    assert reasons[:2] == [Reason.TOPIC_NAME_INVALID, Reason.PACKET_TOO_LARGE]
    assert reasons[2:] == [Reason.NOT_AUTHORIZED] * 3
    assert table.broker.sessions == {}


def test_a_node_that_is_full_says_so() -> None:
    table = Table(Limits(connections=1, sessions=2))
    table.join("ada", expiry_s=60)
    (answer,) = connacks(table.open().send(Connect("bob")))
    assert answer.reason == Reason.SERVER_BUSY
    table = Table(Limits(sessions=1))
    table.join("ada", expiry_s=60).drop()
    (answer,) = connacks(table.open().send(Connect("bob")))
    assert answer.reason == Reason.QUOTA_EXCEEDED


# Waiting for a login.


@both
def test_what_comes_before_the_login_waits_for_it(version: int) -> None:
    gate = LoginGate()
    table = Table(gate=gate)
    peer = table.open(version).send(
        Connect("ada", version, username="ada", password=b"secret"),
        Subscribe(1, (TopicFilter("a"),)),
        Publish("a", b"own"),
    )
    assert peer.hear() == []
    assert gate.logins == [peer.connection]
    peer.send(Pingreq())
    peer.admit(EVERYTHING)
    table.turn()
    answer, *rest = peer.hear()
    assert isinstance(answer, Connack)
    assert rest == [Suback(1, (0,)), Pingresp(), Publish("a", b"own")]
    assert table.hub.counters.bytes_received == sum(
        len(encode(each, version))
        for each in (
            Connect("ada", version, username="ada", password=b"secret"),
            Subscribe(1, (TopicFilter("a"),)),
            Publish("a", b"own"),
            Pingreq(),
        )
    )


@pytest.mark.parametrize(
    ("rights", "is_busy", "reason"),
    [
        (None, False, Reason.BAD_USER_NAME_OR_PASSWORD),
        (None, True, Reason.SERVER_BUSY),
    ],
)
def test_who_is_not_let_in_has_done_nothing(
    rights: Rights | None, is_busy: bool, reason: Reason
) -> None:
    table = Table(gate=LoginGate())
    peer = table.open().send(Connect("ada"), Publish("a", b"x", 1, True, packet_id=1))
    peer.admit(rights, is_busy=is_busy)
    table.turn()
    (answer,) = connacks(peer)
    assert answer.reason == reason
    assert peer.is_closed
    assert (table.broker.sessions, table.broker.retained.messages) == ({}, 0)
    peer.admit(EVERYTHING)
    assert table.broker.sessions == {}


def test_nobody_may_say_much_before_the_login() -> None:
    table = Table(gate=LoginGate())
    peer = table.open().send(Connect("ada"))
    for _ in range(11):
        peer.send(Publish("a", bytes(100_000)))
    (answer,) = connacks(peer)
    assert (answer.reason, peer.is_closed) == (Reason.PACKET_TOO_LARGE, True)


def test_a_login_takes_no_longer_than_a_connect() -> None:
    table = Table(gate=LoginGate())
    peer = table.open().send(Connect("ada"))
    table.wait(10_000)
    assert peer.is_closed
    peer.admit(EVERYTHING)
    assert table.broker.sessions == {}


def test_rights_are_asked_for_channels_and_filters() -> None:
    table = Table(gate=LoginGate())
    peer = table.open().send(Connect("ada", username="ada"))
    rights = Rights(publish=("out/%u/#",), subscribe=("in/+",))
    peer.admit(rights, user="ada")
    peer.send(
        Subscribe(1, (TopicFilter("in/1", 1), TopicFilter("in/#"), TopicFilter("$share/g/in/1"))),
        Publish("out/ada/1", qos=1, packet_id=2),
        Publish("out/bob/1", qos=1, packet_id=3),
        Publish("out/bob/1"),
    )
    _, suback, allowed, refused = peer.hear()
    assert isinstance(suback, Suback)
    assert suback.reasons == (1, Reason.NOT_AUTHORIZED, 0)
    assert allowed == Puback(2, Reason.NO_MATCHING_SUBSCRIBERS)
    assert isinstance(refused, Puback)
    assert refused.reason == Reason.NOT_AUTHORIZED
    assert table.hub.counters.shed_causes.counts == {"not authorized": 2}


@given(data=st.data(), version=st.sampled_from(VERSIONS))
def test_the_login_changes_nothing_of_what_comes_then(data: st.DataObject, version: int) -> None:
    said = data.draw(streams(version, has_mistakes=False))
    stream = b"".join([encode(Connect("ada", version), version), *said])
    chunks = data.draw(cuts_of(stream))
    admitted = data.draw(st.integers(1, len(chunks)))
    gate = LoginGate()
    table = Table(SMALL, gate=gate)
    listeners = listening(table)
    peer = table.open(version)
    for number, chunk in enumerate(chunks, start=1):
        peer.receive(chunk)
        if number >= admitted:
            peer.admit(EVERYTHING)
    table.turn()
    plain = talked(version, [stream])
    assert [each.data for each in (peer, *listeners)] == [each.data for each in plain]
    assert peer.connection.reason == plain[0].connection.reason


# Enhanced authentication.


class Question(AuthExchange):
    """Asks once."""

    def __init__(self) -> None:
        self.is_asked = False

    def step(self, data: bytes) -> AuthStep:
        if not self.is_asked:
            self.is_asked = True
            return AuthStep(b"7 times 6?")
        if data != b"42":
            raise ProtocolError(Reason.NOT_AUTHORIZED, "wrong")
        return AuthStep(b"right", Rights(publish=("%u",)), user="ada")


def auth(reason: Reason, data: bytes | None = None) -> Auth:
    return Auth(reason, Properties(authentication_method="Q", authentication_data=data))


def questioned() -> tuple[Table, Peer]:
    table = Table(gate=LoginGate({"Q": Question}))
    asking = Connect("ada", properties=Properties(authentication_method="Q"))
    peer = table.open().send(asking)
    peer.expect(auth(Reason.CONTINUE_AUTHENTICATION, b"7 times 6?"))
    return table, peer


def test_a_client_is_in_when_the_exchange_says_so() -> None:
    table, peer = questioned()
    peer.send(auth(Reason.CONTINUE_AUTHENTICATION, b"42"))
    (answer,) = connacks(peer)
    assert answer.properties.authentication_data == b"right"
    peer.send(Publish("ada", qos=1, packet_id=1))
    peer.expect(Puback(1, Reason.NO_MATCHING_SUBSCRIBERS))
    assert table.session("ada").is_connected
    peer.send(auth(Reason.REAUTHENTICATE))
    peer.expect(auth(Reason.CONTINUE_AUTHENTICATION, b"7 times 6?"))
    peer.send(auth(Reason.CONTINUE_AUTHENTICATION, b"42")).expect(auth(Reason.SUCCESS, b"right"))
    peer.send(auth(Reason.CONTINUE_AUTHENTICATION, b"42"))
    assert peer.is_closed, "nobody asked"


@pytest.mark.parametrize(
    "packet", [auth(Reason.CONTINUE_AUTHENTICATION, b"43"), auth(Reason.REAUTHENTICATE), Pingreq()]
)
def test_a_client_that_says_something_else_is_not_in(packet: Packet) -> None:
    table, peer = questioned()
    (answer,) = connacks(peer.send(packet))
    assert answer.reason >= Reason.UNSPECIFIED_ERROR
    assert peer.is_closed
    assert table.broker.sessions == {}


def test_a_method_that_nobody_knows() -> None:
    for gate in (None, LoginGate(), LoginGate({"Q": Question})):
        asking = Connect("ada", properties=Properties(authentication_method="R"))
        (answer,) = connacks(Table(gate=gate).open().send(asking))
        assert answer.reason == Reason.BAD_AUTHENTICATION_METHOD


# Going.


@both
def test_a_second_connect_ends_the_connection(version: int) -> None:
    peer = Table().join("ada", version).send(Connect("ada", version))
    assert peer.is_closed
    assert peer.connection.reason == "protocol error: a second CONNECT"


@both
def test_what_comes_after_the_end_is_not_heard(version: int) -> None:
    table = Table()
    first = table.join("ada", version)
    table.join("ada", version)
    assert first.is_closed
    first.hear()
    some: list[Packet] = [Pingreq(), Publish("a"), Puback(1), Subscribe(1, (TopicFilter("a"),))]
    first.send(*some).send(Disconnect()).expect()
    assert table.session("ada").is_connected
    assert table.hub.counters.publishes_received == [0, 0, 0]


@pytest.mark.parametrize("last", [Disconnect(), Connect("ada"), None])
def test_nothing_is_said_to_a_client_that_was_not_welcomed(last: Packet | None) -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a", qos=1).drop()
    table.join("bob").publish("a", b"for later", 1)
    table.commit()
    peer = table.connect("ada", clean=False, expiry_s=60)
    peer.send(Pingreq(), Subscribe(1, (TopicFilter("b"),)))
    if last is None:
        table.connect("ada", clean=False, expiry_s=60)
    else:
        peer.send(last)
    assert not table.session("ada").unacknowledged[1].was_sent
    table.commit()
    assert peer.is_closed
    assert peer.data == b""


def test_a_client_that_says_goodbye_still_gets_its_messages() -> None:
    table = Table()
    peer = table.join("ada")
    peer.send(Subscribe(1, (TopicFilter("a"),)), Publish("a", b"own"), Disconnect())
    peer.expect(Suback(1, (0,)), Publish("a", b"own"))
    assert (peer.is_closed, peer.connection.reason) == (True, "by the client")


def test_an_expiry_of_the_session_can_be_changed_but_not_begun_at_the_end() -> None:
    table = Table()
    goodbye = Disconnect(properties=Properties(session_expiry_s=5))
    table.join("ada").send(goodbye).expect(
        Disconnect(
            Reason.PROTOCOL_ERROR,
            Properties(reason_string="a session expiry in DISCONNECT and none in CONNECT"),
        )
    )
    assert table.join("ada", expiry_s=60).send(goodbye).data
    assert table.session("ada").ends_ms == table.now_ms + 5_000
    never = Disconnect(properties=Properties(session_expiry_s=0))
    table.join("ada", clean=False, expiry_s=60, is_present=True).send(never)
    assert table.broker.sessions == {}


# Publishing.


@pytest.mark.parametrize("receiver", VERSIONS)
@both
def test_messages_are_forwarded_between_the_versions(version: int, receiver: int) -> None:
    table = Table()
    listener = table.join("ada", receiver).subscribe("a/+")
    sender = table.join("bob", version)
    some: list[Packet] = [
        Publish(f"a/{number % 3}", bytes([number]) * size)
        for number, size in enumerate([1, 2, 119, 120, 121, 122, 123, 124, 0, 16_376, 16_377, 5])
    ]
    sender.send(*some)
    listener.expect(*some)
    sender.send(*some)
    listener.expect(*some)
    assert table.broker.router.fan_out("a/1").has_runs
    assert table.hub.counters.publishes_sent == [2 * len(some), 0, 0]


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [
        (b"\x30\xff\xff\xff\xff\x01", Reason.MALFORMED_PACKET),
        (b"\x30\x80\x00", Reason.MALFORMED_PACKET),
        (b"\x30\xff\x7f", Reason.PACKET_TOO_LARGE),
        (b"\x36\x05\x00\x01a\x00\x01", Reason.MALFORMED_PACKET),
        (b"\x38\x04\x00\x01a\x00", Reason.MALFORMED_PACKET),
        (b"\x30\x01\x00", Reason.MALFORMED_PACKET),
        (b"\x30\x03\x00\x02a", Reason.MALFORMED_PACKET),
        (b"\x32\x04\x00\x01a\x00", Reason.MALFORMED_PACKET),
        (b"\x32\x06\x00\x01a\x00\x00\x00", Reason.PROTOCOL_ERROR),
        (b"\x30\x04\x00\x01\xff\x00", Reason.MALFORMED_PACKET),
        (b"\x30\x04\x00\x01+\x00", Reason.TOPIC_NAME_INVALID),
        (b"\x30\x0a\x00\x07a/b/c/d\x00", Reason.TOPIC_NAME_INVALID),
        (b"\x30\x03\x00\x01a", Reason.MALFORMED_PACKET),
        (b"\x20\x02\x00\x00", Reason.PROTOCOL_ERROR),
        (b"\x00\x00", Reason.MALFORMED_PACKET),
        (b"\xc1\x00", Reason.MALFORMED_PACKET),
    ],
)
def test_what_was_said_before_a_mistake_counts(mistake: bytes, reason: Reason) -> None:
    table = Table(SMALL)
    listener = table.join("ada").subscribe("a")
    sender = table.join("bob")
    sender.send(Publish("a", b"0"))
    run = b"".join(encode(Publish("a", bytes([number])), V5) for number in (1, 2, 3))
    sender.send_bytes(run + mistake)
    assert [each.payload for each in publishes(listener)] == [b"0", b"\1", b"\2", b"\3"]
    (last,) = sender.hear()
    assert isinstance(last, Disconnect)
    assert last.reason == reason
    assert sender.is_closed


def test_a_channel_with_a_very_long_name_finds_its_new_subscribers() -> None:
    table = Table()
    name = "long" * 300
    sender, listener = table.join("ada"), table.join("bob")
    sender.publish(name, b"nobody")
    listener.subscribe(name)
    sender.publish(name, b"somebody")
    listener.expect(Publish(name, b"somebody"))


def test_an_alias_stands_for_the_topic_that_it_was_last_used_with() -> None:
    table = Table()
    listener, sender = table.join("ada").subscribe("#"), table.join("bob")
    first = Properties(topic_alias=1)
    for topic, payload in [("a", b"1"), ("", b"2"), ("b", b"3"), ("", b"4")]:
        sender.publish(topic, payload, properties=first)
    listener.expect(Publish("a", b"1"), Publish("a", b"2"), Publish("b", b"3"), Publish("b", b"4"))
    sender.publish("", b"5", properties=Properties(topic_alias=2))
    assert sender.connection.reason == "protocol error: topic alias 2 is not known"


def test_a_client_that_asked_for_aliases_gets_them() -> None:
    table = Table()
    listener = table.join("ada", properties=Properties(topic_alias_maximum=1)).subscribe("#")
    sender = table.join("bob", V311)
    for topic in ("a", "b", "a"):
        sender.publish(topic)
    listener.expect(
        Publish("a", properties=Properties(topic_alias=1)),
        Publish("b"),
        Publish("", properties=Properties(topic_alias=1)),
    )


def test_more_than_was_agreed_on_may_not_wait_for_an_answer() -> None:
    table = Table(SMALL, is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a", qos=1)
    sender = table.join("bob")
    for number in (1, 2, 3):
        sender.send(Publish("a", qos=1, packet_id=number))
    (last,) = sender.hear()
    assert isinstance(last, Disconnect)
    assert last.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
    sender = table.join("bob")
    for number in (1, 2, 3):
        sender.send(Publish("a", qos=1, packet_id=number))
        table.commit()
    sender.expect(Puback(1), Puback(2), Puback(3))


@both
def test_a_disk_that_takes_no_more_makes_the_node_refuse(version: int) -> None:
    table = Table(is_durable=True, kept=["kept"])
    listener = table.join("ada").subscribe("#")
    sender = table.join("bob", version)
    table.hub.overload_cause = "the disk is full"
    sender.publish("a", b"passes")
    sender.publish("kept", b"does not")
    sender.publish("a", b"does not", 1)
    listener.expect(Publish("a", b"passes"))
    assert sender.is_closed is (version == V311), "3.1.1 has no way to say no"
    if version == V5:
        refusal = Properties(reason_string="the disk is full")
        sender.expect(Puback(1, Reason.QUOTA_EXCEEDED, refusal))
    assert table.hub.counters.shed_causes.counts == {"journal overloaded": 2}


def test_bad_attributes_match_no_predicate_and_are_refused_where_they_would_be_kept() -> None:
    table = Table(kept=["kept"])
    where = Properties(user=(("where", "n > 1"),))
    table.join("ada").subscribe("a", properties=where)
    plain = table.join("eve").subscribe("a")
    plain.hear()
    sender = table.join("bob")
    bad = Properties(user=(("metadata", "<open>"),))
    sender.publish("a", qos=1, properties=bad)
    sender.expect(Puback(1))
    plain.expect(Publish("a", properties=bad))
    sender.publish("kept", qos=1, properties=bad)
    (answer,) = sender.hear()
    assert isinstance(answer, Puback)
    assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
    assert "metadata" in (answer.properties.reason_string or "")


def test_a_session_belongs_to_the_user_who_opened_it() -> None:
    table = Table(gate=LoginGate())
    rights = Rights(publish=("#",), subscribe=("#",))
    own = table.open().send(Connect("ctl", properties=Properties(session_expiry_s=60)))
    own.admit(rights, user="ada")
    table.turn()
    own.subscribe("secret/#", qos=1)
    thief = table.open().send(Connect("ctl", clean_start=False))
    thief.admit(rights, user="mallory")
    table.turn()
    (refused,) = thief.hear()
    assert isinstance(refused, Connack)
    assert refused.reason == Reason.CLIENT_IDENTIFIER_NOT_VALID
    assert not own.is_closed
    again = table.open().send(Connect("ctl", clean_start=False))
    again.admit(Rights(publish=("#",)), user="ada")
    table.turn()
    (welcome,) = again.hear()
    assert isinstance(welcome, Connack)
    assert welcome.session_present
    assert table.broker.sessions["ctl"].subscriptions == {}, "the right to it is gone"


def test_a_client_s_name_has_a_length() -> None:
    table = Table(Limits(client_id_bytes=23))
    peer = table.open().send(Connect("x" * 24))
    (refused,) = peer.hear()
    assert isinstance(refused, Connack)
    assert refused.reason == Reason.CLIENT_IDENTIFIER_NOT_VALID


def test_problems_are_explained_as_far_as_the_client_wants() -> None:
    table = Table()
    curt = Properties(request_problem_information=False)
    small = Properties(maximum_packet_size=30)
    for properties in (curt, small):
        peer = table.join("ada", properties=properties)
        peer.send(Subscribe(1, (TopicFilter("a"),), Properties(user=(("where", "n >"),))))
        peer.expect(Suback(1, (Reason.IMPLEMENTATION_SPECIFIC_ERROR,)))


def test_a_new_predicate_leaves_the_rest_for_later() -> None:
    table = Table()
    ada, bob = table.join("ada"), table.join("bob").subscribe("a")

    def read(data: bytes) -> None:
        ada.connection.receive(data, now_ms=table.now_ms)

    where = Properties(user=(("where", "n > 1"),))
    dear = encode(Subscribe(1, (TopicFilter("b"),), where), V5)
    read(dear + encode(Publish("a", b"first"), V5))
    assert [ada.connection.has_rest, ada.connection.wants_data()] == [True, False]
    read(encode(Publish("a", b"second"), V5))
    assert not table.session("bob").has_waiting()
    ada.connection.resume(now_ms=table.now_ms)
    assert [ada.connection.has_rest, ada.connection.wants_data()] == [False, True]
    read(dear + encode(Pingreq(), V5))
    assert not ada.connection.has_rest, "it is known by now"
    table.turn()
    ada.expect(Suback(1, (0,)), Suback(1, (0,)), Pingresp())
    bob.expect(Publish("a", b"first"), Publish("a", b"second"))
    read(encode(Subscribe(1, (TopicFilter("b"),), Properties(user=(("where", "n > 2"),))), V5))
    assert not ada.connection.has_rest, "there is none"


# Answers that wait for the disk.


def test_an_answer_waits_for_the_disk_and_those_behind_it_for_the_answer() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a", qos=1)
    sender = table.join("bob")
    sender.send(Publish("nobody", qos=1, packet_id=1))
    sender.expect(Puback(1, Reason.NO_MATCHING_SUBSCRIBERS))
    sender.send(Publish("a", qos=1, packet_id=2), Publish("nobody", qos=1, packet_id=3), Pingreq())
    sender.expect(Pingresp())
    table.commit()
    sender.expect(Puback(2), Puback(3, Reason.NO_MATCHING_SUBSCRIBERS))


def test_answers_are_not_held_for_longer_after_a_pubrel_was() -> None:
    table = Table(is_durable=True)
    peer = table.join("ada", expiry_s=60).subscribe("a", qos=2)
    peer.send(Publish("a", b"own", 2, packet_id=1))
    table.commit()
    peer.expect(Pubrec(1), Publish("a", b"own", 2, packet_id=1))
    peer.send(Pubrec(1)).expect()
    table.commit()
    peer.expect(Pubrel(1))
    peer.send(Pubcomp(1), Pubrel(1))
    table.commit()
    peer.expect(Pubcomp(1))
    peer.send(Publish("nobody", qos=1, packet_id=2))
    peer.expect(Puback(2, Reason.NO_MATCHING_SUBSCRIBERS))


REQUESTS: Final = st.sampled_from(["kept", "lost", "kept 2", "lost 2", "subscribe", "unsubscribe"])


@given(
    steps=st.lists(REQUESTS | st.integers(0, 5), max_size=25),
    version=st.sampled_from(VERSIONS),
    is_staying=st.booleans(),
)
def test_held_answers_keep_their_order(
    steps: list[str | int], version: int, is_staying: bool
) -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("kept", qos=2)
    sender = table.join("bob", version, clean=not is_staying, expiry_s=60 * is_staying)
    asked: list[tuple[type[Packet], int]] = []
    due: list[int] = []  # the position that each answer has to wait for
    heard: list[tuple[type[Packet], int]] = []
    for packet_id, step in enumerate(steps, start=1):
        if isinstance(step, int):
            later = [at for at, _ in table.turns if at > table.hub.committed]
            table.commit(later[min(step, len(later) - 1)] if later else None)
        else:
            before = table.hub.appended
            packet, answer = request(step, packet_id)
            sender.send(packet)
            asked.append((answer, packet_id))
            due.append(table.hub.appended if table.hub.appended > before else 0)
        heard += answers(sender)
        assert heard == asked[: len(heard)]
        assert all(position <= table.hub.committed for position in due[: len(heard)])
        waiting = due[len(heard) :]
        assert not waiting or waiting[0] > table.hub.committed, "nothing waits for longer"
    table.commit()
    assert heard + answers(sender) == asked


def request(kind: str, packet_id: int) -> tuple[Packet, type[Packet]]:
    if kind == "subscribe":
        return Subscribe(packet_id, (TopicFilter("b", 1),)), Suback
    if kind == "unsubscribe":
        return Unsubscribe(packet_id, ("b",)), Unsuback
    topic, _, twice = kind.partition(" ")
    return Publish(topic, qos=2 if twice else 1, packet_id=packet_id), Pubrec if twice else Puback


def answers(peer: Peer) -> list[tuple[type[Packet], int]]:
    return [
        (type(each), each.packet_id)
        for each in peer.hear()
        if isinstance(each, Puback | Pubrec | Suback | Unsuback)
    ]


# The same bytes, however they come.


TOPICS: Final = st.sampled_from(["a", "b", "b/c", "d", "e", "nobody"])
PAYLOADS: Final = st.binary(max_size=8) | st.integers(110, 130).map(bytes)
IDS: Final = st.integers(1, 4)


def streams(version: int, *, has_mistakes: bool = True) -> st.SearchStrategy[list[bytes]]:
    """What one client says after its CONNECT, mostly plain messages."""
    plain = st.builds(Publish, TOPICS, PAYLOADS)
    some: list[st.SearchStrategy[Packet]] = [
        plain,
        plain,
        plain,
        st.builds(Publish, TOPICS, PAYLOADS, retain=st.booleans()),
        st.builds(Publish, TOPICS, PAYLOADS, st.integers(1, 2), packet_id=IDS),
        st.builds(Puback, IDS) | st.builds(Pubrec, IDS) | st.builds(Pubcomp, IDS),
        st.builds(Pubrel, IDS),
        st.builds(Subscribe, IDS, TOPICS.map(lambda topic: (TopicFilter(topic),))),
        st.builds(Unsubscribe, IDS, TOPICS.map(lambda topic: (topic,))),
        st.just(Pingreq()),
    ]
    if version == V5:
        user = st.just(Properties(user=(("n", "1"),)))
        alias = st.builds(Properties, topic_alias=st.integers(1, 2))
        where = st.sampled_from(["n = 1", "n > 1", "n >"]).map(
            lambda text: Properties(user=(("where", text),))
        )
        some += [
            st.builds(Subscribe, IDS, TOPICS.map(lambda topic: (TopicFilter(topic),)), where),
            st.builds(Publish, TOPICS, PAYLOADS, properties=user),
            st.builds(Publish, TOPICS | st.just(""), PAYLOADS, properties=alias),
        ]
    frames = st.lists(st.one_of(some).map(lambda packet: encode(packet, version)), max_size=15)
    mistakes = [b"\x30\x80\x00", b"\x30\xff\x7f", b"\xf0\x00"] if has_mistakes else []
    last = st.sampled_from([b"", b"", encode(Disconnect(), version), *mistakes])
    return st.tuples(frames, last).map(lambda both: [*both[0], both[1]])


def cuts_of(stream: bytes) -> st.SearchStrategy[list[bytes]]:
    """`stream` in pieces."""
    return st.lists(st.integers(0, len(stream)), max_size=12).map(
        lambda cuts: [
            stream[start:end]
            for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(stream)], strict=True)
        ]
    )


def listening(table: Table) -> list[Peer]:
    """Listeners that share some of the channels."""
    return [
        table.join("plain 5").subscribe("a", "b/+", "d", qos=2),
        table.join("plain 3.1.1", V311).subscribe("b/#", "a", qos=2),
        table.join("another").subscribe("e", qos=2),
        table.join("choosy").subscribe(
            "d", qos=1, properties=Properties(subscription_identifiers=(7,))
        ),
    ]


def talked(version: int, chunks: Sequence[bytes], *, has_turns: bool = False) -> list[Peer]:
    """The client and the listeners after all of `chunks`."""
    table = Table(SMALL)
    listeners = listening(table)
    peer = table.open(version)
    for chunk in chunks:
        peer.receive(chunk)
        if has_turns:
            table.turn()
            table.check_invariants()
    table.turn()
    table.check_invariants()
    return [peer, *listeners]


@settings(max_examples=200)
@given(data=st.data(), version=st.sampled_from(VERSIONS))
def test_a_stream_can_be_cut_anywhere(data: st.DataObject, version: int) -> None:
    said = data.draw(streams(version))
    stream = b"".join([encode(Connect("ada", version), version), *said])
    whole = talked(version, [stream])
    chunks = data.draw(cuts_of(stream))
    cut = talked(version, chunks)
    assert [peer.data for peer in cut] == [peer.data for peer in whole]
    # With answers in between, what is tracked may go first, and what a client published to
    # itself arrives before its connection ends for a mistake.
    with_turns = talked(version, chunks, has_turns=True)
    is_ended = ":" in whole[0].connection.reason
    for one, other in zip(with_turns, whole, strict=True):
        is_own = one is with_turns[0] and is_ended
        assert by_kind(one, is_own=is_own) == by_kind(other, is_own=is_own)
    for each in (cut[0], with_turns[0]):
        assert each.connection.reason == whole[0].connection.reason
        assert each.is_closed == whole[0].is_closed


def by_kind(peer: Peer, *, is_own: bool) -> dict[tuple[str, int], list[Packet]]:
    kinds: dict[tuple[str, int], list[Packet]] = {}
    for packet in peer.hear():
        if is_own and isinstance(packet, Publish):
            continue
        qos = packet.qos if isinstance(packet, Publish) else -1
        kinds.setdefault((type(packet).__name__, qos), []).append(packet)
    return kinds


@settings(max_examples=200)
@given(data=st.data(), version=st.sampled_from(VERSIONS), warm=st.sets(TOPICS))
def test_a_run_delivers_what_single_messages_would(
    data: st.DataObject, version: int, warm: set[str]
) -> None:
    properties = [NO_PROPERTIES] * 3
    if version == V5:
        properties += [Properties(user=(("n", "1"),)), Properties(message_expiry_s=9)]
    message = st.builds(
        Publish,
        TOPICS,
        PAYLOADS,
        retain=st.sampled_from([False, False, True]),
        properties=st.sampled_from(properties),
    )
    some = data.draw(st.lists(message, max_size=30))
    run, single = Table(), Table()
    run_listeners, single_listeners = listening(run), listening(single)
    first = [Publish(topic, b"first") for topic in sorted(warm)]
    sender = run.join("sender", version).send(*first)
    sender.send(*some)
    for packet in [*first, *some]:
        # A new connection has no route in mind, so that it takes each message apart.
        single.join("sender", version).send(packet).drop()
    for fast, slow in zip(run_listeners, single_listeners, strict=True):
        assert fast.data == slow.data
        assert fast.hear() == slow.hear()
    mine, theirs = run.hub.counters, single.hub.counters
    assert mine.publishes_received == theirs.publishes_received
    assert mine.publish_bytes_received == theirs.publish_bytes_received
    assert (mine.matched, mine.unmatched) == (theirs.matched, theirs.unmatched)
    assert mine.publishes_sent == theirs.publishes_sent
    assert mine.publish_bytes_sent == theirs.publish_bytes_sent
    assert run.session("sender").published == len(first) + len(some)


@given(chunks=st.lists(st.binary(max_size=40), max_size=6))
def test_arbitrary_bytes_from_a_stranger(chunks: list[bytes]) -> None:
    table = Table(SMALL)
    stranger = table.open()
    for chunk in chunks:
        stranger.send_bytes(chunk)
    assert stranger.is_closed or stranger.connection.state in (0, 3)
    check_still_works(table)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), version=st.sampled_from(VERSIONS), is_durable=st.booleans())
def test_arbitrary_and_damaged_packets_from_a_client(
    data: st.DataObject, version: int, is_durable: bool
) -> None:
    table = Table(SMALL, is_durable=is_durable)
    client = table.join("client", version, clean=False, expiry_s=60)
    frames = st.one_of(
        packets(version).map(lambda packet: encode(packet, version)),
        st.sampled_from(streams_of_bytes(version)),
        st.binary(max_size=6),
    )
    for frame in data.draw(st.lists(frames, max_size=8)):
        damaged = bytearray(frame)
        for at in data.draw(st.lists(st.integers(0, max(len(frame) - 1, 0)), max_size=2)):
            damaged[at:at] = data.draw(st.binary(max_size=1))
            if at < len(damaged) and data.draw(st.booleans()):
                damaged[at] = data.draw(st.integers(0, 255))
        client.send_bytes(bytes(damaged))
        if data.draw(st.booleans()):
            table.commit()
        table.check_invariants()
    assert client.is_closed or client.connection.state == 3
    check_still_works(table)


def streams_of_bytes(version: int) -> list[bytes]:
    some: list[Packet] = [
        Publish("a", b"x", 2, packet_id=1),
        Pubrec(1),
        Pubrel(1),
        Pubcomp(1),
        Puback(1),
        Subscribe(1, (TopicFilter("#", 2),)),
        Unsubscribe(1, ("#",)),
        Disconnect(),
    ]
    return [encode(packet, version) for packet in some]


def check_still_works(table: Table) -> None:
    """Whatever one client did, others do not notice."""
    listener, sender = table.join("listener").subscribe("still/works"), table.join("sender")
    sender.publish("still/works", b"yes")
    listener.expect(Publish("still/works", b"yes"))
    table.check_invariants()


def connacks(peer: Peer) -> list[Connack]:
    some = peer.hear()
    assert all(isinstance(each, Connack) for each in some), some
    return [each for each in some if isinstance(each, Connack)]


def publishes(peer: Peer) -> list[Publish]:
    return [each for each in peer.hear() if isinstance(each, Publish)]
