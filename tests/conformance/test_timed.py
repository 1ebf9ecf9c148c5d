"""What takes time: expiry, delays and keep alive, in units of a second.

The cases mostly wait, so all of them begin at once; each test then looks at its own case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import pytest

from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import Connack, Connect, Pingreq, Pingresp, Publish, Will
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from tests.brokers import BROKER, Broker, start_accord, start_mosquitto
from tests.conformance.conversation import ClosedError, Conversation, Peer

Case = Callable[[Conversation, str], None]
CASES: Final[dict[str, tuple[Case, int, str]]] = {}

UNIT_S: Final = 1
# Expiry is told in whole seconds: what lasts one is surely over after a little more than two.
OVER_S: Final = 2.2
# mosquitto looks after silent clients every few seconds only.
PATIENCE_S: Final = 15.0
STAYS: Final = Properties(session_expiry_s=3600)


def case(*versions: int, deviates: str = "") -> Callable[[Case], Case]:
    """Take a function as a case in these versions."""

    def take(function: Case) -> Case:
        for version in versions:
            label = "5.0" if version == V5 else "3.1.1"
            CASES[f"{function.__name__}-{label}"] = (function, version, deviates)
        return function

    return take


@pytest.fixture(scope="module")
def running(broker: Broker) -> Iterator[dict[str, Future[None]]]:
    def run(function: Case, version: int) -> None:
        with Conversation(broker, version, PATIENCE_S) as talk:
            function(talk, f"{talk.name}/topic")

    with ThreadPoolExecutor(len(CASES)) as pool:
        yield {
            name: pool.submit(run, function, version)
            for name, (function, version, _) in CASES.items()
        }


def _wait_until_closed(peer: Peer) -> Reason:
    """The reason of the end, however long it takes to come."""
    while True:
        try:
            packet = peer.receive()
        except ClosedError:
            return Reason.SUCCESS
        reason = getattr(packet, "reason", None)
        if reason is not None:
            return Reason(reason)


@case(V5)
def a_message_expires_while_its_receiver_is_away(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.2-5]"""
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1).leave()
    pub = talk.join("pub")
    pub.publish(topic, b"short", properties=Properties(message_expiry_s=UNIT_S))
    pub.publish(topic, b"long", properties=Properties(message_expiry_s=60))
    pub.publish(topic, b"unlimited")
    time.sleep(OVER_S)
    sub = talk.stay("sub", expect_session=True)
    sub.take(topic, b"long", qos=1)
    sub.take(topic, b"unlimited", qos=1)
    sub.expect_silence()


@case(V5)
def a_message_says_how_long_it_still_lasts(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.2-6]: what was waited at the broker is taken off."""
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1).leave()
    talk.join("pub").publish(topic, b"x", properties=Properties(message_expiry_s=60))
    time.sleep(OVER_S)
    message = talk.stay("sub", expect_session=True).take(topic, b"x", qos=1)
    left_s = message.properties.message_expiry_s
    assert left_s is not None
    assert 0 < left_s <= 58


@case(V5)
def a_retained_message_expires(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.2-5], 4.1"""
    pub = talk.join("pub")
    short, long = Properties(message_expiry_s=UNIT_S), Properties(message_expiry_s=60)
    pub.publish(f"{topic}/short", b"x", retain=True, properties=short)
    pub.publish(f"{topic}/long", b"x", retain=True, properties=long)
    talk.join("early").subscribed(f"{topic}/short").take(f"{topic}/short", b"x", retain=True)
    time.sleep(OVER_S)
    sub = talk.join("late").subscribed(f"{topic}/#")
    message = sub.take(f"{topic}/long", b"x", retain=True)
    assert message.properties.message_expiry_s is not None
    assert message.properties.message_expiry_s <= 58
    sub.expect_silence()


