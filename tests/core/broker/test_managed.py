"""What policies, deadlines and keys do to messages on their way through the broker."""

from __future__ import annotations

from typing import Final

import pytest
from tests.core.broker.dialogue import START_MS, Peer, Table

from accord.core.broker.broker import make_message
from accord.core.broker.kept_messages import (
    history_message,
    journal_form,
    kept_event_id,
    result_message,
)
from accord.core.broker.message_shaping import ShapingOrder, shaped_message
from accord.core.broker.publish_handler import ConditionsOrder
from accord.core.broker.session_recovery import snapshot
from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.monitoring.ledger import OUTCOMES, event_id, read_detail
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import Connect, Puback, Publish, Pubrec, Pubrel, TopicFilter
from accord.core.mqtt.properties import (
    CHANNEL,
    EVENT,
    NO_PROPERTIES,
    NODE,
    PUBLISHER,
    RECEIVED,
    Properties,
)
from accord.core.policy.policies import Entity, Policies
from accord.core.policy.policy_set import parse_policy_set
from accord.core.queries.messages import QueryHit
from accord.core.router.limits import Limits

PAIR: Final = ("height", "3")
ALARMS_FIRST: Final = """
strategy = "strict"
[[policies]]
name = "alarms"
channel = "alarm/#"
importance = 6
[[policies]]
name = "bulk"
channel = "bulk"
importance = 1
"""


def decide(table: Table, text: str) -> None:
    book = parse_policy_set(text)
    table.broker.switch(book, Policies(book))


def payloads(peer: Peer, bytes_wanted: int = 1_000_000) -> list[bytes]:
    """What is sent next to a slow peer."""
    peer.hears(b"".join(peer.connection.take(bytes_wanted)))
    return [each.payload for each in peer.hear() if isinstance(each, Publish)]


def outcomes(table: Table) -> list[tuple[str, str, str]]:
    """Destination, outcome and detail of what the ledger has."""
    batch = table.hub.ledger.take()
    rows = [] if batch is None else batch.rows
    return [(row[5], OUTCOMES[row[6]], row[12]) for row in rows]


def listener(table: Table, *patterns: str, version: int = V5, qos: int = 0) -> Peer:
    peer = table.join("ada", version).subscribe(*patterns, qos=qos)
    peer.is_slow = True
    return peer


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("qos", [0, 1])
def test_the_important_goes_first(version: int, qos: int) -> None:
    table = Table()
    decide(table, ALARMS_FIRST)
    ada = listener(table, "#", version=version, qos=qos)
    bob = table.join("bob", V311)
    for channel in ("bulk", "other", "alarm/fire", "bulk", "alarm/flood"):
        bob.publish(channel, channel.encode(), qos)
    assert payloads(ada) == [b"alarm/fire", b"alarm/flood", b"other", b"bulk", b"bulk"]


def test_a_client_may_matter_more_than_others() -> None:
    table = Table()
    decide(
        table,
        """
        strategy = "strict"
        [[policies]]
        name = "patrol"
        client = "patrol-1"
        importance = 7
        """,
    )
    ada = listener(table, "report")
    for name in ("bob", "patrol-1"):
        table.join(name).publish("report", name.encode())
    assert payloads(ada) == [b"patrol-1", b"bob"]


def test_importance_cannot_be_claimed() -> None:
    table = Table()
    decide(table, 'strategy = "strict"')
    ada = listener(table, "#")
    bob = table.join("bob")
    bob.publish("a", b"first")
    bob.publish("a", b"second", properties=Properties(user=(("importance", "7"),)))
    assert payloads(ada) == [b"first", b"second"]


def test_a_change_counts_for_what_is_open() -> None:
    table = Table()
    ada = listener(table, "#")
    bob = table.join("bob", V311)
    bob.publish("bulk", b"bulk")
    bob.publish("alarm/fire", b"alarm")
    assert payloads(ada) == [b"bulk", b"alarm"]
    decide(table, ALARMS_FIRST)
    bob.publish("bulk", b"bulk")
    bob.publish("alarm/fire", b"alarm")
    assert payloads(ada) == [b"alarm", b"bulk"]


