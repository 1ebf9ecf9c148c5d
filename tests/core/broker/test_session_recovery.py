from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from msgspec.structs import replace
from tests.core.broker.dialogue import START_MS, Peer, Table
from tests.core.broker.world import CLIENTS, RETAINED, World

from accord.core.broker import session_records
from accord.core.broker.broker import FOREVER, Broker, make_message
from accord.core.broker.delivery import RELEASED
from accord.core.broker.session import MqttSession
from accord.core.broker.session_records import decode_record, encode_record
from accord.core.broker.session_recovery import snapshot
from accord.core.mqtt.codes import V311
from accord.core.mqtt.event_mapping import EVENT_NAMES
from accord.core.mqtt.packets import (
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    TopicFilter,
    Unsubscribe,
    Will,
)
from accord.core.mqtt.properties import Properties
from accord.core.policy.policies import Entity
from accord.core.router.limits import Limits


def crashed(table: Table, left: int | None = None) -> Table:
    """The node after a crash that left so many records, all of them by default."""
    table.turn()
    again, restored = table.after_crash(table.log if left is None else table.log[:left])
    assert restored.problems == []
    return again


# What is there again.


def test_a_subscription_with_all_its_options() -> None:
    table = Table(is_durable=True)
    wish = TopicFilter("a/+", 2, no_local=True, retain_as_published=True)
    properties = Properties(subscription_identifiers=(7,), user=(("where", "n > 1"),))
    ada = table.join("ada", expiry_s=60).subscribe(wish, properties=properties)
    ada.subscribe("$share/group/b", qos=1)
    ada.subscribe("c", properties=Properties(user=(("xpath", "//n > 1"),)))
    ada.subscribe("gone")
    ada.send(Unsubscribe(9, ("gone",)))
    after = crashed(table)
    assert (
        described(after.broker)["ada"]["subscriptions"]
        == described(table.broker)["ada"]["subscriptions"]
    )
    assert list(after.session("ada").subscriptions) == ["a/+", "$share/group/b", "c"]
    assert after.broker.router.predicates == 2
    assert after.session("ada").predicates == 2
    ada = after.join("ada", clean=False, expiry_s=60, is_present=True)
    user = Properties(user=(("n", "2"),))
    after.join("bob").publish("a/x", b"x", 1, properties=user)
    expected = Properties(subscription_identifiers=(7,), user=(("n", "2"),))
    after.commit()
    ada.expect(Publish("a/x", b"x", 1, packet_id=1, properties=expected))


def test_messages_wait_for_a_client_that_is_away() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a", qos=2).drop()
    bob = table.join("bob")
    properties = Properties(message_expiry_s=30, content_type="text", user=(("n", "1"),))
    bob.publish("a", b"first", 1, properties=properties)
    bob.publish("a", b"second", 2)
    table.wait(4_000)
    after = crashed(table)
    ada = after.join("ada", clean=False, expiry_s=60, is_present=True)
    left = Properties(message_expiry_s=26, content_type="text", user=(("n", "1"),))
    ada.expect(
        Publish("a", b"first", 1, packet_id=1, properties=left),
        Publish("a", b"second", 2, packet_id=2),
    )
    after.join("bob").publish("a", b"third", 1)
    ada.expect(Publish("a", b"third", 1, packet_id=3))


