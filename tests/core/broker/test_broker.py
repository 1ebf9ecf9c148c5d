from __future__ import annotations

import pytest
from tests.core.broker.dialogue import START_MS, Table

from accord.core.broker.broker import FOREVER, make_message, split_shared
from accord.core.model.errors import EventError
from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    TopicFilter,
    Unsuback,
    Unsubscribe,
    Will,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.router.limits import Limits
from accord.journal.events import decode_event, encode_kept

WILL = Will("will", b"gone")


def delayed(delay_s: int) -> Will:
    return Will("will", b"gone", properties=Properties(will_delay_s=delay_s))


# Sessions.


def test_a_session_outlives_its_connection_for_as_long_as_its_client_asked() -> None:
    table = Table()
    table.join("ada", expiry_s=10).subscribe("a", qos=1).drop()
    table.wait(9_999)
    ada = table.join("ada", clean=False, expiry_s=10, is_present=True)
    table.wait(60_000)
    ada.drop()
    table.wait(10_000)
    assert table.broker.sessions == {}
    assert table.broker.router.size == 0
    table.join("ada", clean=False, is_present=False)


def test_without_expiry_a_session_ends_with_its_connection() -> None:
    table = Table()
    table.join("ada", clean=False).subscribe("a").drop()
    table.join("bob", V311).drop()
    assert table.broker.sessions == {}


def test_a_session_of_3_1_1_stays_unless_it_is_clean() -> None:
    table = Table(Limits(session_expiry_s=100))
    table.join("ada", V311, clean=False).drop()
    table.join("ada", V311, clean=False, is_present=True).drop()
    table.wait(100_000)
    assert table.broker.sessions == {}


def test_the_node_says_so_if_a_session_can_not_stay_as_long() -> None:
    table = Table(Limits(session_expiry_s=100))
    peer = table.connect("ada", expiry_s=FOREVER)
    (answer,) = peer.hear()
    assert isinstance(answer, Connack)
    assert answer.properties.session_expiry_s == 100


def test_a_session_for_ever() -> None:
    table = Table(Limits(session_expiry_s=FOREVER))
    table.join("ada", expiry_s=FOREVER).drop()
    assert table.session("ada").ends_ms == 0
    table.wait(10**12)
    table.join("ada", clean=False, is_present=True)


def test_a_clean_start_forgets_what_was_there() -> None:
    table = Table()
    table.join("ada", expiry_s=10).subscribe("a", qos=1).drop()
    table.join("bob").publish("a", b"waits", 1)
    ada = table.join("ada", expiry_s=10, is_present=False)
    ada.expect()
    assert table.session("ada").subscriptions == {}
    assert table.hub.counters.shed_causes.counts == {"session ended": 1}


def test_a_second_connection_takes_the_session_over() -> None:
    table = Table()
    first = table.join("ada", expiry_s=10).subscribe("a", qos=1)
    second = table.join("ada", clean=False, expiry_s=10, is_present=True)
    first.expect(
        Disconnect(
            Reason.SESSION_TAKEN_OVER, Properties(reason_string="the client connected again")
        )
    )
    assert first.is_closed
    table.join("bob").publish("a", b"x", 1)
    second.expect(Publish("a", b"x", 1, packet_id=1))
    first.drop()
    assert table.session("ada").is_connected
    assert table.hub.counters.connections == 2


# Wills.


@pytest.mark.parametrize("expiry_s", [0, 60])
def test_a_will_is_published_when_a_client_vanishes(expiry_s: int) -> None:
    table = Table()
    watcher = table.join("watcher").subscribe("will")
    table.join("ada", expiry_s=expiry_s, will=WILL).drop()
    watcher.expect(Publish("will", b"gone"))
    table.wait(100_000)
    watcher.expect()


def test_a_will_is_not_published_for_a_client_that_says_goodbye() -> None:
    table = Table()
    watcher = table.join("watcher").subscribe("will")
    table.join("ada", will=WILL).send(Disconnect())
    watcher.expect()
    table.join("ada", will=WILL).send(Disconnect(Reason.DISCONNECT_WITH_WILL))
    watcher.expect(Publish("will", b"gone"))


def test_a_will_waits_for_its_delay() -> None:
    table = Table()
    watcher = table.join("watcher").subscribe("will")
    table.join("ada", expiry_s=60, will=delayed(5)).drop()
    table.wait(4_999)
    watcher.expect()
    table.wait(1)
    watcher.expect(Publish("will", b"gone"))
    table.wait(100_000)
    watcher.expect()
    assert list(table.broker.sessions) == ["watcher"]