def test_what_an_event_says_may_decide() -> None:
    table = Table()
    decide(
        table,
        """
        strategy = "strict"
        [[policies]]
        name = "low"
        where = "altitude_m < 100"
        importance = 7
        [[policies]]
        name = "large"
        where = "payload_bytes > 10"
        importance = 0
        """,
    )
    ada = listener(table, "uav")
    bob = table.join("bob")
    bob.publish("uav", b"large enough")
    bob.publish("uav", b"plain")
    bob.publish("uav", b"low", properties=Properties(user=(("altitude_m", "80"),)))
    bob.publish("uav", b"high", properties=Properties(user=(("altitude_m", "800"),)))
    assert payloads(ada) == [b"low", b"plain", b"high", b"large enough"]


def test_nobody_starves_under_weighted_fair() -> None:
    table = Table()
    decide(table, ALARMS_FIRST.replace("strict", "weighted fair"))
    ada = listener(table, "#")
    bob = table.join("bob", V311)
    for _ in range(100):
        bob.publish("alarm/fire", b"x" * 100)
        bob.publish("other", b"y" * 100)
    got = payloads(ada, 10_000)
    assert 80 < len(got) < 110
    # Weights are 64 and 8.
    assert 8 <= sum(each.startswith(b"y") for each in got) <= 13


def test_a_policy_sets_a_deadline() -> None:
    table = Table()
    decide(
        table,
        """
        [[policies]]
        name = "tracks"
        channel = "track"
        preferences = "BFTrack"
        """,
    )
    ada = listener(table, "#")
    bob = table.join("bob", V311)
    bob.publish("track", b"old")
    bob.publish("other", b"old too")
    table.now_ms += 14_000
    bob.publish("track", b"young")
    table.now_ms += 1_000
    table.hub.now_ms = table.now_ms
    assert payloads(ada) == [b"old too", b"young"]
    found = outcomes(table)
    assert ("ada", "expired", "deadline_ms=15000") in found
    assert sorted(outcome for _, outcome, _ in found) == ["delivered", "delivered", "expired"]
    assert table.hub.counters.shed_causes.counts == {"expired": 1}
    assert table.broker.router.channels.get("track").expired == 1


def test_what_could_not_arrive_in_time_is_not_sent() -> None:
    table = Table()
    ada = listener(table, "#")
    ada.connection.link.limit_bps = 8_000
    bob = table.join("bob")
    soon = Properties(user=(("deadline-ms", "1000"),))
    bob.publish("a", b"x" * 1_100, properties=soon)
    bob.publish("a", b"y" * 100, properties=soon)
    assert payloads(ada) == [b"y" * 100]


def test_the_sweep_takes_out_what_expired() -> None:
    table = Table()
    ada = listener(table, "#", qos=1)
    bob = table.join("bob")
    soon = Properties(user=(("deadline-ms", "1000"),))
    bob.publish("a", b"x", 1, properties=soon)
    bob.publish("a", b"y", 1)
    table.hub.now_ms += 1_000
    session = table.session("ada")
    session.expire()
    session.check_invariants()
    assert session.outbox.depth()[3] == 1
    assert payloads(ada) == [b"y"]


def keyed(key: str) -> Properties:
    return Properties(user=(("key", key),))


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("is_durable", [False, True])
def test_a_later_event_replaces_one_that_waits(qos: int, is_durable: bool) -> None:
    table = Table(is_durable=is_durable)
    ada = table.join("ada", expiry_s=60 if is_durable else 0).subscribe("#", qos=qos)
    ada.is_slow = True
    bob = table.join("bob")
    for key, payload in (("1", b"a"), ("2", b"b"), ("1", b"c"), ("1", b"dd"), ("", b"e")):
        properties = keyed(key) if key else NO_PROPERTIES
        bob.publish("position", payload, qos, properties=properties)
    bob.publish("other", b"f", qos, properties=keyed("1"))
    table.commit()
    table.session("ada").check_invariants()
    assert (table.session("ada").shed, table.session("ada").replaced) == (0, 2)
    # In the place of the one it replaces, and not on other channels.
    assert payloads(ada) == [b"dd", b"b", b"e", b"f"]
    found = [
        read_detail(detail)[0] for _, outcome, detail in outcomes(table) if outcome == "replaced"
    ]
    first = table.hub.number - 5
    assert found == [{"by": event_id(first + 2)}, {"by": event_id(first + 3)}]
    bob.publish("position", b"g", qos, properties=keyed("1"))
    table.commit()
    assert payloads(ada) == [b"g"], "what is on its way is not replaced"