def test_messages_have_the_names_they_had() -> None:
    """By them a client that is at several nodes knows copies, whichever were started anew."""
    table = Table(is_durable=True)
    asking = Properties(session_expiry_s=60, user=(EVENT_NAMES,))
    ada = table.join("ada", properties=asking).subscribe("a", qos=1)
    bob = table.join("bob")
    bob.publish("a", b"own", 1)
    way = table.broker.fan_out_for(Entity("eve", node="b"), "a")
    for payload, name in (
        (b"of b", ("b", 7)),
        (b"of a child of b", ("x", 8)),
        (b"nameless", ("", -1)),
    ):
        message = make_message("a", payload, 1, False, "eve", START_MS, Properties())
        table.hub.assign_number(message, way.channel_fan_out.counts)
        message.event_node, message.event_number = name
        table.broker.publish_inline(message, way)
    bob.publish("a", b"retained", 1, retain=True)
    table.commit()
    before = called(ada)
    assert len({*before.values()}) == 5
    assert before[b"nameless"] == ()
    again = crashed(table)
    for after in (again, crashed_to(again, snapshot(again.broker))):
        back = after.connect("ada", clean=False, properties=asking)
        after.commit()
        assert called(back) == before
        eve = after.join("eve", properties=asking).subscribe("a", qos=1)
        assert called(eve) == {b"retained": before[b"retained"]}


def called(peer: Peer) -> dict[bytes, tuple[tuple[str, str], ...]]:
    return {each.payload: each.properties.user for each in peer.hear() if isinstance(each, Publish)}


def crashed_to(table: Table, records: list[bytes]) -> Table:
    after, restored = table.after_crash(records)
    assert restored.problems == []
    return after


def test_messages_recorded_before_they_had_names_are_sent_without() -> None:
    table = Table(is_durable=True)
    asking = Properties(session_expiry_s=60, user=(EVENT_NAMES,))
    table.join("ada", properties=asking).subscribe("a", qos=1).drop()
    table.join("bob").publish("a", b"old", 1)
    table.commit()
    records = []
    for data in table.log:
        record = msgspec.msgpack.decode(data)
        records.append(msgspec.msgpack.encode(record[:11] if record[0] == "msg" else record))
    assert records != table.log
    after = crashed_to(table, records)
    back = after.connect("ada", clean=False, properties=asking)
    after.commit()
    assert called(back) == {b"old": ()}


def test_what_may_have_been_sent_is_a_duplicate() -> None:
    table = Table(is_durable=True)
    ada = table.join("ada", expiry_s=60).subscribe("a", qos=2)
    bob = table.join("bob")
    for number in (b"1", b"2", b"3"):
        bob.publish("a", number, 2)
    table.commit()
    ada.send(Pubrec(1), Pubrec(2))
    table.commit()
    ada.send(Pubcomp(1))
    after = crashed(table)
    ada = after.join("ada", clean=False, expiry_s=60, is_present=True)
    ada.expect(Pubrel(2), Publish("a", b"3", 2, dup=True, packet_id=3))
    ada.send(Pubcomp(2), Pubrec(3))
    after.commit()
    ada.expect(Pubrel(3))
    ada.send(Pubcomp(3))
    assert after.session("ada").unacknowledged == {}
    assert crashed(after).session("ada").unacknowledged == {}


def test_what_waited_for_a_client_that_came_is_a_duplicate_too() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a", qos=1).drop()
    table.join("bob").publish("a", b"x", 1)
    ada = table.join("ada", clean=False, expiry_s=60, is_present=True)
    ada.expect(Publish("a", b"x", 1, packet_id=1))
    ada = crashed(table).join("ada", clean=False, expiry_s=60, is_present=True)
    ada.expect(Publish("a", b"x", 1, dup=True, packet_id=1))


def test_a_message_that_was_taken_is_taken_once() -> None:
    table = Table(is_durable=True)
    listener = table.join("ada").subscribe("a")
    bob = table.join("bob", expiry_s=60)
    bob.publish("a", b"x", 2)
    listener.expect(Publish("a", b"x"))
    after = crashed(table)
    listener = after.join("ada").subscribe("a")
    bob = after.join("bob", clean=False, expiry_s=60, is_present=True)
    bob.send(Publish("a", b"x", 2, dup=True, packet_id=1))
    bob.expect(Pubrec(1))
    listener.expect()
    bob.send(Pubrel(1)).expect()
    after.commit()
    bob.expect(Pubcomp(1))
    bob.send(Publish("a", b"another", 2, packet_id=1))
    listener.expect(Publish("a", b"another"))


