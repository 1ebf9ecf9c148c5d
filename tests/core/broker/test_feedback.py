"""A source, and receivers who answer it: at one node, and at nodes that hear each other."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.broker.dialogue import Peer, Table
from tests.core.broker.test_overlay_bridge import Net

from accord.core.broker.feedback import (
    DAMAGED,
    FORGED,
    NO_RECEIPT,
    NOT_LISTENING,
    SOURCE_GONE,
    TOO_LARGE,
    UNKNOWN_NODE,
    FeedbackHandler,
)
from accord.core.model.receipts import ReceiptSigner
from accord.core.model.units import DEFAULT_IMPORTANCE
from accord.core.monitoring.ledger import OUTCOMES
from accord.core.mqtt.codes import V311, Reason
from accord.core.mqtt.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Will
from accord.core.mqtt.properties import Properties, forwarded_block, read_block
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.signalling import TransitEvent
from accord.core.policy.policies import Policies
from accord.core.policy.policy_set import parse_policy_set
from accord.core.router.limits import Limits
from accord.core.router.rights import Rights

FEEDBACK = "$accord/feedback"
WANTED = Properties(response_topic=FEEDBACK, correlation_data=b"mine", user=(("level", "3"),))
SECRET = bytes(range(32))


def table(limits: Limits | None = None, *, is_durable: bool = False) -> Table:
    made = Table(limits or Limits(), is_durable=is_durable, kept=["kept"])
    made.broker.feedback = FeedbackHandler(made.broker, SECRET)
    return made


def only(packets: list[Packet]) -> Publish:
    found = [each for each in packets if isinstance(each, Publish)]
    assert len(found) == 1, packets
    return found[0]


def answer_topic(publish: Publish) -> str:
    topic = publish.properties.response_topic
    assert topic is not None
    return topic


def refused(peer: Peer, topic: str, payload: bytes = b"", **said: object) -> Puback:
    packet_id = peer.publish(topic, payload, 1, properties=Properties(**said))  # type: ignore[arg-type]
    acknowledged = peer.hear()[-1]
    assert isinstance(acknowledged, Puback)
    assert acknowledged.packet_id == packet_id
    assert acknowledged.reason >= Reason.UNSPECIFIED_ERROR
    return acknowledged


def shed(at: Table) -> dict[str, int]:
    return dict(at.hub.counters.shed_causes.counts)


def meet(at: Table, qos: int = 1) -> tuple[Peer, Peer, Publish]:
    """A source, a receiver, and the event as it got it."""
    source = at.join("camera").subscribe(FEEDBACK, qos=qos)
    receiver = at.join("desk").subscribe("uav/#", FEEDBACK, qos=qos)
    source.publish("uav/x", b"image", properties=WANTED)
    return source, receiver, only(receiver.hear())


def test_a_receiver_answers_and_the_source_answers_back() -> None:
    at = table()
    source, receiver, event = meet(at)
    topic = answer_topic(event)
    assert topic.startswith(FEEDBACK + "/")
    assert event.properties.correlation_data == b"mine"
    assert event.properties.user == (("level", "3"),)
    echo = Properties(correlation_data=b"mine", content_type="text/plain", user=(("ok", "yes"),))
    packet_id = receiver.publish(topic, b"seen", 1, properties=echo)
    receiver.expect(Puback(packet_id))
    answer = only(source.hear())
    assert (answer.topic, answer.payload, answer.qos) == (FEEDBACK, b"seen", 1)
    assert answer.properties.correlation_data == b"mine"
    assert answer.properties.content_type == "text/plain"
    facts = dict(answer.properties.user)
    assert facts.pop("accord-event")
    assert facts == {
        "ok": "yes",
        "accord-channel": "uav/x",
        "accord-publisher": "desk",
        "accord-node": "",
    }
    source.publish(answer_topic(answer), b"thanks", 1)
    back = only(receiver.hear())
    assert (back.topic, back.payload, back.properties.correlation_data) == (
        *(FEEDBACK, b"thanks"),
        b"mine",
    )
    assert dict(back.properties.user)["accord-publisher"] == "camera"
    receiver.publish(answer_topic(back), b"again", 1)
    assert only(source.hear()).payload == b"again"
    assert shed(at) == {}
    at.check_invariants()


def test_each_side_gets_its_own_correlation_data() -> None:
    """Whatever the other one sends: the receipt has it."""
    at = table()
    source, receiver, event = meet(at)
    receiver.publish(answer_topic(event), b"", 1, properties=Properties(correlation_data=b"yours"))
    answer = only(source.hear())
    assert answer.properties.correlation_data == b"mine"
    source.publish(answer_topic(answer), b"", 1, properties=Properties(correlation_data=b"odd"))
    assert only(receiver.hear()).properties.correlation_data == b"yours"


def test_an_event_without_a_wish_stays_as_it_is() -> None:
    at = table()
    receiver = at.join("desk").subscribe("uav/#")
    source = at.join("camera")
    for topic in ("reply/here", "$accord/feedbacks", None):
        properties = Properties(response_topic=topic, correlation_data=b"mine")
        source.publish("uav/x", properties=properties)
        assert only(receiver.hear()).properties == properties


def test_a_receiver_of_an_older_version_gets_the_event_as_always() -> None:
    at = table()
    old = at.join("old", V311).subscribe("uav/#")
    at.join("camera").publish("uav/x", b"image", properties=WANTED)
    assert only(old.hear()).payload == b"image"


def test_nobody_else_hears_answers() -> None:
    at = table()
    curious = at.join("curious").subscribe("$accord/#", FEEDBACK, FEEDBACK + "/#")
    source, receiver, event = meet(at)
    receiver.publish(answer_topic(event), b"seen", 1)
    assert only(source.hear()).payload == b"seen"
    assert curious.hear() == []


def test_answers_are_given_by_who_has_no_other_rights() -> None:
    nothing = Rights()
    assert nothing.may_publish(FEEDBACK + "/anything")
    assert nothing.may_subscribe(FEEDBACK)
    assert not nothing.may_subscribe(FEEDBACK + "/#")


# What is no genuine receipt.


def test_forged_receipts_are_refused_and_counted() -> None:
    at = table()
    source, receiver, _ = meet(at)
    forged = ReceiptSigner("", bytes(32)).make("camera", "", 1, "uav/x", None)
    answer = refused(receiver, f"{FEEDBACK}/{forged}", b"gotcha")
    assert answer.reason == Reason.NOT_AUTHORIZED
    assert answer.properties.reason_string == "the receipt was not made by this node"
    assert shed(at) == {FORGED: 1}
    batch = at.hub.ledger.take()
    assert batch is not None
    noted = [(row[3], row[4], OUTCOMES[row[6]]) for row in batch.rows if row[12] == FORGED]
    assert noted == [(FEEDBACK, "desk", "refused")]
    assert source.hear() == []


def test_altered_and_truncated_receipts_are_refused() -> None:
    at = table()
    source, receiver, event = meet(at)
    topic = answer_topic(event)
    start = len(FEEDBACK) + 1
    for place in range(start, len(topic)):
        other = "A" if topic[place] != "A" else "B"
        refused(receiver, topic[:place] + other + topic[place + 1 :])
        refused(receiver, topic[:place])
    refused(receiver, FEEDBACK)
    refused(receiver, topic + "/more")
    counted = shed(at)
    assert counted[FORGED] > 0
    assert counted[FORGED] + counted[NO_RECEIPT] == 2 * (len(topic) - start) + 2
    assert source.hear() == []
    receiver.publish(topic, b"genuine", 1)
    assert only(source.hear()).payload == b"genuine"


def test_no_event_can_be_published_with_the_receipt_of_another() -> None:
    """Those who answer it would answer somebody who never asked them."""
    at = table()
    _, receiver, event = meet(at)
    answer = refused(receiver, "uav/y", response_topic=answer_topic(event))
    assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
    assert "receipts are the node's" in (answer.properties.reason_string or "")
    assert receiver.hear() == []


def test_what_an_answer_says_of_its_origin_is_the_node_s() -> None:
    at = table()
    source, receiver, event = meet(at)
    lie = refused(receiver, answer_topic(event), user=(("accord-publisher", "boss"),))
    assert lie.reason == Reason.PAYLOAD_FORMAT_INVALID
    assert source.hear() == []


# Sources that can't be answered.


def test_a_source_that_is_gone_or_does_not_listen() -> None:
    at = table()
    receiver = at.join("desk").subscribe("uav/#")
    source = at.join("camera")
    source.publish("uav/x", properties=WANTED)
    topic = answer_topic(only(receiver.hear()))
    assert refused(receiver, topic).properties.reason_string == NOT_LISTENING
    source.drop()
    assert refused(receiver, topic).properties.reason_string == SOURCE_GONE
    assert shed(at) == {NOT_LISTENING: 1, SOURCE_GONE: 1}
    at.join("camera").subscribe(FEEDBACK)
    packet_id = receiver.publish(topic, b"welcome back", 1)
    receiver.expect(Puback(packet_id))


def test_another_user_with_the_name_of_the_source_hears_nothing() -> None:
    at = table()
    source, receiver, event = meet(at)
    at.broker.set_owner(at.session("camera"), "somebody else")
    assert refused(receiver, answer_topic(event)).properties.reason_string == SOURCE_GONE
    assert source.hear() == []


def test_an_answer_waits_for_a_source_that_is_away() -> None:
    at = table(is_durable=True)
    source = at.join("camera", expiry_s=100).subscribe(FEEDBACK, qos=1)
    receiver = at.join("desk").subscribe("uav/#")
    source.publish("uav/x", properties=WANTED)
    topic = answer_topic(only(receiver.hear()))
    source.drop()
    packet_id = receiver.publish(topic, b"seen", 1)
    assert receiver.hear() == []  # not before it is on disk
    at.commit()
    receiver.expect(Puback(packet_id))
    after, _ = at.after_crash(at.log[: at.on_disk()])
    after.broker.feedback = FeedbackHandler(after.broker, SECRET)
    again = after.join("camera", clean=False, expiry_s=100, is_present=True)
    answer = only(again.hear())
    assert (answer.payload, answer.properties.correlation_data) == (b"seen", b"mine")
    desk = after.join("desk").subscribe(FEEDBACK)
    again.publish(answer_topic(answer), b"thanks", 1)
    assert only(desk.hear()).payload == b"thanks"


def test_an_answer_of_qos_2_is_taken_once() -> None:
    at = table()
    source, receiver, event = meet(at, qos=2)
    answer = Publish(answer_topic(event), b"once", 2, packet_id=77)
    receiver.send(answer)
    receiver.send(Publish(answer.topic, b"once", 2, dup=True, packet_id=77))
    assert receiver.hear() == [Pubrec(77), Pubrec(77)]
    receiver.send(Pubrel(77)).expect(Pubcomp(77))
    assert only(source.hear()).qos == 2


def test_what_the_source_can_not_take_is_refused() -> None:
    at = table()
    source = at.join("camera", properties=Properties(maximum_packet_size=1_000))
    source.subscribe(FEEDBACK)
    receiver = at.join("desk").subscribe("uav/#")
    source.publish("uav/x", properties=WANTED)
    topic = answer_topic(only(receiver.hear()))
    assert refused(receiver, topic, bytes(1_000)).reason == Reason.QUOTA_EXCEEDED
    assert shed(at) == {TOO_LARGE: 1}
    receiver.publish(topic, b"small", 1)
    assert only(source.hear()).payload == b"small"


def test_answers_are_bounded() -> None:
    """What the node adds must not make more of an answer than a client need understand."""
    at = table()
    source, receiver, event = meet(at)
    topic = answer_topic(event)
    many = tuple((str(number), "") for number in range(1_997))
    assert refused(receiver, topic, user=many).reason == Reason.QUOTA_EXCEEDED
    long = refused(receiver, topic, correlation_data=bytes(2_000))
    problem = "correlation data: 2000 bytes, at most 1024 with feedback"
    assert long.properties.reason_string == problem
    assert shed(at) == {TOO_LARGE: 2}
    receiver.publish(topic, b"", 1, properties=Properties(user=many[1:]))
    assert len(only(source.hear()).properties.user) == 2_000


def test_too_much_correlation_data_is_refused_with_the_event() -> None:
    at = table()
    source = at.join("camera")
    answer = refused(source, "uav/x", response_topic=FEEDBACK, correlation_data=bytes(1_025))
    assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID


def test_a_will_can_be_answered() -> None:
    at = table()
    will = Will("uav/will", b"gone", properties=Properties(response_topic=FEEDBACK))
    source = at.join("camera", expiry_s=100, will=will).subscribe(FEEDBACK, qos=1)
    receiver = at.join("desk").subscribe("uav/#")
    source.drop()
    receiver.publish(answer_topic(only(receiver.hear())), b"sorry", 1)
    again = at.join("camera", clean=False, expiry_s=100, is_present=True)
    assert only(again.hear()).payload == b"sorry"


def test_an_answer_is_as_important_as_its_channel() -> None:
    at = table()
    book = parse_policy_set('[[policies]]\nname = "images"\nchannel = "uav/#"\nimportance = 6\n')
    at.broker.switch(book, Policies(book))
    source, receiver, event = meet(at)
    source.is_slow = True
    receiver.publish(answer_topic(event), b"seen", 1)
    waiting = at.session("camera").outbox.depth()
    assert waiting[6] == 1
    assert sum(waiting) == 1


def test_many_receipts_leave_no_trace() -> None:
    """Each is a topic of its own; none may be remembered as a channel."""
    at = table()
    source, receiver, _ = meet(at)
    before = len(at.broker.router._fan_outs)
    for number in range(50):
        source.publish("uav/x", properties=WANTED)
        receiver.publish(answer_topic(only(receiver.hear())), str(number).encode(), 1)
        receiver.hear()
    assert len(source.hear()) == 50
    assert len(at.broker.router._fan_outs) <= before + 1
    publisher = receiver.connection.publisher
    assert publisher is not None
    assert publisher.published_channels() == [FEEDBACK]


# Across nodes.


def linked(names: str = "ab") -> tuple[Net, dict[str, Table]]:
    """Nodes in a line, with real connections to clients at each."""
    net = Net(names)
    tables = {}
    for name, node in net.nodes.items():
        node.broker.feedback = FeedbackHandler(node.broker, name.encode() * 32)
        at = tables[name] = table()
        at.broker, at.hub = node.broker, node.broker.context
        at.now_ms = node.broker.context.now_ms
    return net, tables


def settle(net: Net, tables: dict[str, Table]) -> None:
    net.settle()
    for at in tables.values():
        at.now_ms = at.hub.now_ms
        at.turn()


def meet_abroad(net: Net, tables: dict[str, Table], far: str) -> tuple[Peer, Peer, Publish]:
    source = tables["a"].join("camera").subscribe(FEEDBACK, qos=1)
    receiver = tables[far].join("desk").subscribe("uav/#", FEEDBACK, qos=1)
    settle(net, tables)
    source.publish("uav/x", b"image", 1, properties=WANTED)
    settle(net, tables)
    source.hear()
    return source, receiver, only(receiver.hear())


@pytest.mark.parametrize("names", ["ab", "abc"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_receiver_at_another_node_answers(names: str, qos: int) -> None:
    net, tables = linked(names)
    source, receiver, event = meet_abroad(net, tables, names[-1])
    receiver.publish(answer_topic(event), b"seen", qos)
    settle(net, tables)
    answer = only(source.hear())
    assert (answer.payload, answer.qos) == (b"seen", qos)
    assert answer.properties.correlation_data == b"mine"
    facts = dict(answer.properties.user)
    assert (facts["accord-publisher"], facts["accord-node"]) == ("desk", names[-1])
    assert facts["accord-channel"] == "uav/x"
    receiver.hear()
    source.publish(answer_topic(answer), b"thanks", qos)
    settle(net, tables)
    assert only(receiver.hear()).payload == b"thanks"
    for node in net.nodes.values():
        node.channels.check_invariants()


def test_a_forged_receipt_is_refused_where_it_should_have_come_from() -> None:
    net, tables = linked()
    source, receiver, event = meet_abroad(net, tables, "b")
    topic = answer_topic(event)
    changed = topic[:-9] + ("A" if topic[-9] != "A" else "B") + topic[-8:]
    packet_id = receiver.publish(changed, b"gotcha", 1)
    receiver.expect(Puback(packet_id))
    settle(net, tables)
    assert source.hear() == []
    assert shed(tables["a"]) == {FORGED: 1}
    assert shed(tables["b"]) == {}


def test_a_receipt_of_a_node_that_is_none_goes_nowhere() -> None:
    net, tables = linked()
    _, receiver, _ = meet_abroad(net, tables, "b")
    for number in range(20):
        made = ReceiptSigner(f"nowhere {number}", SECRET).make("camera", "", 1, "uav/x", None)
        answer = refused(receiver, f"{FEEDBACK}/{made}")
        assert answer.properties.reason_string == f"no node 'nowhere {number}' is known here"
    assert shed(tables["b"]) == {UNKNOWN_NODE: 20}
    assert not net.nodes["b"].overlay.sender.buffers


def on_the_way(net: Net, node: str, neighbour: str) -> TransitEvent:
    carried = net.nodes[node].overlay.take(neighbour, 1 << 20, net.now_us)
    assert [each.channel for each in carried] == [FEEDBACK]
    return carried[0]


def test_what_is_damaged_between_nodes_is_counted() -> None:
    net, tables = linked()
    _, receiver, event = meet_abroad(net, tables, "b")
    receiver.publish(answer_topic(event), b"seen", 1)
    carried = on_the_way(net, "b", "a")
    for block in (b"\xff", b"", carried.block[:-1]):
        net.nodes["a"].bridge.on_event(msgspec.structs.replace(carried, block=block))
    for changes in ({"publisher": "\0"}, {"publisher": "x" * 70_000}, {"qos": 3}):
        net.nodes["a"].bridge.on_event(msgspec.structs.replace(carried, **changes))
    assert shed(tables["a"]) == {DAMAGED: 6}


def test_another_node_speaks_for_its_own_clients_only() -> None:
    net, tables = linked()
    source, receiver, event = meet_abroad(net, tables, "b")
    receiver.publish(answer_topic(event), b"seen", 1)
    carried = on_the_way(net, "b", "a")
    said = read_block(carried.block)
    lie = msgspec.structs.replace(said, user=(("accord-node", "a"), ("accord-event", "1")))
    lying = msgspec.structs.replace(carried, block=forwarded_block(lie))
    net.nodes["a"].bridge.on_event(lying)
    tables["a"].turn()
    facts = only(source.hear()).properties.user
    assert [name for name, _ in facts] == [
        *("accord-event", "accord-channel", "accord-publisher"),
        "accord-node",
    ]
    assert dict(facts)["accord-node"] == "b"
    assert dict(facts)["accord-event"] != "1"


@pytest.mark.parametrize(("rights", "importance"), [(None, 6), (Rights(), DEFAULT_IMPORTANCE)])
def test_an_unproved_receipt_lends_no_importance(rights: Rights | None, importance: int) -> None:
    net, tables = linked()
    book = parse_policy_set('[[policies]]\nname = "images"\nchannel = "uav/#"\nimportance = 6\n')
    for node in net.nodes.values():
        node.broker.switch(book, Policies(book))
    _, receiver, event = meet_abroad(net, tables, "b")
    receiver.connection.rights = rights
    receiver.publish(answer_topic(event), b"seen", 1)
    assert on_the_way(net, "b", "a").importance == importance


def test_answers_go_by_the_requirement_of_their_channel() -> None:
    net, tables = linked()
    definition = ChannelDefinition("uav/#", max_delay_us=900_000, template="reliable")
    assert net.nodes["a"].overlay.directory.create(definition) is None
    net.settle()
    receiver = tables["b"].join("desk")
    made = ReceiptSigner("a", b"a" * 32).make("camera", "", 1, "uav/x", None)
    tables["a"].join("camera").subscribe(FEEDBACK, qos=1)
    receiver.publish(f"{FEEDBACK}/{made}", b"seen", 1)
    settle(net, tables)
    delays = [
        flow.requirement.max_delay_us for flow in net.nodes["b"].overlay.routes.flows.values()
    ]
    assert delays == [900_000]