def test_what_was_replaced_stays_so_after_a_crash() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("#", qos=1).drop()
    bob = table.join("bob")
    bob.publish("position", b"old", 1, properties=keyed("1"))
    bob.publish("position", b"new", 1, properties=keyed("1"))
    table.commit()
    after, _ = table.after_crash(table.log)
    waiting = after.session("ada").unacknowledged.values()
    assert [each.message.payload for each in waiting] == [b"new"]


def test_a_policy_may_forbid_replacement() -> None:
    table = Table()
    decide(
        table,
        """
        [[policies]]
        name = "all of it"
        preferences = { replacement = false }
        """,
    )
    ada = listener(table, "#")
    bob = table.join("bob")
    for payload in (b"a", b"b"):
        bob.publish("position", payload, properties=keyed("1"))
    assert payloads(ada) == [b"a", b"b"]


def test_a_run_is_cut_where_little_is_wanted() -> None:
    table = Table()
    decide(table, ALARMS_FIRST)
    ada = listener(table, "#")
    bob = table.join("bob", V311)
    bob.publish("bulk", b"0")  # so that the way is known, and the others are a run
    bob.send(*(Publish("bulk", bytes([number])) for number in range(1, 6)))
    assert payloads(ada, 1) == [b"0"]
    assert payloads(ada, 15) == [b"\1", b"\2"]
    bob.publish("alarm/fire", b"!")
    assert payloads(ada, 1) == [b"!"]
    assert payloads(ada) == [b"\3", b"\4", b"\5"]
    batch = table.hub.ledger.take()
    assert batch is not None
    noted = {number for row in batch.rows for number in range(row[0], row[0] + row[2])}
    assert len(noted) == 7, "each event is noted once"


def test_runs_of_several_channels_are_counted_by_channel() -> None:
    table = Table()
    ada = listener(table, "#")
    bob = table.join("bob", V311)
    bob.send(*(Publish(f"t/{number % 3}", b"x") for number in range(3)))
    bob.send(*(Publish(f"t/{number % 3}", b"x") for number in range(10)))
    payloads(ada, 30)
    payloads(ada)
    counts = [table.broker.router.channels.get(f"t/{number}") for number in range(3)]
    assert [each.published for each in counts] == [5, 4, 4]
    assert [each.delivered for each in counts] == [5, 4, 4]


# Tasks.


def conditional(table: Table, name: str, where: str, qos: int = 1) -> Peer:
    return table.join(name).subscribe("#", qos=qos, properties=Properties(user=(("where", where),)))


def offer(peer: Peer, channel: str, payload: bytes, qos: int, packet_id: int) -> None:
    """A message that is read, with no turn yet."""
    peer.receive(encode(Publish(channel, payload, qos, packet_id=packet_id), peer.version))


def test_the_important_is_matched_first_and_acknowledged_when_done() -> None:
    table = Table()
    decide(table, ALARMS_FIRST)
    ada = conditional(table, "ada", "a IS NULL")
    bob = table.join("bob")
    for number, channel in enumerate(("bulk", "other", "alarm/fire"), 1):
        offer(bob, channel, channel.encode(), 1, number)
    assert bob.hear() == []
    assert table.hub.tasks.waiting == 3
    table.turn()
    assert [each.payload for each in ada.hear() if isinstance(each, Publish)] == [
        b"alarm/fire",
        b"other",
        b"bulk",
    ]
    assert bob.hear() == [Puback(3), Puback(2), Puback(1)]


def test_a_client_whose_tasks_pile_up_is_not_read_from() -> None:
    table = Table(Limits(tasks=9))
    decide(table, ALARMS_FIRST)
    conditional(table, "ada", "a IS NULL")
    bob, cyn = table.join("bob"), table.join("cyn")
    offer(cyn, "alarm/fire", b"", 1, 1)
    for number in range(1, 4):
        offer(bob, "bulk", b"", 1, number)
    assert not bob.connection.wants_data()
    assert cyn.connection.wants_data()
    table.turn()
    assert bob.connection.wants_data()


