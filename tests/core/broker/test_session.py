from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings
from tests.core.broker.dialogue import Peer, Table
from tests.core.broker.world import World

from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import (
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    TopicFilter,
)
from accord.core.mqtt.properties import Properties
from accord.core.router.limits import Limits

VERSIONS: Final = [V311, V5]
both = pytest.mark.parametrize("version", VERSIONS, ids=["3.1.1", "5.0"])


def pair(
    table: Table, qos: int, *, version: int = V5, properties: Properties | None = None
) -> tuple[Peer, Peer]:
    """A subscriber and a publisher of channel `a`."""
    ada = table.join("ada", version, expiry_s=60, clean=version == V5, properties=properties)
    return ada.subscribe("a", qos=qos), table.join("bob", version)


def causes(table: Table) -> dict[str, int]:
    return dict(table.hub.counters.shed_causes.counts)


# Acknowledged messages.


@both
def test_a_message_is_under_way_until_it_is_acknowledged(version: int) -> None:
    table = Table()
    ada, bob = pair(table, 2, version=version)
    bob.publish("a", b"one", 1)
    bob.publish("a", b"two", 2)
    bob.expect(Puback(1), Pubrec(2))
    bob.send(Pubrel(2)).expect(Pubcomp(2))
    ada.expect(Publish("a", b"one", 1, packet_id=1), Publish("a", b"two", 2, packet_id=2))
    session = table.session("ada")
    ada.send(Puback(1), Pubrec(2)).expect(Pubrel(2))
    assert (session.in_flight, list(session.unacknowledged)) == (1, [2])
    ada.send(Pubcomp(2)).expect()
    assert (session.in_flight, session.unacknowledged) == (0, {})


@both
def test_answers_that_fit_nothing_are_ignored(version: int) -> None:
    table = Table()
    ada, bob = pair(table, 2, version=version)
    bob.publish("a", b"two", 2)
    ada.hear()
    ada.send(Puback(1), Pubcomp(1), Puback(9), Pubcomp(9)).expect()
    assert list(table.session("ada").unacknowledged) == [1]
    reason = Reason.PACKET_IDENTIFIER_NOT_FOUND if version == V5 else Reason.SUCCESS
    ada.send(Pubrec(9)).expect(Pubrel(9, reason))
    ada.send(Pubrec(1), Pubrec(1)).expect(Pubrel(1), Pubrel(1))
    ada.send(Pubcomp(1), Pubcomp(1)).expect()
    ada.send(Pubrel(9)).expect(Pubcomp(9, reason))
    table.check_invariants()


def test_a_message_that_the_client_refuses_is_over() -> None:
    table = Table()
    ada, bob = pair(table, 2)
    bob.publish("a", b"x", 2)
    ada.hear()
    ada.send(Pubrec(1, Reason.QUOTA_EXCEEDED)).expect()
    assert table.session("ada").unacknowledged == {}
    assert causes(table) == {"refused by the client": 1}


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_is_under_way_than_the_client_takes(most: int) -> None:
    table = Table()
    ada, bob = pair(table, 1, properties=Properties(session_expiry_s=60, receive_maximum=most))
    for number in range(1, 6):
        bob.publish("a", bytes([number]), 1)
    bob.publish("a", b"passes", 0)
    heard = ada.hear()
    assert len(heard) == most + 1
    assert heard[-1] == Publish("a", b"passes")
    for number in range(1, 6):
        ada.send(Puback(number))
    assert [each.payload for each in heard[:most] + ada.hear() if isinstance(each, Publish)] == [
        bytes([number]) for number in range(1, 6)
    ]


@both
def test_what_was_under_way_is_sent_again_in_its_old_place(version: int) -> None:
    table = Table(Limits(inflight=2))
    ada, bob = pair(table, 2, version=version)
    for number, qos in enumerate([1, 2, 2, 1], start=1):
        bob.publish("a", bytes([number]), qos)
    ada.expect(Publish("a", b"\1", 1, packet_id=1), Publish("a", b"\2", 2, packet_id=2))
    ada.drop()
    ada = table.join("ada", version, clean=False, expiry_s=60, is_present=True)
    ada.expect(
        Publish("a", b"\1", 1, dup=True, packet_id=1), Publish("a", b"\2", 2, dup=True, packet_id=2)
    )
    ada.send(Pubrec(2)).expect(Pubrel(2))
    ada.drop()
    ada = table.join("ada", version, clean=False, expiry_s=60, is_present=True)
    ada.expect(Pubrel(2), Publish("a", b"\1", 1, dup=True, packet_id=1))
    ada.send(Pubcomp(2)).expect(Publish("a", b"\3", 2, packet_id=3))
    ada.send(Puback(1)).expect(Publish("a", b"\4", 1, packet_id=4))