def test_a_message_and_that_it_was_taken_are_on_disk_together() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a", qos=2)
    table.join("cyn", expiry_s=60).subscribe("a", qos=1)
    bob = table.join("bob", expiry_s=60)
    before = len(table.log)
    bob.publish("a", b"x", 2)
    for left in range(before, len(table.log) + 1):
        after = crashed(table, left)
        waiting = [len(after.session(name).unacknowledged) for name in ("ada", "cyn")]
        assert waiting == [len(after.session("bob").received)] * 2


def test_what_somebody_was_told_is_cleared_stays_cleared() -> None:
    table = Table(is_durable=True)
    ada, bob = table.join("ada"), table.join("bob")
    ada.publish("a", b"x", 1, retain=True)
    table.commit()
    on_disk = len(table.log)
    ada.publish("a", b"", 1, retain=True)
    bob.publish("a", b"", 1, retain=True)
    assert bob.hear() == []
    assert crashed(table, on_disk).broker.retained.get("a") is not None
    table.commit()
    assert [type(each) for each in bob.hear()] == [Puback]


def test_retained_messages() -> None:
    table = Table(is_durable=True)
    bob = table.join("bob")
    bob.publish("a", b"old", 1, retain=True)
    bob.publish("a", b"new", 1, retain=True, properties=Properties(message_expiry_s=10))
    bob.publish("b", b"x", 0, retain=True)
    bob.publish("c", b"x", 2, retain=True)
    bob.publish("c", b"", 2, retain=True)
    table.wait(3_000)
    after = crashed(table)
    ada = after.join("ada").subscribe("#", qos=2)
    left = Properties(message_expiry_s=7)
    assert sorted(ada.hear(), key=str) == [
        Publish("a", b"new", 1, retain=True, packet_id=1, properties=left),
        Publish("b", b"x", retain=True),
    ]


def test_sessions_end_when_they_would_have() -> None:
    table = Table(Limits(session_expiry_s=FOREVER), is_durable=True)
    table.join("left", expiry_s=10).drop()
    table.join("stays", expiry_s=FOREVER).drop()
    table.wait(6_000)
    table.join("there", expiry_s=10)
    table.join("fleeting")
    after = crashed(table)
    assert list(after.broker.sessions) == ["left", "stays", "there"]
    after.wait(4_000)
    assert list(after.broker.sessions) == ["stays", "there"], "one left before the crash"
    after.wait(6_000)
    assert list(after.broker.sessions) == ["stays"], "the other with it"
    after.wait(10**12)
    assert list(after.broker.sessions) == ["stays"]


def test_a_session_that_ends_is_forgotten_on_disk_too() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=10).drop()
    table.join("bob", expiry_s=10).send(Disconnect(properties=Properties(session_expiry_s=0)))
    table.join("cyn", expiry_s=10).drop()
    table.join("cyn", clean=False, expiry_s=0, is_present=True)
    table.wait(10_000)
    assert crashed(table).broker.sessions == {}


def test_the_will_of_a_client_that_was_there_is_published() -> None:
    table = Table(is_durable=True)
    prompt = Will("will", b"prompt", 1)
    slow = Will("will", b"slow", 1, properties=Properties(will_delay_s=5))
    table.join("watcher", expiry_s=600).subscribe("will", qos=1)
    table.join("ada", expiry_s=60, will=prompt)
    table.join("bob", expiry_s=60, will=slow)
    table.join("cyn", expiry_s=60, will=prompt).send(Disconnect())
    after = crashed(table)
    watcher = after.join("watcher", clean=False, expiry_s=600, is_present=True)
    after.wait(0)
    watcher.expect(Publish("will", b"prompt", 1, packet_id=1))
    after.wait(5_000)
    watcher.expect(Publish("will", b"slow", 1, packet_id=2))
    once_more = crashed(after)
    once_more.wait(100_000)
    assert once_more.broker.sessions["watcher"].last_packet_id == 2


