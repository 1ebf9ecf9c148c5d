"""Answers to and from clients of secondary nodes: x below a and b, y below b and c."""

from __future__ import annotations

from itertools import permutations

import pytest
from msgspec.structs import replace
from tests.core.broker.dialogue import Peer
from tests.core.broker.test_feedback import WANTED, answer_topic, only, refused, shed
from tests.core.broker.tier_net import TierNet

from accord.core.broker.feedback import DAMAGED, FORGED, UNKNOWN_NODE
from accord.core.model.receipts import ReceiptSigner
from accord.core.monitoring.ledger import OUTCOMES
from accord.core.mqtt.codes import Reason
from accord.core.mqtt.packets import Puback, Publish
from accord.core.mqtt.properties import Properties
from accord.core.overlay.signalling import TransitEvent
from accord.core.policy.policies import Policies
from accord.core.policy.policy_set import parse_policy_set
from accord.core.router.rights import FEEDBACK
from accord.core.tiers.child import NO_ROOM
from accord.core.tiers.messages import TierOptions


def tiers(options: TierOptions | None = None) -> TierNet:
    return TierNet("abc", {"x": "ab", "y": "bc"}, options)


def meet(net: TierNet, asks: str, answers: str) -> tuple[Peer, Peer, Publish]:
    """A source at one node, a receiver at another, and the event as it got it."""
    source = net.tables[asks].join("camera").subscribe(FEEDBACK, qos=1)
    receiver = net.tables[answers].join("desk").subscribe("uav/#", FEEDBACK, qos=1)
    net.settle()
    source.publish("uav/x", b"image", 1, properties=WANTED)
    net.settle()
    source.hear()
    return source, receiver, only(receiver.hear())


def heard(peer: Peer) -> list[bytes]:
    return [each.payload for each in peer.hear() if isinstance(each, Publish)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("asks", "answers"), [*permutations("acxy", 2)])
def test_clients_of_all_tiers_answer_each_other(asks: str, answers: str, qos: int) -> None:
    net = tiers()
    source, receiver, event = meet(net, asks, answers)
    receiver.publish(answer_topic(event), b"seen", qos)
    net.settle()
    answer = only(source.hear())
    assert (answer.payload, answer.qos) == (b"seen", min(qos, 1))
    assert answer.properties.correlation_data == b"mine"
    facts = dict(answer.properties.user)
    assert (facts["accord-publisher"], facts["accord-node"]) == ("desk", answers)
    assert facts["accord-channel"] == "uav/x"
    receiver.hear()
    source.publish(answer_topic(answer), b"thanks", qos)
    net.settle()
    back = only(receiver.hear())
    assert back.payload == b"thanks"
    receiver.publish(answer_topic(back), b"again", qos)
    net.settle(1_000)
    assert heard(source) == [b"again"]
    assert all(shed(at) == {} for at in net.tables.values())
    assert all(not each.child.status().waiting for each in net.secondary.values())
    net.check_invariants()


@pytest.mark.parametrize("asks", ["b", "c", "y"])
def test_what_the_dead_parent_had_passed_on_comes_once(asks: str) -> None:
    net = tiers()
    source, receiver, event = meet(net, asks, "x")
    net.deaf["x", "a"] = True  # it is not told any more that its answer has arrived
    receiver.publish(answer_topic(event), b"seen", 1)
    net.settle()
    assert heard(source) == [b"seen"]
    assert net.secondary["x"].child.status().waiting == 1
    net.kill("a")
    net.settle()
    assert net.secondary["x"].child.status().waiting == 0
    assert heard(source) == []


@pytest.mark.parametrize("asks", ["b", "c", "y"])
def test_what_the_dead_parent_had_not_passed_on_goes_by_the_other(asks: str) -> None:
    net = tiers()
    source, receiver, event = meet(net, asks, "x")
    cut_off = net.nodes["a"].overlay
    cut_off.link_down("b", net.now_us)
    for number in range(3):
        packet_id = receiver.publish(answer_topic(event), str(number).encode(), 1)
        assert receiver.hear() == [Puback(packet_id)]
    net.settle()
    assert heard(source) == []
    assert net.secondary["x"].child.status().waiting == 3
    net.kill("a")
    net.settle(500)
    assert sorted(heard(source)) == [b"0", b"1", b"2"]
    assert net.secondary["x"].child.status().waiting == 0


@pytest.mark.parametrize("answers", ["b", "c", "y"])
def test_the_standby_has_what_the_dead_parent_did_not_hand_over(answers: str) -> None:
    net = tiers()
    source, receiver, event = meet(net, "x", answers)
    receiver.publish(answer_topic(event), b"first", 1)
    net.settle()
    assert heard(source) == [b"first"]
    net.deaf["x", "a"] = True
    receiver.publish(answer_topic(event), b"second", 1)
    net.settle()
    assert heard(source) == []
    net.kill("a")
    net.settle(500)
    assert heard(source) == [b"second"]
    net.check_invariants()


def test_a_dead_parent_of_the_source_keeps_nobody_waiting() -> None:
    """The other one has the answer: the child that gave it need not keep it any longer."""
    net = tiers()
    source, receiver, event = meet(net, "y", "x")
    lost = net.nodes["c"].overlay
    lost.link_down("b", net.now_us)  # b does not know yet
    receiver.publish(answer_topic(event), b"seen", 1)
    net.settle()
    assert heard(source) == [b"seen"]
    assert net.secondary["x"].child.status().waiting == 1
    net.kill("c")
    net.settle(500)
    assert net.secondary["x"].child.status().waiting == 0