def test_a_smaller_window_of_a_new_connection_is_kept_to() -> None:
    table = Table()
    ada, bob = pair(table, 2)
    for number in range(1, 5):
        bob.publish("a", bytes([number]), 2)
    ada.send(Pubrec(1), Pubrec(2), Pubrec(3))
    ada.drop()
    small = Properties(session_expiry_s=60, receive_maximum=1)
    ada = table.join("ada", clean=False, properties=small, is_present=True)
    ada.expect(Pubrel(1), Pubrel(2), Pubrel(3))
    table.check_invariants()
    ada.send(Pubcomp(1), Pubcomp(2)).expect()
    ada.send(Pubcomp(3)).expect(Publish("a", b"\4", 2, dup=True, packet_id=4))


def test_packet_identifiers_go_round_and_skip_those_in_use() -> None:
    table = Table(Limits(inflight=1))
    ada, bob = pair(table, 1)
    bob.publish("a", b"stays", 1)
    session = table.session("ada")
    session.last_packet_id = 65_534
    bob.publish("a", b"last", 1)
    bob.publish("a", b"first again", 1)
    ada.send(Puback(1))
    ada.send(Puback(65_535))
    assert [each.packet_id for each in ada.hear() if isinstance(each, Publish)] == [1, 65_535, 2]


# What does not arrive.


def test_messages_without_promise_are_for_those_who_are_there() -> None:
    table = Table()
    ada, bob = pair(table, 1)
    ada.drop()
    bob.publish("a", b"lost", 0)
    bob.publish("a", b"kept", 1)
    ada = table.join("ada", clean=False, expiry_s=60, is_present=True)
    ada.expect(Publish("a", b"kept", 1, packet_id=1))
    assert causes(table) == {"offline": 1}


def test_a_message_that_is_too_old_is_not_sent_any_more() -> None:
    table = Table()
    ada, bob = pair(table, 2)
    ada.drop()
    for properties in (
        Properties(message_expiry_s=2),
        Properties(message_expiry_s=3),
        Properties(user=(("deadline-ms", "1500"),)),
    ):
        bob.publish("a", b"x", 1, properties=properties)
    table.wait(2_000)
    ada = table.join("ada", clean=False, expiry_s=60, is_present=True)
    ada.expect(Publish("a", b"x", 1, packet_id=2, properties=Properties(message_expiry_s=1)))
    assert causes(table) == {"expired": 2}
    assert list(table.session("ada").unacknowledged) == [2]


def test_a_delivery_that_has_begun_is_brought_to_its_end() -> None:
    table = Table()
    ada, bob = pair(table, 2)
    bob.publish("a", b"x", 2, properties=Properties(message_expiry_s=2))
    ada.hear()
    ada.drop()
    table.wait(5_000)
    ada = table.join("ada", clean=False, expiry_s=60, is_present=True)
    old = Properties(message_expiry_s=0)
    ada.expect(Publish("a", b"x", 2, dup=True, packet_id=1, properties=old))
    ada.send(Pubrec(1)).expect(Pubrel(1))


def test_a_packet_that_is_too_large_for_the_client_is_not_sent() -> None:
    table = Table()
    small = Properties(session_expiry_s=60, maximum_packet_size=40)
    ada, bob = pair(table, 1, properties=small)
    for size in (40, 30):
        bob.publish("a", bytes(size), 0)
        bob.publish("a", bytes(size), 1)
    ada.expect(Publish("a", bytes(30)), Publish("a", bytes(30), 1, packet_id=2))
    assert causes(table) == {"packet too large": 2}


def test_a_slow_reader_loses_the_oldest() -> None:
    table = Table(Limits(outbox_bytes=256))
    ada, bob = pair(table, 0)
    bob.receive(b"".join(frame(number) for number in range(1)))
    table.turn()
    ada.hear()
    for number in range(20):
        bob.receive(frame(number))
    table.turn()
    heard = [each.payload for each in ada.hear() if isinstance(each, Publish)]
    assert heard == [bytes([number]) * 40 for number in range(15, 20)]
    assert causes(table) == {"slow reader": 15}
    assert table.session("ada").shed == 15