def test_a_will_that_was_due_does_not_prolong_its_session() -> None:
    table = Table(is_durable=True)
    slow = Will("will", properties=Properties(will_delay_s=5))
    table.join("ada", expiry_s=10, will=slow).drop()
    table.wait(8_000)
    after = crashed(table)
    assert after.session("ada").will is None
    after.wait(2_000)
    assert after.broker.sessions == {}


def test_what_the_log_says_twice_or_without_a_session_does_no_harm() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a", qos=1).drop()
    table.join("bob").publish("a", b"x", 1)
    table.commit()
    strange: list[session_records.SessionLogRecord] = [
        session_records.Done("nobody", 1),
        session_records.Unsubscribed("ada", "nothing"),
        session_records.Released("ada", 99),
        session_records.Completed("ada", 99),
        session_records.RetainedCleared("nothing"),
        session_records.Retained(99),
    ]
    log = [*table.log, *map(encode_record, strange)]
    after, restored = table.after_crash(log)
    assert restored.unusable == 0
    assert described(after.broker) == described(table.broker)


def test_a_former_channel_of_notices_is_the_present_one() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a").drop()
    former = session_records.Subscribed("ada", "$accord/past", 1, False, False, 0, "", "")
    after, _ = table.after_crash([*table.log, encode_record(former)])
    assert list(after.session("ada").subscriptions) == ["a", "$accord/history"]
    left = session_records.Unsubscribed("ada", "$accord/past")
    after, _ = table.after_crash([*table.log, encode_record(former), encode_record(left)])
    assert list(after.session("ada").subscriptions) == ["a"]


def test_damage_is_told_and_the_rest_is_used() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a", qos=1)
    table.join("bob", V311, clean=False)
    bad: list[bytes] = [
        b"",
        b"\xff",
        encode_record(session_records.Queued("ada", 1, 99, 1, False, ())),
        encode_record(session_records.Subscribed("ada", "b", 0, False, False, 0, "n >", "")),
        encode_record(session_records.AtomicRecords((b"\xff",))),
        encode_record(
            session_records.Stored(1, "a", b"", 1, False, "", START_MS, 0, -1, b"\xff\xff")
        ),
    ]
    after, restored = table.after_crash([*table.log, *bad])
    assert (restored.unusable, len(restored.problems)) == (len(bad), 5)
    assert restored.problems[0].startswith(f"record {len(table.log) + 1}: ")
    assert (restored.sessions, restored.subscriptions) == (2, 1)
    assert list(after.broker.sessions) == ["ada", "bob"]


def test_the_report_counts_what_came_back() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a", "b", qos=1)
    bob = table.join("bob")
    bob.publish("a", b"x", 1, retain=True)
    bob.publish("b", b"x", 1)
    table.turn()
    _, restored = table.after_crash(table.log)
    counts = (restored.sessions, restored.subscriptions, restored.messages, restored.retained)
    assert counts == (1, 2, 2, 1)
    assert restored.records == len(table.log)


def test_new_messages_get_numbers_of_their_own_after_a_crash() -> None:
    table = Table(is_durable=True)
    table.join("ada", expiry_s=60).subscribe("a", qos=1).drop()
    table.join("bob").publish("a", b"1", 1)
    after = crashed(table)
    after.join("bob").publish("a", b"2", 1)
    once_more = crashed(after)
    waiting = once_more.session("ada").unacknowledged
    assert [delivery.message.payload for delivery in waiting.values()] == [b"1", b"2"]


def test_a_node_without_a_disk_records_nothing() -> None:
    table = Table(is_durable=False, kept=["a"])
    table.join("ada", expiry_s=60).subscribe("a", qos=2)
    table.join("bob", expiry_s=60).publish("a", b"x", 2, retain=True)
    assert (table.hub.appended, table.log, table.hub.kept) == (0, [], [])


# Snapshots.