def test_too_much_is_shed_from_the_unimportant_and_said_so() -> None:
    table = Table(Limits(tasks=2))
    decide(table, ALARMS_FIRST)
    ada = conditional(table, "ada", "a IS NULL")
    bob, old = table.join("bob"), table.join("old", V311)
    offer(bob, "bulk", b"1", 1, 1)
    offer(old, "bulk", b"2", 1, 1)
    offer(bob, "alarm/fire", b"3", 1, 2)
    table.turn()
    assert [each.payload for each in ada.hear() if isinstance(each, Publish)] == [b"3", b"2"]
    refused, taken = bob.hear()
    assert isinstance(refused, Puback)
    assert (refused.packet_id, refused.reason) == (1, Reason.QUOTA_EXCEEDED)
    assert taken == Puback(2)
    assert table.hub.counters.shed_causes.counts == {"cpu overload": 1}
    assert ("", "refused", "cpu overload") in outcomes(table)


def test_a_message_does_not_overtake_one_that_waits_to_be_matched() -> None:
    table = Table()
    ada = table.join("ada").subscribe("a")
    cyn = conditional(table, "cyn", "b IS NULL")
    bob = table.join("bob", V311)
    offer(bob, "a", b"1", 0, 0)
    cyn.drop()  # from now on the channel needs no matching
    offer(bob, "a", b"2", 0, 0)
    table.turn()
    assert [each.payload for each in ada.hear() if isinstance(each, Publish)] == [b"1", b"2"]


def test_qos_2_repeated_while_it_waits_is_taken_once() -> None:
    table = Table()
    ada = conditional(table, "ada", "a IS NULL", qos=2)
    bob = table.join("bob", expiry_s=60)
    offer(bob, "t", b"x", 2, 7)
    bob.connection.on_closed(now_ms=table.now_ms)
    again = table.open(V5)
    back = Connect("bob", V5, False, 0, properties=Properties(session_expiry_s=60))
    again.receive(encode(back, V5))
    offer(again, "t", b"x", 2, 7)
    table.turn()
    assert [each.payload for each in ada.hear() if isinstance(each, Publish)] == [b"x"]
    assert again.hear()[1:] == [Pubrec(7)]
    again.send(Pubrel(7))
    assert table.session("bob").received == {}


# Names of events, requests, shaping.


def test_publishers_that_ask_are_told_how_their_events_are_called() -> None:
    table = Table()
    bob = table.join("bob", properties=Properties(user=(("event-ids", "yes"),)))
    table.join("ada").subscribe("a")
    bob.publish("a", b"", 1)
    bob.publish("b", b"", 1)
    number = table.hub.number
    first, second = bob.hear()
    assert isinstance(first, Puback)
    assert first.properties.user == (("event", event_id(number - 1)),)
    assert isinstance(second, Puback)
    assert second.properties.user == (("event", event_id(number)),)
    assert second.reason == Reason.NO_MATCHING_SUBSCRIBERS


def test_requests_are_for_the_node_and_nobody_else() -> None:
    table = Table()
    table.hub.request_topics = frozenset({"$accord/policies"})
    curious = table.join("ada").subscribe("$accord/#")
    bob = table.join("bob").subscribe("answers")
    asked = Properties(response_topic="answers")
    bob.publish("$accord/policies", b"{}", 1, properties=asked)
    (request,) = table.hub.requests
    assert (request.message.payload, request.client, request.may_change_policies()) == (
        b"{}",
        "bob",
        True,
    )
    bob.publish("$accord/policies", b"{}", 1)
    bob.publish("$accord/policys", b"{}", 1, properties=asked)
    reasons = [each.reason for each in bob.hear() if isinstance(each, Puback)]
    assert reasons == [0, Reason.IMPLEMENTATION_SPECIFIC_ERROR, Reason.TOPIC_NAME_INVALID]
    assert curious.hear() == []
    assert len(table.hub.requests) == 1