def frame(number: int) -> bytes:
    return b"\x30\x2c\x00\x01a\x00" + bytes([number]) * 40


def test_a_full_queue_takes_no_more() -> None:
    table = Table(Limits(queue_messages=2), is_durable=True)
    ada, bob = pair(table, 1)
    ada.drop()
    for number in range(4):
        bob.publish("a", bytes([number]), 1)
    table.commit()
    bob.expect(*[Puback(number) for number in range(1, 5)])
    assert causes(table) == {"queue full": 2}
    after, _ = table.after_crash(table.log)
    assert len(after.session("ada").unacknowledged) == 2


# Options of subscriptions.


def test_what_a_subscriber_asked_for_is_in_its_messages() -> None:
    table = Table()
    ada = table.join("ada")
    first = Properties(subscription_identifiers=(1,))
    second = Properties(subscription_identifiers=(268_435_455,))
    ada.subscribe(TopicFilter("a", 1, retain_as_published=True), properties=first)
    ada.subscribe(TopicFilter("+", 0), properties=second)
    user = Properties(user=(("n", "1"), ("n", "2")), content_type="text")
    table.join("bob").publish("a", b"x", 2, retain=True, properties=user)
    (only,) = ada.hear()
    assert isinstance(only, Publish)
    assert (only.qos, only.retain) == (1, True)
    assert set(only.properties.subscription_identifiers) == {1, 268_435_455}
    assert (only.properties.user, only.properties.content_type) == (user.user, "text")


def test_an_older_client_gets_the_payload_without_properties() -> None:
    table = Table()
    ada = table.join("ada", V311).subscribe("a", qos=2)
    user = Properties(user=(("n", "1"),), message_expiry_s=9)
    for qos in (0, 1, 2):
        table.join("bob").publish("a", b"x", qos, properties=user)
    ada.expect(
        Publish("a", b"x"),
        Publish("a", b"x", 1, packet_id=1),
        Publish("a", b"x", 2, packet_id=2),
    )


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("receiver", VERSIONS)
@both
def test_a_message_has_the_lower_qos_of_both(
    version: int, receiver: int, granted: int, qos: int
) -> None:
    table = Table()
    listeners = [table.join(name, receiver).subscribe("a", qos=granted) for name in "xy"]
    sender = table.join("bob", version)
    for payload in (b"", b"x" * 130):
        sender.publish("a", payload, qos)
        level = min(qos, granted)
        packet_id = 1 + bool(payload) if level else 0
        for listener in listeners:
            listener.expect(Publish("a", payload, level, packet_id=packet_id))


# The disk.


def test_a_qos_2_message_is_sent_when_it_is_on_disk() -> None:
    table = Table(is_durable=True)
    ada, bob = pair(table, 2)
    bob.publish("a", b"one", 1)
    bob.publish("a", b"two", 2)
    ada.expect(Publish("a", b"one", 1, packet_id=1))
    table.commit()
    ada.expect(Publish("a", b"two", 2, packet_id=2))
    ada.send(Pubrec(2)).expect()
    ada.send(Pubrec(2)).expect()
    table.commit()
    ada.expect(Pubrel(2), Pubrel(2))
    ada.send(Pubrec(2)).expect(Pubrel(2))


def test_what_was_to_be_sent_before_a_session_ended_is_not() -> None:
    table = Table(is_durable=True)
    ada, bob = pair(table, 2)
    bob.publish("a", b"old", 2)
    ada.drop()
    ada = table.connect("ada", expiry_s=60)
    table.commit()
    assert all(not isinstance(each, Publish) for each in ada.hear())
    assert table.session("ada").unacknowledged == {}


@pytest.mark.parametrize(
    "request_", [Subscribe(1, (TopicFilter("a"),)), Publish("a", b"x", 1, retain=True, packet_id=1)]
)
def test_a_client_that_is_gone_gets_no_answer(request_: Packet) -> None:
    table = Table(is_durable=True)
    ada = table.join("ada", expiry_s=60).send(request_)
    ada.drop()
    table.commit()
    ada.expect()


# Anything, at any time.


class Clients(World):
    """Clients of a node that keeps nothing on disk."""


class PatientClients(World):
    """Clients of a node whose disk is slow."""

    is_durable = True


Clients.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
PatientClients.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestClients = Clients.TestCase
TestPatientClients = PatientClients.TestCase