@case(V5, deviates="lets them wait on")
def a_message_expires_behind_a_full_quota(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.2-5]: delivery of the second has not begun."""
    properties = Properties(receive_maximum=1, session_expiry_s=60)
    sub = talk.join("sub", properties=properties).subscribed(topic, qos=1)
    pub = talk.join("pub")
    pub.publish(topic, b"1")
    pub.publish(topic, b"2", properties=Properties(message_expiry_s=UNIT_S))
    pub.publish(topic, b"3")
    message = sub.expect(Publish, payload=b"1")
    time.sleep(OVER_S)
    sub.settle(message)
    sub.take(topic, b"3", qos=1)
    sub.expect_silence()


@case(V5)
def an_expiring_message_reaches_those_who_are_there(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub").subscribed(topic)
    talk.join("pub").publish(topic, b"x", properties=Properties(message_expiry_s=UNIT_S))
    sub.take(topic, b"x")


@case(V5)
def a_session_expires(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-23]"""
    talk.stay("sub", expect_session=False, expiry_s=UNIT_S).subscribed(topic, qos=1).drop()
    time.sleep(OVER_S)
    talk.stay("sub", expect_session=False).expect_silence()


@case(V5)
def a_session_does_not_expire_while_connected(talk: Conversation, topic: str) -> None:
    """3.1.2.11.2: time counts from the end of the connection."""
    sub = talk.stay("sub", expect_session=False, expiry_s=UNIT_S).subscribed(topic, qos=1)
    time.sleep(OVER_S)
    sub.drop()
    talk.stay("sub", expect_session=True)


@case(V5)
def a_session_counts_anew_with_each_connection(talk: Conversation, topic: str) -> None:
    talk.stay("sub", expect_session=False, expiry_s=UNIT_S).subscribed(topic, qos=1).drop()
    talk.stay("sub", expect_session=True, expiry_s=60).drop()
    time.sleep(OVER_S)
    talk.stay("sub", expect_session=True)


@case(V5)
def disconnect_changes_when_a_session_expires(talk: Conversation, topic: str) -> None:
    sub = talk.stay("sub", expect_session=False, expiry_s=60).subscribed(topic, qos=1)
    sub.leave(properties=Properties(session_expiry_s=UNIT_S))
    time.sleep(OVER_S)
    talk.stay("sub", expect_session=False)


@case(V311)
def a_session_of_3_1_1_stays(talk: Conversation, topic: str) -> None:
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1).drop()
    time.sleep(OVER_S)
    talk.stay("sub", expect_session=True)


@case(V311, V5)
def a_silent_client_is_dropped(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-22]: after one and a half times its keep alive; its will tells of it."""
    witness = talk.join("witness").subscribed(topic)
    silent = talk.join("silent", keep_alive_s=UNIT_S, will=Will(topic, b"gone"))
    witness.expect(Publish, payload=b"gone")
    if talk.version == V5:
        assert _wait_until_closed(silent) in (Reason.KEEP_ALIVE_TIMEOUT, Reason.SUCCESS)
    else:
        silent.expect_closed()


@case(V5)
def a_dropped_client_is_told_why(talk: Conversation, topic: str) -> None:
    """3.14.2.1, 4.13.1"""
    silent = talk.join("silent", keep_alive_s=UNIT_S)
    silent.expect_end(Reason.KEEP_ALIVE_TIMEOUT)


@case(V311, V5)
def pings_keep_a_client_alive(talk: Conversation, topic: str) -> None:
    client = talk.join("a", keep_alive_s=UNIT_S)
    for _ in range(6):
        time.sleep(0.5)
        client.send(Pingreq())
        client.expect(Pingresp)


@case(V311, V5)
def any_packet_keeps_a_client_alive(talk: Conversation, topic: str) -> None:
    """3.1.2.10: PINGREQ is only needed when there is nothing else to say."""
    client = talk.join("a", keep_alive_s=UNIT_S)
    for _ in range(6):
        time.sleep(0.5)
        client.send(Publish(topic, b"x"))
    client.expect_silence()


@case(V311, V5)
def what_a_client_receives_does_not_count(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-22]: it is the client that must say something."""
    client = talk.join("a", keep_alive_s=UNIT_S).subscribed(topic)
    pub = talk.join("pub")
    for _ in range(10):
        pub.publish(topic, b"x")
        time.sleep(0.4)
    reason = _wait_until_closed(client)
    assert reason in (Reason.SUCCESS, Reason.KEEP_ALIVE_TIMEOUT)


@case(V311, V5)
def keep_alive_0_means_none(talk: Conversation, topic: str) -> None:
    client = talk.join("a", keep_alive_s=0)
    time.sleep(OVER_S + 1)
    client.expect_silence()