def test_a_client_that_is_back_in_time_has_not_gone() -> None:
    table = Table()
    watcher = table.join("watcher").subscribe("will")
    table.join("ada", expiry_s=60, will=delayed(5)).drop()
    table.wait(4_999)
    ada = table.join("ada", clean=False, expiry_s=60, is_present=True)
    table.wait(10_000)
    watcher.expect()
    ada.drop()
    table.wait(10_000)
    watcher.expect()


@pytest.mark.parametrize("expiry_s", [0, 3])
def test_a_will_is_published_when_its_session_ends_before_the_delay(expiry_s: int) -> None:
    table = Table()
    watcher = table.join("watcher").subscribe("will")
    table.join("ada", expiry_s=expiry_s, will=delayed(5)).drop()
    table.wait(expiry_s * 1_000)
    watcher.expect(Publish("will", b"gone"))
    table.join("ada", expiry_s=60, will=delayed(5)).drop()
    table.join("ada", expiry_s=60)
    watcher.expect(Publish("will", b"gone"))


def test_whoever_is_taken_over_has_gone() -> None:
    table = Table()
    watcher = table.join("watcher").subscribe("will")
    table.join("ada", expiry_s=60, will=WILL)
    table.join("ada", expiry_s=60, clean=False, will=delayed(5), is_present=True)
    watcher.expect(Publish("will", b"gone"))
    table.join("ada", expiry_s=60, clean=False, is_present=True)
    table.wait(10_000)
    watcher.expect()


def test_a_will_is_a_message_like_others() -> None:
    table = Table()
    watcher = table.join("watcher").subscribe("will", qos=2)
    properties = Properties(
        will_delay_s=1,
        message_expiry_s=30,
        content_type="text",
        response_topic="r",
        correlation_data=b"c",
        user=(("n", "1"),),
    )
    table.join("ada", expiry_s=60, will=Will("will", b"x", 1, True, properties)).drop()
    table.wait(1_000)
    expected = Properties(
        message_expiry_s=30,
        content_type="text",
        response_topic="r",
        correlation_data=b"c",
        user=(("n", "1"),),
    )
    watcher.expect(Publish("will", b"x", 1, packet_id=1, properties=expected))
    table.join("late").subscribe("will").expect(
        Publish("will", b"x", retain=True, properties=expected)
    )


def test_a_will_with_bad_attributes_reaches_nobody() -> None:
    table = Table()
    watcher = table.join("watcher").subscribe("will")
    bad = Properties(user=(("deadline-ms", "soon"),))
    table.join("ada", will=Will("will", properties=bad)).drop()
    watcher.expect()
    assert table.hub.counters.shed_causes.counts == {"bad attributes": 1}


# Retained messages.


def test_a_new_subscription_gets_what_is_retained_behind_its_answer() -> None:
    table = Table()
    sender = table.join("bob")
    sender.publish("a/1", b"old", 1, retain=True)
    sender.publish("a/1", b"new", 1, retain=True)
    sender.publish("a/2", b"other", retain=True)
    sender.publish("a/2", b"", retain=True)
    ada = table.join("ada").send(Subscribe(1, (TopicFilter("a/+", 2),)))
    ada.expect(Suback(1, (2,)), Publish("a/1", b"new", 1, retain=True, packet_id=1))


@pytest.mark.parametrize(("handling", "times"), [(0, 2), (1, 1), (2, 0)])
def test_who_wants_retained_messages_when(handling: int, times: int) -> None:
    table = Table()
    table.join("bob").publish("a", b"x", retain=True)
    ada = table.join("ada")
    for _ in range(2):
        ada.subscribe(TopicFilter("a", retain_handling=handling))
    assert ada.hear() == [Publish("a", b"x", retain=True)] * times


def test_retained_messages_are_for_those_who_may_have_them() -> None:
    table = Table()
    ada = table.join("ada")
    ada.publish("a", b"own", retain=True, properties=Properties(user=(("n", "1"),)))
    ada.subscribe(TopicFilter("a", no_local=True))
    ada.subscribe("$share/group/a")
    ada.expect()
    identified = Properties(subscription_identifiers=(5,), user=(("where", "n > 1"),))
    ada.subscribe("+", properties=identified)
    ada.expect()
    identified = Properties(subscription_identifiers=(5,), user=(("where", "n = 1"),))
    ada.subscribe("#", properties=identified)
    expected = Properties(subscription_identifiers=(5,), user=(("n", "1"),))
    ada.expect(Publish("a", b"own", retain=True, properties=expected))