@pytest.mark.parametrize("qos", [0, 1])
def test_ten_receivers_cost_one_conversion(qos: int) -> None:
    table = Table()
    decide(
        table,
        """
        [[policies]]
        name = "small"
        channel = "image"
        operation = "subscribe"
        preferences = { shaping = "scaling", max_bytes = 5000 }
        """,
    )
    table.hub.has_workers = True
    some = [table.join(f"c{number}").subscribe("image", qos=qos) for number in range(10)]
    table.join("bob").publish("image", b"x" * 10_000, qos)
    (order,) = table.hub.orders
    assert isinstance(order, ShapingOrder)
    assert (order.shape.shaper, order.shape.max_bytes) == ("scaling", 5_000)
    assert all(each.hear() == [] for each in some)
    order.finish(shaped_message(order.message, b"small", ()))
    table.turn()
    for each in some:
        (packet,) = each.hear()
        assert isinstance(packet, Publish)
        assert packet.payload == b"small"
        assert packet.properties.user == (("shaped-from", "10000"),)
    assert {outcome for _, outcome, _ in outcomes(table)} == {"shaped"}


def test_what_cannot_be_shaped_goes_as_it_is() -> None:
    table = Table()
    decide(
        table,
        """
        [[policies]]
        name = "small"
        preferences = { shaping = "scaling", max_bytes = 5000 }
        """,
    )
    table.hub.has_workers = True
    ada = table.join("ada").subscribe(TopicFilter("image", 1))
    table.join("bob").publish("image", b"x" * 10_000, 1)
    (order,) = table.hub.orders
    order.fail()
    table.turn()
    (packet,) = ada.hear()
    assert isinstance(packet, Publish)
    assert len(packet.payload) == 10_000


def test_costly_conditions_are_evaluated_elsewhere() -> None:
    table = Table()
    table.hub.has_workers = True
    costly = "count(//a[count(//b[. = 'x']) > count(//a)]) = 0"
    ada = table.join("ada").subscribe("t", properties=Properties(user=(("xpath", costly),)))
    xml = "<r>" + "<a/><b>x</b>" * 1_000 + "</r>"
    bob = table.join("bob")
    bob.publish("t", b"1", 1, properties=Properties(user=(("metadata", xml),)))
    (order,) = table.hub.orders
    assert isinstance(order, ConditionsOrder)
    assert (ada.hear(), bob.hear()) == ([], [])
    conditions = order.document.deferred
    order.finish(conditions, [True] * len(conditions))
    table.turn()
    assert [each.payload for each in ada.hear() if isinstance(each, Publish)] == [b"1"]
    assert bob.hear() == [Puback(1)]


def test_what_gave_way_is_not_replaced_any_more() -> None:
    table = Table(Limits(queue_messages=1))
    decide(table, ALARMS_FIRST)
    ada = listener(table, "#", qos=1)
    bob = table.join("bob")
    bob.publish("bulk", b"1", 1, properties=keyed("k"))
    bob.publish("alarm/fire", b"2", 1)
    bob.publish("bulk", b"3", 1, properties=keyed("k"))
    table.session("ada").check_invariants()
    assert payloads(ada) == [b"2"]
    bob.publish("bulk", b"4", 1, properties=keyed("k"))
    assert payloads(ada) == [b"4"]


def test_a_snapshot_does_not_promise_what_waits_to_be_matched() -> None:
    table = Table(is_durable=True)
    conditional(table, "ada", "a IS NULL", qos=2)
    bob = table.join("bob", expiry_s=60)
    offer(bob, "t", b"x", 2, 7)
    after, _ = table.after_crash(snapshot(table.broker))
    assert after.session("bob").received == {}


# What must not happen, whatever clients do.


def test_who_is_not_listened_to_is_not_silent() -> None:
    table = Table(Limits(tasks=9))
    conditional(table, "ada", "a IS NULL")
    bob = table.join("bob", keep_alive_s=1)
    for number in range(1, 8):
        offer(bob, "t", b"", 1, number)
    assert bob.connection.is_stalled
    table.now_ms += 10_000
    table.broker.advance(now_ms=table.now_ms)
    table.turn()
    table.wait(1_000)
    assert not bob.is_closed
    table.wait(1_000)
    assert bob.is_closed