def test_a_snapshot_is_shorter_than_the_log() -> None:
    table = Table(is_durable=True)
    ada = table.join("ada", expiry_s=60).subscribe("a", qos=1)
    bob = table.join("bob")
    for number in range(1, 20):
        bob.publish("a", b"x", 1)
        ada.send(Puback(number))
    bob.publish("a", b"last", 1)
    table.commit()
    kinds = [type(decode_record(data)) for data in snapshot(table.broker)]
    assert kinds[:2] == [session_records.SessionOpened, session_records.Subscribed]
    assert kinds[2:] == [session_records.StoredRun, session_records.QueuedRun]


def test_a_message_for_many_is_stored_once_in_a_snapshot() -> None:
    table = Table(is_durable=True)
    for name in ("ada", "bob"):
        table.join(name, expiry_s=60).subscribe("a", qos=1)
    table.join("cyn").publish("a", b"x", 1, retain=True)
    kinds = [type(decode_record(data)) for data in snapshot(table.broker)]
    assert kinds.count(session_records.Stored) == 1
    assert kinds.count(session_records.Queued) == 2


def test_what_waits_for_a_client_that_is_away_was_not_sent() -> None:
    table = Table(is_durable=True)
    ada = table.join("ada", expiry_s=60).subscribe("a", qos=1)
    bob = table.join("bob")
    bob.publish("a", b"sent", 1)
    ada.drop()
    bob.publish("a", b"not sent", 1)
    table.compact()
    ada = crashed(table).join("ada", clean=False, expiry_s=60, is_present=True)
    ada.expect(
        Publish("a", b"sent", 1, dup=True, packet_id=1), Publish("a", b"not sent", 1, packet_id=2)
    )


def test_a_snapshot_tells_how_far_each_message_is() -> None:
    table = Table(Limits(inflight=3), is_durable=True)
    ada = table.join("ada", expiry_s=60).subscribe("a", qos=2)
    bob = table.join("bob", expiry_s=60)
    for number in range(1, 5):
        bob.publish("a", bytes([number]), 2)
    table.commit()
    ada.send(Pubrec(1), Pubrec(2))
    table.commit()
    ada.send(Pubcomp(1))
    bob.send(Pubrel(1))
    table.compact()
    assert described(crashed(table).broker) == described(table.broker)
    ada = crashed(table).join("ada", clean=False, expiry_s=60, is_present=True)
    ada.expect(
        Pubrel(2),
        Publish("a", b"\3", 2, dup=True, packet_id=3),
        Publish("a", b"\4", 2, dup=True, packet_id=4),
    )
    assert set(crashed(table).session("bob").received) == {2, 3, 4}


# Anything, and then a crash.


def described(broker: Broker) -> dict[str, dict[str, object]]:
    """The state of a broker that must be the same after a crash."""
    state: dict[str, dict[str, object]] = {
        name: describe(session) for name, session in broker.sessions.items() if session.is_durable
    }
    retained = {each.channel: each.payload for each in broker.retained.all()}
    state[" retained"] = dict(retained)
    return state


def describe(session: MqttSession) -> dict[str, object]:
    return {
        "version": session.version,
        "expiry_s": session.expiry_s,
        "subscriptions": {
            name: (
                each.pattern,
                each.group,
                each.qos,
                each.is_local_excluded,
                each.keeps_retained_flag,
                each.identifier,
                each.predicate,
                each.where,
                each.xpath,
            )
            for name, each in session.subscriptions.items()
        },
        "messages": [
            (
                packet_id,
                each.qos,
                each.message.channel,
                each.message.payload,
                each.is_retained,
                each.identifiers,
                each.stage == RELEASED,
            )
            for packet_id, each in session.unacknowledged.items()
        ],
        "received": {number for number, is_taken in session.received.items() if is_taken},
    }