def test_a_retained_message_grows_old() -> None:
    table = Table()
    fresh = Properties(message_expiry_s=10)
    table.join("bob").publish("a", b"x", retain=True, properties=fresh)
    table.wait(4_500)
    left = Properties(message_expiry_s=6)
    table.join("ada").subscribe("a").expect(Publish("a", b"x", retain=True, properties=left))
    table.wait(5_500)
    table.join("ada").subscribe("a").expect()
    assert table.broker.retained.messages == 0


def test_there_is_room_for_so_many_retained_messages() -> None:
    table = Table(Limits(retained_messages=1))
    bob = table.join("bob")
    for topic in ("a", "b", "a"):
        bob.publish(topic, b"x", retain=True)
    assert table.broker.retained.messages == 1
    assert table.hub.counters.shed_causes.counts == {"no room to retain": 1}


def test_what_the_node_itself_says_is_retained_while_it_runs() -> None:
    table = Table(is_durable=True)
    watcher = table.join("watcher").subscribe("$SYS/#")
    table.broker.publish_as_node("$SYS/uptime", b"1")
    table.turn()
    watcher.expect(Publish("$SYS/uptime", b"1"))
    recorded = len(table.log)
    late = table.join("late").subscribe("$SYS/uptime")
    late.expect(Publish("$SYS/uptime", b"1", retain=True))
    table.join("everything").subscribe("#").expect()
    assert len(table.log) == recorded, "nothing of it is for the disk"


# Subscriptions.


def test_a_subscription_is_replaced_by_one_with_the_same_filter() -> None:
    table = Table()
    ada = table.join("ada").subscribe("a", qos=2)
    ada.subscribe("a", qos=0, properties=Properties(user=(("where", "n = 1"),)))
    assert (table.broker.router.size, table.broker.router.predicates) == (1, 1)
    table.join("bob").publish("a", b"no", 1)
    table.join("bob").publish("a", b"yes", 1, properties=Properties(user=(("n", "1"),)))
    ada.expect(Publish("a", b"yes", properties=Properties(user=(("n", "1"),))))
    ada.send(Unsubscribe(9, ("a", "b")))
    ada.expect(Unsuback(9, (Reason.SUCCESS, Reason.NO_SUBSCRIPTION_EXISTED)))
    assert (table.broker.router.size, table.broker.router.predicates) == (0, 0)


def test_a_bad_predicate_is_refused_with_the_place_of_the_mistake() -> None:
    table = Table()
    ada = table.join("ada")
    bad = Properties(user=(("where", "altitude_m >"),))
    ada.send(Subscribe(1, (TopicFilter("a"), TopicFilter("b")), bad))
    (answer,) = ada.hear()
    assert isinstance(answer, Suback)
    assert answer.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR,) * 2
    assert "altitude_m >" in (answer.properties.reason_string or "")
    both = Properties(user=(("where", "n > 1"), ("xpath", "//n > 1")))
    ada.send(Subscribe(1, (TopicFilter("a"),), both))
    (answer,) = ada.hear()
    assert isinstance(answer, Suback)
    assert "got several" in (answer.properties.reason_string or "")
    assert table.broker.router.size == 0


@pytest.mark.parametrize(
    ("limits", "pattern"),
    [
        (Limits(subscriptions_per_client=1), "b"),
        (Limits(channel_levels=2), "a/b/c"),
        (Limits(channel_levels=2), "$share/group/a/b/c"),
    ],
)
def test_one_client_may_not_ask_for_too_much(limits: Limits, pattern: str) -> None:
    table = Table(limits)
    ada = table.join("ada").subscribe("a")
    ada.send(Subscribe(2, (TopicFilter("a", 1), TopicFilter(pattern))))
    (answer,) = ada.hear()
    assert isinstance(answer, Suback)
    assert answer.reasons[0] == 1, "what it has it may change"
    assert answer.reasons[1] >= Reason.UNSPECIFIED_ERROR
    assert list(table.session("ada").subscriptions) == ["a"]