def test_a_snapshot_has_messages_as_they_were_published() -> None:
    table = Table(is_durable=True)
    table.hub.has_workers = True
    decide(
        table,
        """
        [[policies]]
        name = "small"
        preferences = { shaping = "scaling", max_bytes = 5000 }
        """,
    )
    for name in ("ann", "bob"):
        table.join(name, expiry_s=60).subscribe(f"image/{name}", qos=1).is_slow = True
    cyn = table.join("cyn")
    for name in ("ann", "bob"):
        cyn.publish(f"image/{name}", name.encode() * 5_000, 1)
    for order in table.hub.orders:
        assert isinstance(order, ShapingOrder)
        order.finish(shaped_message(order.message, b"small", ()))
    table.commit()
    after, restored = table.after_crash(snapshot(table.broker))
    assert restored.problems == []
    for name in ("ann", "bob"):
        (delivery,) = after.session(name).unacknowledged.values()
        assert delivery.message.payload == name.encode() * 5_000


SMALL: Final = """
[[policies]]
name = "small"
preferences = { shaping = "scaling", max_bytes = 5000 }
"""


def test_nobody_gets_another_message_in_the_shape_of_its_own() -> None:
    """Messages may have one number: of old, those from disk had none."""
    table = Table()
    table.hub.has_workers = True
    decide(table, SMALL)
    for name in ("ann", "bob"):
        payload = name.encode() * 5_000
        message = make_message(f"image/{name}", payload, 1, True, "", START_MS, NO_PROPERTIES)
        table.broker.retained.set(message)
    ada = table.join("ada").subscribe("image/#", qos=1)
    for order in table.hub.orders:
        assert isinstance(order, ShapingOrder)
        order.finish(shaped_message(order.message, order.message.payload[:3], ()))
    table.turn()
    heard = [each for each in ada.hear() if isinstance(each, Publish)]
    assert sorted((each.topic, each.payload) for each in heard) == [
        ("image/ann", b"ann"),
        ("image/bob", b"bob"),
    ]


@pytest.mark.parametrize("is_result", [False, True])
def test_a_kept_event_has_its_name_in_any_shape(is_result: bool) -> None:
    table = Table()
    table.hub.has_workers = True
    decide(table, SMALL)
    ada = table.join("ada").subscribe("image", qos=1)
    message = make_message("image", b"x" * 10_000, 1, False, "", START_MS, Properties(user=(PAIR,)))
    message.number, message.event_node, message.event_number = 9, "x", 7
    kept = journal_form(message)
    found = QueryHit(0, 9, START_MS, "image", "bob", 1, kept.block, kept.payload)
    if is_result:
        told = result_message(found, "image", b"1", START_MS)
    else:
        told = history_message(found, ChannelCounts("image"), START_MS, kept_event_id(found, "a"))
    session = table.session("ada")
    grant = table.hub.router.grant(told, Entity("bob"), session.entity)
    session.deliver_kept(told, 1, (), grant)
    (order,) = table.hub.orders
    assert isinstance(order, ShapingOrder)
    order.finish(shaped_message(told, b"small", told.properties.user))
    table.turn()
    (heard,) = ada.hear()
    assert isinstance(heard, Publish)
    shaped, at = ("shaped-from", "10000"), (RECEIVED, str(START_MS))
    past = ((EVENT, "7"), at, (NODE, "x"))
    result = ((CHANNEL, "image"), (EVENT, "9"), at, (PUBLISHER, "bob"))
    assert heard.properties.user == (PAIR, shaped, *(result if is_result else past))


