from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.client.errors import (
    AlreadySubscribedError,
    ConnectionFailedError,
    ExpiredError,
    RefusedError,
    SessionClosedError,
)
from accord.client.inbox import ReceivedMessage
from accord.client.machine import ClientMachine, Phase
from accord.client.machine_io import (
    Arrived,
    Close,
    CloseRequested,
    Connected,
    Consumed,
    Ended,
    Input,
    Lost,
    Opened,
    Output,
    PublishRequested,
    Received,
    Send,
    SessionOptions,
    Settled,
    SubscribeRequested,
    UnsubscribeRequested,
    Withdrawn,
)
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, Reason
from accord.core.mqtt.packets import (
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
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.mqtt.wire import Framer

T = TypeVar("T")


class Talk:
    """A machine, and the server it talks to: played by the test."""

    def __init__(self, **options: object) -> None:
        self.machine = ClientMachine(SessionOptions(**options))  # type: ignore[arg-type]
        self.now_ms = 0
        self.news: list[Output] = []
        self._framer = Framer(1_000_000)
        self._sent: list[Packet] = []

    def happened(self, *inputs: Input) -> list[Packet]:
        """What the client sends then; the rest is in `news`."""
        for each in inputs:
            self._note(self.machine.handle(each, now_ms=self.now_ms))
        return self._take()

    def said(self, *packets: Packet) -> list[Packet]:
        return self.happened(Received(b"".join(encode(packet, V5) for packet in packets)))

    def connected(
        self, *, is_resumed: bool = False, properties: Properties = NO_PROPERTIES
    ) -> list[Packet]:
        [connect] = self.happened(Opened())
        assert isinstance(connect, Connect)
        return self.said(Connack(is_resumed, 0, properties))

    def passed(self, milliseconds: int) -> list[Packet]:
        self.now_ms += milliseconds
        self._note(self.machine.advance(now_ms=self.now_ms))
        return self._take()

    def subscribed(self, pattern: str = "a/#", identifier: int = 1, **fields: int) -> None:
        asked = SubscribeRequested(
            0, identifier, TopicFilter(pattern, 1), (), fields.get("queue", 10)
        )
        [packet] = self.happened(asked)
        assert isinstance(packet, Subscribe)
        self.said(Suback(packet.packet_id, (1,)))
        self.news.clear()

    def heard(self, kind: type[T]) -> list[T]:
        found: list[T] = [each for each in self.news if isinstance(each, kind)]
        self.news.clear()
        return found

    def reads(self) -> bool:
        return self.machine.wants_data

    def is_in(self, phase: Phase) -> bool:
        return self.machine.phase is phase

    def taken(self, identifier: int = 1) -> ReceivedMessage:
        delivery = self.machine.take(identifier)
        assert delivery is not None
        return delivery

    def consumed(self, identifier: int = 1) -> list[Packet]:
        return self.happened(Consumed(self.taken(identifier)))

    def _note(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                frames = self._framer.feed(output.data)
                self._sent += [decode(first, body, V5) for first, body in frames]
            else:
                self.news.append(output)

    def _take(self) -> list[Packet]:
        sent, self._sent = self._sent, []
        return sent


def asked(token: int, qos: int = 1, deadline_ms: int | None = None, **fields: object) -> Input:
    message = Publish("a/b", b"x", qos, **fields)  # type: ignore[arg-type]
    return PublishRequested(token, message, deadline_ms)


def incoming(packet_id: int, *, qos: int = 1, dup: bool = False, identifier: int = 1) -> Publish:
    properties = Properties(subscription_identifiers=(identifier,))
    return Publish("a/b", b"%d" % packet_id, qos, False, dup, packet_id if qos else 0, properties)


# ---------------------------------------------------------------------------------- the connection


def test_a_connection_starts_with_what_the_options_say() -> None:
    talk = Talk(client_id="me", username="u", password=b"p", keep_alive_s=7, session_expiry_s=9)
    [connect] = talk.happened(Opened())
    assert isinstance(connect, Connect)
    assert (connect.client_id, connect.username, connect.password) == ("me", "u", b"p")
    assert (connect.clean_start, connect.keep_alive_s) == (True, 7)
    assert connect.properties.session_expiry_s == 9
    assert talk.said(Connack()) == []
    assert talk.heard(Connected) == [Connected(False, NO_PROPERTIES)]


def test_the_next_connection_resumes_under_the_identifier_the_server_chose() -> None:
    talk = Talk()
    talk.connected(properties=Properties(assigned_client_id="auto-1"))
    [connect] = talk.happened(Lost(), Opened())
    assert isinstance(connect, Connect)
    assert (connect.client_id, connect.clean_start) == ("auto-1", False)


@pytest.mark.parametrize(
    ("reason", "is_final"),
    [
        (Reason.BAD_USER_NAME_OR_PASSWORD, True),
        (Reason.NOT_AUTHORIZED, True),
        (Reason.SERVER_BUSY, False),
        (Reason.SERVER_UNAVAILABLE, False),
    ],
)
def test_a_refusal_says_why_and_whether_to_come_back(reason: Reason, is_final: bool) -> None:
    talk = Talk()
    talk.happened(Opened())
    talk.said(Connack(False, reason, Properties(reason_string="because")))
    [close] = talk.heard(Close)
    assert close.is_final == is_final
    assert isinstance(close.error, RefusedError)
    assert (close.error.reason, close.error.explanation) == (reason, "because")


def test_being_replaced_is_final_and_a_restart_is_not() -> None:
    talk = Talk()
    talk.connected()
    talk.news.clear()
    talk.said(Disconnect(Reason.SERVER_SHUTTING_DOWN))
    assert [close.is_final for close in talk.heard(Close)] == [False]
    talk.connected()
    talk.news.clear()
    talk.said(Disconnect(Reason.SESSION_TAKEN_OVER))
    assert [close.is_final for close in talk.heard(Close)] == [True]
    assert talk.is_in(Phase.CLOSED)


def test_a_server_that_moved_says_where() -> None:
    talk = Talk()
    talk.connected()
    talk.news.clear()
    talk.said(Disconnect(Reason.SERVER_MOVED, Properties(server_reference="other:1883")))
    [close] = talk.heard(Close)
    assert "use other:1883" in str(close.error)


def test_silence_after_connect_ends_the_attempt() -> None:
    talk = Talk(connect_timeout_ms=500)
    talk.happened(Opened())
    assert talk.machine.next_deadline_ms() == 500
    talk.passed(499)
    assert talk.news == []
    talk.passed(1)
    [close] = talk.heard(Close)
    assert isinstance(close.error, ConnectionFailedError)
    assert not close.is_final


def test_an_idle_connection_is_pinged_and_a_dead_one_dropped() -> None:
    talk = Talk(keep_alive_s=10)
    talk.connected()
    talk.news.clear()
    assert talk.passed(9_999) == []
    assert talk.passed(1) == [Pingreq()]
    talk.said(Pingresp())
    assert talk.passed(10_000) == [Pingreq()]
    assert talk.passed(4_999) == []
    talk.passed(1)
    [close] = talk.heard(Close)
    assert "ping" in str(close.error)


def test_a_client_that_only_sends_still_finds_out_that_the_server_is_dead() -> None:
    talk = Talk(keep_alive_s=10)
    talk.connected()
    pings: list[Packet] = []
    for token in range(1, 11):
        talk.happened(asked(token, qos=0))
        pings += talk.passed(1_000)
    assert pings == [Pingreq()]


def test_the_server_may_choose_the_keep_alive_or_none() -> None:
    talk = Talk(keep_alive_s=10)
    talk.connected(properties=Properties(server_keep_alive_s=3))
    assert talk.machine.next_deadline_ms() == 3_000
    talk = Talk(keep_alive_s=10)
    talk.connected(properties=Properties(server_keep_alive_s=0))
    assert talk.machine.next_deadline_ms() is None


def test_a_blocked_reader_pings_but_does_not_blame_the_server() -> None:
    talk = Talk(keep_alive_s=10)
    talk.connected()
    talk.subscribed(queue=1)
    talk.said(incoming(0, qos=0), incoming(0, qos=0))
    assert not talk.reads()
    talk.news.clear()
    for wait_ms in (10_000, 5_000, 5_000):
        assert talk.passed(wait_ms) == [Pingreq()]
    talk.now_ms += 4_999
    talk.consumed()
    talk.consumed()
    assert talk.reads()
    talk.passed(1)
    assert talk.heard(Close) == []


@pytest.mark.parametrize(
    "packet",
    [Connect(), Pingreq(), Subscribe(1, (TopicFilter("a"),)), Unsubscribe(1, ("a",)), Connack()],
)
def test_what_a_server_must_not_send_ends_the_connection(packet: Packet) -> None:
    talk = Talk()
    talk.connected()
    talk.news.clear()
    assert talk.said(packet) == [Disconnect(Reason.PROTOCOL_ERROR)]
    [close] = talk.heard(Close)
    assert not close.is_final


def test_nonsense_ends_the_connection() -> None:
    talk = Talk()
    talk.connected()
    talk.news.clear()
    assert talk.happened(Received(b"\x30\xff\xff\xff\xff\x01")) == [
        Disconnect(Reason.MALFORMED_PACKET)
    ]
    assert len(talk.heard(Close)) == 1


def test_anything_before_connack_ends_the_connection() -> None:
    talk = Talk()
    talk.happened(Opened())
    assert talk.said(Pingresp()) == []
    assert len(talk.heard(Close)) == 1


def test_goodbye_lets_the_server_forget_or_keep_the_session() -> None:
    talk = Talk()
    talk.connected()
    assert talk.happened(CloseRequested(is_discarded=True)) == [
        Disconnect(0, Properties(session_expiry_s=0))
    ]
    talk = Talk(client_id="me")
    talk.connected()
    talk.news.clear()
    assert talk.happened(CloseRequested(is_discarded=False)) == [Disconnect()]
    [close] = talk.heard(Close)
    assert isinstance(close.error, SessionClosedError)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="keep_alive_s: expected 0 to 65535, got -1"):
        SessionOptions(keep_alive_s=-1)


# -------------------------------------------------------------------------------------- publishing


def test_each_qos_is_settled_by_its_own_packets() -> None:
    talk = Talk()
    talk.connected()
    talk.news.clear()
    assert talk.happened(asked(10, 0)) == [Publish("a/b", b"x")]
    assert talk.heard(Settled) == [Settled(10)]
    assert talk.happened(asked(11, 1)) == [Publish("a/b", b"x", 1, packet_id=1)]
    talk.said(Puback(1, Reason.NO_MATCHING_SUBSCRIBERS))
    assert talk.heard(Settled) == [Settled(11, Reason.NO_MATCHING_SUBSCRIBERS)]
    assert talk.happened(asked(12, 2)) == [Publish("a/b", b"x", 2, packet_id=2)]
    assert talk.said(Pubrec(2)) == [Pubrel(2)]
    assert talk.news == []
    talk.said(Pubcomp(2))
    assert talk.heard(Settled) == [Settled(12)]


def test_the_servers_answer_is_handed_on() -> None:
    talk = Talk()
    talk.connected()
    talk.happened(asked(1, 2), asked(2, 1))
    talk.news.clear()
    why = Properties(reason_string="too much", user=(("node", "denver"),))
    talk.said(Pubrec(1, Reason.QUOTA_EXCEEDED, why), Puback(2, Reason.NOT_AUTHORIZED))
    assert talk.heard(Settled) == [
        Settled(1, Reason.QUOTA_EXCEEDED, why),
        Settled(2, Reason.NOT_AUTHORIZED),
    ]


def test_no_more_are_sent_than_the_server_takes() -> None:
    talk = Talk()
    talk.connected(properties=Properties(receive_maximum=2))
    sent = talk.happened(*(asked(token) for token in range(1, 6)))
    assert [packet.packet_id for packet in sent if isinstance(packet, Publish)] == [1, 2]
    assert talk.happened(asked(6, 0)) == [Publish("a/b", b"x")]
    [third] = talk.said(Puback(1))
    assert isinstance(third, Publish)
    assert third.packet_id == 3
    assert len(talk.said(Puback(2), Puback(3))) == 2


def test_without_connection_everything_waits_in_order() -> None:
    talk = Talk()
    assert talk.happened(asked(1, 1), asked(2, 0), asked(3, 2)) == []
    assert talk.news == []
    sent = talk.connected()
    assert [packet.qos for packet in sent if isinstance(packet, Publish)] == [1, 0, 2]


def test_a_resumed_session_gets_again_what_it_did_not_acknowledge() -> None:
    talk = Talk()
    talk.connected()
    talk.happened(asked(1, 1), asked(2, 2), asked(3, 2), asked(4, 1))
    talk.said(Pubrec(3), Puback(4))
    talk.happened(Lost(), asked(5, 1))
    again = talk.connected(is_resumed=True)
    assert again == [
        Publish("a/b", b"x", 1, dup=True, packet_id=1),
        Publish("a/b", b"x", 2, dup=True, packet_id=2),
        Pubrel(3),
        Publish("a/b", b"x", 1, packet_id=5),
    ]
    talk.news.clear()
    talk.said(Puback(1), Pubrec(2), Pubcomp(2), Pubcomp(3), Puback(5))
    assert talk.heard(Settled) == [Settled(1), Settled(2), Settled(3), Settled(5)]


def test_a_lost_session_gets_them_as_new() -> None:
    talk = Talk()
    talk.connected()
    talk.happened(asked(1, 1), asked(2, 2), asked(3, 2))
    talk.said(Pubrec(3))
    talk.happened(Lost())
    talk.news.clear()
    again = talk.connected(is_resumed=False)
    assert [(p.qos, p.dup) for p in again if isinstance(p, Publish)] == [(1, False), (2, False)]
    assert talk.heard(Settled) == [Settled(3)]  # that one the lost session had


def test_resending_also_minds_what_the_server_takes() -> None:
    talk = Talk()
    talk.connected()
    talk.happened(asked(1), asked(2), asked(3))
    talk.happened(Lost())
    assert len(talk.connected(is_resumed=True, properties=Properties(receive_maximum=1))) == 1
    [second] = talk.said(Puback(1))
    assert second == Publish("a/b", b"x", 1, dup=True, packet_id=2)


def test_what_waits_longer_than_its_deadline_expires() -> None:
    talk = Talk()
    talk.happened(asked(1, deadline_ms=100), asked(2, deadline_ms=50), asked(3))
    assert talk.machine.next_deadline_ms() == 50
    talk.passed(50)
    [expired] = talk.heard(Settled)
    assert expired.token == 2
    assert isinstance(expired.error, ExpiredError)
    assert talk.machine.next_deadline_ms() == 100
    talk.passed(50)
    assert [settled.token for settled in talk.heard(Settled)] == [1]
    assert len(talk.connected()) == 1


def test_waiting_is_taken_off_the_deadline() -> None:
    talk = Talk()
    properties = Properties(message_expiry_s=5, user=(("deadline-ms", "4500"), ("n", "1")))
    talk.happened(asked(1, deadline_ms=4_500, properties=properties))
    talk.now_ms = 1_200
    [sent] = talk.connected()
    assert isinstance(sent, Publish)
    assert sent.properties == Properties(
        message_expiry_s=4, user=(("deadline-ms", "3300"), ("n", "1"))
    )


def test_what_was_withdrawn_is_not_sent() -> None:
    talk = Talk()
    talk.happened(asked(1), asked(2), Withdrawn(1))
    assert len(talk.connected()) == 1
    talk.happened(Withdrawn(2))  # too late: it is on its way, and stays so
    talk.happened(Lost())
    assert len(talk.connected(is_resumed=True)) == 1


@pytest.mark.parametrize(
    ("properties", "message", "reason"),
    [
        (Properties(maximum_packet_size=20), {"topic": "a" * 20}, Reason.PACKET_TOO_LARGE),
        (Properties(maximum_qos=0), {"topic": "a"}, Reason.QOS_NOT_SUPPORTED),
        (
            Properties(retain_available=False),
            {"topic": "a", "retain": True},
            Reason.RETAIN_NOT_SUPPORTED,
        ),
    ],
)
def test_what_the_server_does_not_take_is_not_sent(
    properties: Properties, message: dict[str, object], reason: Reason
) -> None:
    talk = Talk()
    talk.connected(properties=properties)
    talk.news.clear()
    publish = Publish(qos=1, **message)  # type: ignore[arg-type]
    assert talk.happened(PublishRequested(1, publish)) == []
    [settled] = talk.heard(Settled)
    assert settled.reason == reason
    assert talk.happened(asked(2, 0)) == [Publish("a/b", b"x")]


def test_answers_that_nobody_waits_for_are_ignored() -> None:
    talk = Talk()
    talk.connected()
    talk.news.clear()
    assert talk.said(Puback(9), Pubcomp(9), Suback(9, (0,)), Unsuback(9, (0,))) == []
    assert talk.said(Pubrec(9)) == [Pubrel(9, Reason.PACKET_IDENTIFIER_NOT_FOUND)]
    assert talk.news == []


# ------------------------------------------------------------------------------------- subscribing


def test_a_subscription_has_its_identifier_and_its_predicate() -> None:
    talk = Talk()
    talk.connected()
    talk.news.clear()
    predicate = (("where", "altitude_m > 300"),)
    [packet] = talk.happened(SubscribeRequested(5, 1, TopicFilter("uav/+", 1), predicate))
    assert packet == Subscribe(
        1,
        (TopicFilter("uav/+", 1),),
        Properties(subscription_identifiers=(1,), user=predicate),
    )
    talk.said(Suback(1, (1,)))
    assert talk.heard(Settled) == [Settled(5, 1)]


def test_a_server_without_identifiers_gets_none() -> None:
    talk = Talk()
    talk.connected(properties=Properties(subscription_identifiers_available=False))
    [packet] = talk.happened(SubscribeRequested(5, 1, TopicFilter("uav/+", 1)))
    assert packet == Subscribe(1, (TopicFilter("uav/+", 1),))
    talk.said(Suback(1, (1,)))
    talk.news.clear()
    talk.said(Publish("uav/imagery"), Publish("other"))
    assert talk.heard(Arrived) == [Arrived(1)]


def test_a_refused_subscription_says_why_and_is_gone() -> None:
    talk = Talk()
    talk.connected()
    talk.news.clear()
    talk.happened(SubscribeRequested(5, 1, TopicFilter("a")))
    why = Properties(reason_string="unknown attribute at character 3", user=(("node", "a"),))
    talk.said(Suback(1, (Reason.IMPLEMENTATION_SPECIFIC_ERROR,), why))
    [settled] = talk.heard(Settled)
    assert isinstance(settled.error, RefusedError)
    assert settled.error.explanation == "unknown attribute at character 3"
    assert settled.error.facts == (("node", "a"),)
    assert len(talk.happened(SubscribeRequested(6, 2, TopicFilter("a")))) == 1


def test_the_same_filter_twice_is_refused() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed("a/#")
    with pytest.raises(AlreadySubscribedError, match="'a/#'"):
        talk.happened(SubscribeRequested(2, 2, TopicFilter("a/#"), (("where", "b > 1"),)))


def test_leaving_makes_room_for_the_same_filter() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed("a/#")
    assert talk.happened(UnsubscribeRequested(1)) == [Unsubscribe(2, ("a/#",))]
    [packet] = talk.happened(SubscribeRequested(2, 2, TopicFilter("a/#")))
    assert isinstance(packet, Subscribe)
    assert packet.packet_id == 3


def test_leaving_before_the_answer_frees_nothing_too_early() -> None:
    talk = Talk()
    talk.connected()
    assert len(talk.happened(SubscribeRequested(1, 1, TopicFilter("a")))) == 1
    assert talk.happened(UnsubscribeRequested(1)) == [Unsubscribe(2, ("a",))]
    talk.news.clear()
    assert talk.said(Suback(1, (0,)), Unsuback(2, (0,))) == []
    assert talk.news == []


def test_a_lost_session_is_subscribed_again_and_a_resumed_one_is_not() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed("a/#", 1)
    talk.subscribed("b", 2)
    talk.happened(Lost())
    assert talk.connected(is_resumed=True) == []
    talk.happened(Lost())
    again = talk.connected(is_resumed=False)
    assert [each.filters[0].pattern for each in again if isinstance(each, Subscribe)] == [
        "a/#",
        "b",
    ]
    first, second = (each.packet_id for each in again if isinstance(each, Subscribe))
    talk.news.clear()
    talk.said(Suback(first, (1,)), Suback(second, (Reason.NOT_AUTHORIZED,)))
    [ended] = talk.heard(Ended)
    assert ended.identifier == 2


def test_what_was_not_answered_is_asked_again() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed("a", 1)
    talk.happened(SubscribeRequested(2, 2, TopicFilter("b")), UnsubscribeRequested(1))
    talk.happened(Lost())
    again = talk.connected(is_resumed=True)
    assert [type(each) for each in again] == [Unsubscribe, Subscribe]
    talk.happened(Lost())
    again = talk.connected(is_resumed=False)
    assert [type(each) for each in again] == [Subscribe]


def test_leaving_without_connection_asks_for_nothing() -> None:
    talk = Talk()
    talk.happened(
        SubscribeRequested(1, 1, TopicFilter("a")), UnsubscribeRequested(1), UnsubscribeRequested(7)
    )
    assert talk.connected() == []


# --------------------------------------------------------------------------------------- receiving


def test_an_event_is_acknowledged_when_it_is_consumed() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed()
    assert talk.said(incoming(7)) == []
    assert talk.heard(Arrived) == [Arrived(1)]
    delivery = talk.taken()
    assert delivery.message.payload == b"7"
    assert talk.happened(Consumed(delivery)) == [Puback(7)]


def test_exactly_once() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed()
    assert talk.said(incoming(7, qos=2)) == []
    assert talk.consumed() == [Pubrec(7)]
    assert talk.said(incoming(7, qos=2, dup=True)) == [Pubrec(7)]
    assert talk.machine.take(1) is None
    assert talk.said(Pubrel(7)) == [Pubcomp(7)]
    assert talk.said(Pubrel(7)) == [Pubcomp(7, Reason.PACKET_IDENTIFIER_NOT_FOUND)]
    talk.said(incoming(7, qos=2))
    assert talk.taken().message.payload == b"7"


def test_one_event_for_two_subscriptions_is_acknowledged_once() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed("a/#", 1)
    talk.subscribed("a/+", 2)
    both = Publish(
        "a/b", b"", 1, packet_id=7, properties=Properties(subscription_identifiers=(1, 2))
    )
    talk.said(both)
    assert talk.heard(Arrived) == [Arrived(1), Arrived(2)]
    assert talk.consumed(1) == []
    assert talk.consumed(2) == [Puback(7)]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_waits_here_is_not_delivered_twice_after_a_break(qos: int) -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed()
    talk.said(incoming(7, qos=qos), incoming(8, qos=qos))
    talk.happened(Lost())
    assert talk.consumed() == []  # there is nobody to tell
    talk.connected(is_resumed=True)
    answer = Puback(7) if qos == 1 else Pubrec(7)
    assert talk.said(incoming(7, qos=qos, dup=True), incoming(8, qos=qos, dup=True)) == [answer]
    assert talk.taken().message.payload == b"8"
    assert talk.machine.take(1) is None


def test_after_a_lost_session_nothing_is_owed() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed()
    talk.said(incoming(7))
    talk.happened(Lost())
    talk.connected(is_resumed=False)
    talk.said(incoming(7))  # another event, by chance under the same identifier
    assert talk.consumed() == []
    assert talk.consumed() == [Puback(7)]


def test_a_new_event_under_an_identifier_that_the_server_forgot_is_delivered() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed()
    talk.said(incoming(7))
    talk.happened(Lost())
    talk.connected(is_resumed=True)
    talk.said(incoming(7))
    assert talk.consumed() == []
    assert talk.consumed() == [Puback(7)]


def test_what_is_left_unread_when_leaving_is_acknowledged() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed()
    talk.said(incoming(7), incoming(8))
    sent = talk.happened(UnsubscribeRequested(1))
    assert sent[:2] == [Puback(7), Puback(8)]
    assert talk.said(incoming(9)) == [Puback(9)]  # it was on its way
    assert talk.machine.unmatched == 1


def test_what_an_earlier_process_was_subscribed_to_waits_for_its_subscription() -> None:
    talk = Talk(client_id="me", clean_start=False)
    talk.connected(is_resumed=True)
    assert talk.said(incoming(7, identifier=4), incoming(8, identifier=4)) == []
    talk.news.clear()
    talk.happened(SubscribeRequested(1, 1, TopicFilter("a/+", 1)))
    assert talk.heard(Arrived) == [Arrived(1)]
    assert talk.consumed() == [Puback(7)]
    assert talk.consumed() == [Puback(8)]


def test_what_waits_survives_a_refused_subscription() -> None:
    talk = Talk(client_id="me", clean_start=False)
    talk.connected(is_resumed=True)
    talk.said(incoming(7))
    talk.happened(SubscribeRequested(1, 1, TopicFilter("a/+", 1), (("where", "("),)))
    talk.said(Suback(1, (0x80,)))
    talk.happened(SubscribeRequested(2, 2, TopicFilter("a/+", 1)))
    assert talk.consumed(2) == [Puback(7)]


def test_what_nobody_claims_does_not_stop_the_flow() -> None:
    talk = Talk(client_id="me", clean_start=False)
    talk.connected(is_resumed=True)
    answers = [answer for n in range(1, 201) for answer in talk.said(incoming(n))]
    assert len(answers) == talk.machine.unmatched == 100


def test_an_identifier_of_another_filter_does_not_mislead() -> None:
    talk = Talk(client_id="me", clean_start=False)
    talk.connected(is_resumed=True)
    talk.subscribed("b", 1)
    talk.said(incoming(7, identifier=1))  # of an earlier process, where 1 was a/#
    assert talk.machine.take(1) is None


def test_more_than_the_receive_maximum_ends_the_connection_when_there_is_no_room() -> None:
    talk = Talk(receive_maximum=2)
    talk.connected()
    talk.subscribed(queue=2)
    talk.happened(asked(1))  # so that reading goes on
    talk.news.clear()
    assert talk.said(*(incoming(number) for number in range(1, 5))) == []
    assert talk.said(incoming(5)) == [Disconnect(Reason.RECEIVE_MAXIMUM_EXCEEDED)]


# ----------------------------------------------------------------------------------- back-pressure


def test_a_full_inbox_stops_reading_and_loses_nothing() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed(queue=3)
    talk.said(*(incoming(0, qos=0) for _ in range(10)))
    assert not talk.reads()
    for _ in range(6):
        talk.consumed()
        assert not talk.reads()
    for _ in range(4):
        talk.consumed()
    assert talk.reads()
    assert talk.machine.inbox(1).shed == 0


def test_a_session_that_waits_for_an_answer_reads_on_and_sheds() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed(queue=3)
    talk.happened(asked(1))
    talk.news.clear()
    talk.said(*(incoming(0, qos=0) for _ in range(10)), Puback(2))
    assert talk.heard(Settled) == [Settled(1)]
    assert len(talk.machine.inbox(1)) == 6
    assert talk.machine.inbox(1).shed == 4


def test_asking_for_something_starts_the_reading_again() -> None:
    for order in (asked(1), SubscribeRequested(1, 2, TopicFilter("b"))):
        talk = Talk()
        talk.connected()
        talk.subscribed(queue=3)
        talk.said(*(incoming(0, qos=0) for _ in range(10)))
        assert not talk.reads()
        talk.happened(order)
        assert talk.reads()


def test_leaving_a_full_subscription_lets_the_others_read() -> None:
    talk = Talk()
    talk.connected()
    talk.subscribed("a/#", 1, queue=1)
    talk.subscribed("b", 2)
    other = Publish("b", b"", properties=Properties(subscription_identifiers=(2,)))
    talk.said(incoming(0, qos=0), incoming(0, qos=0), other)
    assert talk.machine.take(2) is None
    talk.happened(UnsubscribeRequested(1))
    assert talk.taken(2).message == other


# --------------------------------------------------------------------------------------- all of it


@settings(max_examples=100)
@given(st.data())
def test_however_the_connection_breaks_everything_is_settled_and_arrives_in_the_end(
    data: st.DataObject,
) -> None:
    """A server that keeps its sessions gets each event: of QoS 2 once, of QoS 1 at least once."""
    talk = Talk()
    received: list[bytes] = []
    unreleased: set[int] = set()
    levels: dict[bytes, int] = {}
    is_calm = False

    def answer(packet: Packet) -> Packet | None:
        match packet:
            case Publish(qos=1):
                received.append(packet.payload)
                return Puback(packet.packet_id)
            case Publish():
                if packet.packet_id not in unreleased:
                    received.append(packet.payload)
                unreleased.add(packet.packet_id)
                return Pubrec(packet.packet_id)
            case Pubrel():
                unreleased.discard(packet.packet_id)
                return Pubcomp(packet.packet_id)
        return None

    def serve(packets: list[Packet]) -> None:
        while packets:
            answers = [each for packet in packets if (each := answer(packet)) is not None]
            # The connection may break before any of the answers arrives.
            kept = len(answers) if is_calm else data.draw(st.integers(0, len(answers)))
            packets = talk.said(*answers[:kept])
            if kept < len(answers):
                talk.happened(Lost())
                return

    for number in range(1, data.draw(st.integers(1, 12)) + 1):
        if talk.is_in(Phase.IDLE):
            limits = Properties(receive_maximum=data.draw(st.integers(1, 3)))
            serve(talk.connected(is_resumed=number > 1, properties=limits))
        message = Publish("a", b"%d" % number, data.draw(st.integers(1, 2)))
        levels[message.payload] = message.qos
        serve(talk.happened(PublishRequested(number, message)))
    is_calm = True
    talk.happened(Lost())
    serve(talk.connected(is_resumed=True))
    assert sorted(settled.token for settled in talk.heard(Settled)) == [*range(1, len(levels) + 1)]
    assert set(received) == set(levels)
    assert all(received.count(each) == 1 for each, qos in levels.items() if qos == 2)