class Crashes(World):
    """The node goes down at any moment, and its log is cut anywhere behind what was committed."""

    is_durable = True
    can_crash = True

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        before = self.table
        before.turn()
        left = data.draw(st.integers(before.on_disk(), len(before.log)))
        self.table = crashed(before, left)
        for name in CLIENTS:
            self.check_client(name)
        found = self.table.broker.retained.get(RETAINED)
        payload = found.payload if found is not None else b""
        assert payload in [each for _, each in self.retained]
        self.numbers += 1
        self.retained = [(self.numbers, payload)]
        self.retaining = {}
        self.watch()

    def check_client(self, name: str) -> None:
        """All that was promised to a client is there; it is to the model what there is."""
        client = self.clients[name]
        client.hang_up()
        session = self.table.broker.sessions.get(name)
        if session is None:
            assert not client.is_session_promised
            client.forget_session()
            return
        found = {pattern: each.qos for pattern, each in session.subscriptions.items()}
        if client.is_session_promised:
            for pattern, qos in client.promised.items():
                assert found.get(pattern) == qos
        else:
            client.promised = {}
        for wanted in client.wanted.values():
            wanted.is_due = wanted.is_due and wanted.is_safe
        left_ms = session.ends_ms - session.expiry_s * 1_000
        assert left_ms <= self.table.now_ms
        assert left_ms >= client.welcomed_ms or not client.is_session_promised
        client.has_session = True
        client.subscriptions = found
        client.expiry_s = session.expiry_s
        client.left_ms = left_ms
        client.will = None

    @rule()
    def compact(self) -> None:
        self.table.compact()
        self.settle()

    @rule()
    def a_crash_would_change_nothing_that_is_recorded(self) -> None:
        table = self.table
        table.turn()
        state = described(table.broker)
        from_log = crashed(table)
        assert described(from_log.broker) == state
        from_snapshot, restored = table.after_crash(snapshot(table.broker))
        assert restored.problems == []
        assert described(from_snapshot.broker) == state
        for name, session in table.broker.sessions.items():
            if session.is_durable:
                for other in (from_log, from_snapshot):
                    for packet_id, delivery in session.unacknowledged.items():
                        again = other.session(name).unacknowledged[packet_id]
                        assert again.was_sent or not delivery.was_sent
            if session.is_durable and session.connection is None:
                for other in (from_log, from_snapshot):
                    found = other.session(name)
                    assert (found.ends_ms, found.will) == (session.ends_ms, session.will)
                    assert found.will_due_ms == session.will_due_ms
                sent = [each.was_sent for each in session.unacknowledged.values()]
                queue = from_snapshot.session(name).unacknowledged.values()
                assert [each.was_sent for each in queue] == sent
        twice, _ = from_snapshot.after_crash(snapshot(from_snapshot.broker))
        assert described(twice.broker) == state


Crashes.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestCrashes = Crashes.TestCase


def test_messages_that_can_not_be_sent_are_left_out() -> None:
    table = Table(is_durable=True)
    sane = session_records.Stored(1, "a", b"x", 1, True, "bob", START_MS, 0, 2**32 - 1, b"")
    damaged = [
        replace(sane, number=2, expiry_s=2**40),
        replace(sane, number=3, qos=-5),
        replace(sane, number=4, channel="a\0"),
        replace(sane, number=5, channel="a" * 70_000),
        replace(sane, number=6, block=b"\x23\0\7"),
        replace(sane, number=7, event=-1),
        replace(sane, number=8, event=2**63),
        replace(sane, number=9, event_node="x\0", event_number=1),
        replace(sane, number=10, event_node="x", event_number=-2),
        replace(sane, number=11, event_node="x", event_number=2**63),
    ]
    records = [
        record
        for each in (sane, *damaged)
        for record in (each, session_records.Retained(each.number))
    ]
    broken = b"\x9b\xa3msg\1\xa1\xff"  # no UTF-8
    _, restored = table.after_crash([*map(encode_record, records), broken])
    assert (restored.retained, restored.unusable) == (1, 11)