def test_predicates_are_counted_apart() -> None:
    table = Table(Limits(predicates_per_client=1))
    ada = table.join("ada").subscribe("a")
    where = Properties(user=(("where", "n > 1"),))
    ada.subscribe("b", properties=where).subscribe("b", properties=where)
    ada.send(Subscribe(9, (TopicFilter("a"), TopicFilter("c")), where))
    (answer,) = ada.hear()
    assert isinstance(answer, Suback)
    assert answer.reasons == (Reason.QUOTA_EXCEEDED,) * 2
    ada.send(Unsubscribe(9, ("b",))).hear()
    ada.subscribe("a", properties=where)


def test_xpath_conditions_see_the_metadata() -> None:
    table = Table()
    ada = table.join("ada").subscribe("a", properties=Properties(user=(("xpath", "//n > 1"),)))
    bob = table.join("bob", expiry_s=9)
    for number in (1, 2):
        user = (("metadata", f"<r><n>{number}</n></r>"),)
        bob.publish("a", bytes([number]), properties=Properties(user=user))
    (only,) = ada.hear()
    assert isinstance(only, Publish)
    assert only.payload == b"\2"


# Kept channels.


def test_an_event_of_a_kept_channel_is_on_disk_before_it_is_acknowledged() -> None:
    table = Table(is_durable=True, kept=["kept/#"])
    bob = table.join("bob")
    bob.publish("kept/a", b"x", 1)
    bob.publish("kept/a", b"y", 2)
    bob.publish("kept/a", b"z", 0)
    bob.expect()
    assert [decode_event(each).payload for each in encode_kept(table.hub.kept)] == [
        b"x",
        b"y",
        b"z",
    ]
    table.commit()
    bob.expect(Puback(1, Reason.NO_MATCHING_SUBSCRIBERS), Pubrec(2, Reason.NO_MATCHING_SUBSCRIBERS))


def test_what_is_no_event_is_not_kept() -> None:
    table = Table(is_durable=True, kept=["kept"])
    listener, bob = table.join("ada").subscribe("kept"), table.join("bob")
    bob.publish("kept", b"x", 1, properties=Properties(user=(("metadata", "<open>"),)))
    (answer,) = bob.hear()
    assert isinstance(answer, Puback)
    assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
    listener.expect()
    assert table.hub.kept == []


# Parts.


def test_group_and_filter_of_a_shared_subscription() -> None:
    assert split_shared("$share/g/a/+/b") == ("g", "a/+/b")
    assert split_shared("$share/g/") == ("g", "")
    assert split_shared("a/b") == ("", "a/b")
    assert split_shared("$shared/g/a") == ("", "$shared/g/a")


def test_a_message_is_of_use_until_the_nearer_of_expiry_and_deadline() -> None:
    def due(expiry_s: int | None, *deadlines: str) -> int:
        user = tuple(("deadline-ms", text) for text in deadlines)
        properties = Properties(message_expiry_s=expiry_s, user=user)
        return make_message("a", b"", 0, False, "", START_MS, properties).expires_ms

    assert due(None) == 0
    assert due(2) == START_MS + 2_000
    assert due(2, "1500") == START_MS + 1_500
    assert due(1, "1500") == START_MS + 1_000
    assert due(None, "7") == START_MS + 7
    for bad in ("", "-1", "soon", "1.5", "9" * 16, "１"):
        with pytest.raises(EventError, match="deadline-ms"):
            due(None, bad)


def test_a_message_without_properties_has_an_empty_block() -> None:
    message = make_message("a/é", b"x", 0, False, "ada", START_MS, NO_PROPERTIES)
    assert (message.topic, message.block, message.expiry_s) == (b"\0\4a/\xc3\xa9", b"", -1)
    assert message.frame(V5) == b"\x30\x08\0\4a/\xc3\xa9\0x"
    assert message.frame(V311) == b"\x30\x07\0\4a/\xc3\xa9x"


def test_too_many_sessions_do_not_cost_a_client_its_old_one() -> None:
    table = Table(Limits(sessions=1))
    table.join("ada", expiry_s=60).drop()
    table.join("ada", clean=False, expiry_s=60, is_present=True).drop()
    table.join("ada", clean=True, expiry_s=60).drop()
    refused = table.open().send(Connect("bob"))
    assert refused.is_closed
    assert list(table.broker.sessions) == ["ada"]


def test_beginning_anew_waits_for_no_disk_where_there_is_none() -> None:
    table = Table()
    table.join("ada", expiry_s=60).drop()
    again = table.connect("ada", clean=True, expiry_s=60)
    (connack,) = again.hear()
    assert isinstance(connack, Connack)
    assert connack.reason == Reason.SUCCESS