def test_unsubscribing_costs_the_standby_no_answers() -> None:
    net = tiers()
    source, receiver, event = meet(net, "x", "c")
    other = net.tables["x"].join("other").subscribe("more/#")
    net.settle()
    net.deaf["x", "a"] = True
    receiver.publish(answer_topic(event), b"seen", 1)
    net.settle(10)
    other.drop()  # its needs go with it, as both parents hear
    net.settle()
    net.kill("a")
    net.settle(500)
    assert heard(source) == [b"seen"]


# What does not arrive.


def test_a_node_that_nobody_knows_is_found_out_by_the_parent() -> None:
    net = tiers()
    receiver = net.tables["x"].join("desk")
    made = ReceiptSigner("nowhere", bytes(32)).make("camera", "", 1, "uav/x", None)
    packet_id = receiver.publish(f"{FEEDBACK}/{made}", b"lost", 1)
    receiver.expect(Puback(packet_id))  # it is on its way
    net.settle()
    assert shed(net.tables["a"]) == {UNKNOWN_NODE: 1}
    assert shed(net.tables["x"]) == {}
    batch = net.tables["a"].hub.ledger.take()
    assert batch is not None
    noted = [(row[3], row[4], OUTCOMES[row[6]]) for row in batch.rows if row[12] == UNKNOWN_NODE]
    assert noted == [(FEEDBACK, "desk", "refused")]
    assert net.secondary["x"].child.status().waiting == 0


def test_forged_receipts_are_refused_by_the_secondary_node_itself() -> None:
    net = tiers()
    source, receiver, event = meet(net, "x", "c")
    forged = ReceiptSigner("x", bytes(32)).make("camera", "", 1, "uav/x", None)
    receiver.publish(f"{FEEDBACK}/{forged}", b"gotcha", 1)
    net.settle()
    assert heard(source) == []
    assert shed(net.tables["x"]) == {FORGED: 1}
    receiver.publish(answer_topic(event), b"genuine", 1)
    net.settle()
    assert heard(source) == [b"genuine"]


def test_a_child_that_has_left_is_not_known_any_more() -> None:
    net = tiers()
    _, receiver, event = meet(net, "x", "c")
    late = replace(_passed_on(net, receiver, event), routes=())
    net.leave("x")
    net.settle()
    receiver.hear()
    answer = refused(receiver, answer_topic(event))
    assert answer.properties.reason_string == "no node 'x' is known here"
    net.nodes["a"].bridge.on_event(late)
    assert shed(net.tables["a"]) == {UNKNOWN_NODE: 1}


def _passed_on(net: TierNet, receiver: Peer, event: Publish) -> TransitEvent:
    """An answer as c gives it to its neighbour."""
    receiver.publish(answer_topic(event), b"seen", 1)
    overlay = net.nodes["c"].overlay
    overlay.advance(net.now_us)
    taken = overlay.take("b", 1 << 20, net.now_us)
    assert taken
    return taken[0]


def test_answers_are_refused_where_there_is_no_room_on_the_way_up() -> None:
    net = tiers(TierOptions(up_events=3))
    source, receiver, event = meet(net, "c", "x")
    net.deaf["a", "x"] = net.deaf["b", "x"] = True
    for number in range(3):
        receiver.publish(answer_topic(event), str(number).encode(), 1)
    receiver.hear()
    answer = refused(receiver, answer_topic(event), b"too many")
    assert (answer.reason, answer.properties.reason_string) == (Reason.QUOTA_EXCEEDED, NO_ROOM)
    assert shed(net.tables["x"]) == {NO_ROOM: 1}
    net.deaf.clear()
    net.settle(500)
    assert sorted(heard(source)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("block", [b"", b"\xff"])
def test_what_a_child_damages_is_counted(block: bytes) -> None:
    net = tiers()
    event = TransitEvent(
        "x", 0, 0, (), FEEDBACK, b"", block, 7, child="x", child_number=-5, importance=99
    )
    assert net.children_of("a").publish_event(event, is_echoed=False)
    assert shed(net.tables["a"]) == {DAMAGED: 1}


def test_a_child_can_not_lend_more_importance_than_there_is() -> None:
    net = tiers()
    source, receiver, event = meet(net, "c", "x")
    net.deaf["a", "x"] = True
    receiver.publish(answer_topic(event), b"seen", 1)
    (up,) = net.secondary["x"].child.take("a", 1 << 20, net.now_us)
    assert net.children_of("a").publish_event(replace(up.event, importance=99), is_echoed=False)
    net.settle()
    assert heard(source) == [b"seen"]


def test_answers_are_as_important_as_policies_say_of_their_channel() -> None:
    net = tiers()
    source, receiver, event = meet(net, "c", "x")
    book = parse_policy_set('[[policies]]\nname = "images"\nchannel = "uav/#"\nimportance = 6\n')
    net.tables["x"].broker.switch(book, Policies(book))
    net.deaf["a", "x"] = True
    receiver.publish(answer_topic(event), b"seen", 1, properties=Properties())
    (up,) = net.secondary["x"].child.take("a", 1 << 20, net.now_us)
    assert up.event.importance == 6
    assert heard(source) == []