def test_what_an_ended_session_left_is_not_its_successors() -> None:
    table = Table(is_durable=True)
    conditional(table, "ada", "a IS NULL", qos=2)
    bob = table.join("bob", expiry_s=60)
    offer(bob, "t", b"x", 2, 7)
    anew = table.open(V5)
    back = Connect("bob", V5, True, 0, properties=Properties(session_expiry_s=60))
    anew.receive(encode(back, V5))
    table.commit()
    after, _ = table.after_crash(table.log)
    assert after.session("bob").received == {}


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("is_later_sent", [False, True])
def test_an_older_event_does_not_replace_a_newer_one(qos: int, is_later_sent: bool) -> None:
    table = Table()
    table.hub.has_workers = True
    decide(
        table,
        """
        [[policies]]
        name = "small"
        preferences = { shaping = "scaling", max_bytes = 5000 }
        """,
    )
    ada = listener(table, "#", qos=qos)
    bob = table.join("bob")
    bob.publish("position", b"old" * 5_000, qos, properties=keyed("1"))
    bob.publish("position", b"new", qos, properties=keyed("1"))
    got = payloads(ada) if is_later_sent else []
    (order,) = table.hub.orders
    order.fail()
    table.session("ada").check_invariants()
    assert got + payloads(ada) == [b"new"]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("is_in_turn", [False, True])
def test_the_newer_of_two_nodes_events_replaces_the_older(qos: int, is_in_turn: bool) -> None:
    """Nodes count for themselves: the one that was started last has the largest numbers."""
    table = Table()
    ada = listener(table, "#", qos=qos)
    ada.is_slow = True
    older = (b"old", "west", 900, START_MS + 5)
    newer = (b"new", "east", 100, START_MS + 7)
    for payload, home, number, at_ms in (older, newer) if is_in_turn else (newer, older):
        message = make_message("position", payload, qos, False, "bob", at_ms, keyed("1"))
        way = table.broker.fan_out_for(Entity("bob", node=home), "position")
        message.counts = way.channel_fan_out.counts
        message.number, message.event_node, message.event_number = number, home, number
        table.broker.publish_inline(message, way)
    table.session("ada").check_invariants()
    assert payloads(ada) == [b"new"]


def test_a_mistake_found_in_a_task_ends_the_connection_and_nothing_else() -> None:
    table = Table(kept=["t"], is_durable=True)
    conditional(table, "ada", "a IS NULL")
    bob = table.join("b" * 300, V311)
    offer(bob, "t", b"x", 1, 1)
    table.turn()
    assert bob.is_closed
    assert table.hub.tasks.waiting == 0


def test_a_refusal_reaches_a_client_that_came_back() -> None:
    table = Table(Limits(tasks=1))
    decide(table, ALARMS_FIRST)
    conditional(table, "ada", "a IS NULL", qos=2)
    bob, cyn = table.join("bob", expiry_s=60), table.join("cyn")
    offer(bob, "bulk", b"x", 2, 7)
    bob.connection.on_closed(now_ms=table.now_ms)
    again = table.open(V5)
    back = Connect("bob", V5, False, 0, properties=Properties(session_expiry_s=60))
    again.receive(encode(back, V5))
    offer(again, "bulk", b"x", 2, 7)
    offer(cyn, "alarm/fire", b"!", 1, 1)
    table.turn()
    assert not table.session("bob").received
    _, refused = again.hear()
    assert isinstance(refused, Pubrec)
    assert refused.reason == Reason.QUOTA_EXCEEDED


def test_costly_conditions_do_not_hold_up_a_subscription() -> None:
    table = Table()
    bob = table.join("bob")
    xml = "<r>" + "<a>1</a>" * 1_000 + "</r>"
    bob.publish("t", b"x", retain=True, properties=Properties(user=(("metadata", xml),)))
    costly = Properties(user=(("xpath", "//a[. = //a[9 = 8]]"),))
    ada = table.join("ada").subscribe("t", properties=costly)
    assert ada.hear() == []
    assert table.hub.counters.shed_causes.counts == {"condition too costly": 1}


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("strategy", ["strict", "weighted fair", "fifo"])
def test_order_is_kept_in_a_channel_whose_events_change_in_size(qos: int, strategy: str) -> None:
    table = Table()
    decide(table, f'strategy = "{strategy}"')
    ada = listener(table, "t", qos=qos)
    bob = table.join("bob", V311)
    sizes = [20_000, 1, 1, 1, 1, 1, 60_000, 1, 1, 90_000, 1, 1]
    for number, size in enumerate(sizes):
        bob.publish("t", bytes([number]) * size, qos)
    assert [payload[0] for payload in payloads(ada)] == list(range(len(sizes)))