@case(V5)
def a_will_waits_for_its_delay(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.3-9], 3.1.3.2.2"""
    witness = talk.join("witness").subscribed(topic)
    will = Will(topic, b"gone", properties=Properties(will_delay_s=2 * UNIT_S))
    talk.connect("a", will=will, properties=STAYS)[0].drop()
    witness.expect_silence()
    witness.take(topic, b"gone", properties=NO_PROPERTIES)
    witness.expect_silence()


@case(V5)
def a_delayed_will_is_forgotten_at_reconnect(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.3-9]"""
    witness = talk.join("witness").subscribed(topic)
    will = Will(topic, b"gone", properties=Properties(will_delay_s=UNIT_S))
    talk.connect("a", will=will, properties=STAYS)[0].drop()
    talk.stay("a", expect_session=True)
    time.sleep(OVER_S)
    witness.expect_silence()


@case(V5)
def a_delayed_will_comes_when_the_session_ends(talk: Conversation, topic: str) -> None:
    """3.1.3.2.2: whichever is first."""
    witness = talk.join("witness").subscribed(topic)
    will = Will(topic, b"gone", properties=Properties(will_delay_s=600))
    ends = Properties(session_expiry_s=UNIT_S)
    talk.connect("a", will=will, properties=ends)[0].drop()
    witness.take(topic, b"gone")


@case(V5)
def a_delayed_will_after_a_disconnect_that_asks_for_it(talk: Conversation, topic: str) -> None:
    """[MQTT-3.14.4-3]: reason 4 keeps the will, and its delay."""
    witness = talk.join("witness").subscribed(topic)
    will = Will(topic, b"gone", properties=Properties(will_delay_s=2 * UNIT_S))
    client, _ = talk.connect("a", will=will, properties=STAYS)
    client.leave(Reason.DISCONNECT_WITH_WILL)
    witness.expect_silence()
    witness.take(topic, b"gone")


@case(V5)
def a_delayed_will_is_discarded_by_a_goodbye(talk: Conversation, topic: str) -> None:
    witness = talk.join("witness").subscribed(topic)
    will = Will(topic, b"gone", properties=Properties(will_delay_s=UNIT_S))
    client, _ = talk.connect("a", will=will, properties=STAYS)
    client.leave()
    time.sleep(OVER_S)
    witness.expect_silence()


@case(V5)
def a_will_s_expiry_counts_from_its_publication(talk: Conversation, topic: str) -> None:
    """3.1.3.2.4"""
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1).leave()
    properties = Properties(message_expiry_s=UNIT_S, will_delay_s=UNIT_S)
    witness = talk.join("witness").subscribed(topic, qos=1)
    will = Will(topic, b"gone", qos=1, properties=properties)
    talk.connect("a", will=will, properties=STAYS)[0].drop()
    witness.take(topic, b"gone", qos=1)
    time.sleep(OVER_S)
    talk.stay("sub", expect_session=True).expect_silence()


@pytest.mark.parametrize("name", CASES)
def test_in_time(
    running: dict[str, Future[None]], name: str, request: pytest.FixtureRequest
) -> None:
    deviates = CASES[name][2]
    if deviates and BROKER == "mosquitto":
        request.applymarker(pytest.mark.xfail(reason=f"mosquitto: {deviates}", strict=True))
    running[name].result()


def test_a_broker_may_shorten_keep_alive() -> None:
    """[MQTT-3.2.2-21], [MQTT-3.2.2-22]: it says so, and counts by its own time."""
    if BROKER == "mosquitto":
        starting = start_mosquitto("max_keepalive 10")
        longest_s = 10
    else:
        starting = start_accord(config="[limits]\nkeep_alive_s = 1\n")
        longest_s = 1
    with starting as broker, Conversation(broker, V5) as talk:
        for asked_s in (60, 0):
            client = talk.open()
            client.send(Connect(f"a{asked_s}", keep_alive_s=asked_s))
            answer = client.expect(Connack)
            assert answer.properties.server_keep_alive_s == longest_s
        if longest_s == 1:
            client.expect_end(Reason.KEEP_ALIVE_TIMEOUT)
