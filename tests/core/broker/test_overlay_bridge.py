"""Two and three nodes, each a broker and an overlay, that hear each other without a network."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from accord.core.broker import overlay_bridge as abroad_module
from accord.core.broker.broker import Broker, SubscriptionPredicate, make_message
from accord.core.broker.delivery import ClientDelivery
from accord.core.broker.overlay_bridge import OverlayBridge
from accord.core.broker.session import MqttSession
from accord.core.channels.channels import Channels
from accord.core.mqtt.packets import TopicFilter
from accord.core.mqtt.properties import Properties
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.validation import DAMAGED
from accord.core.policy.policies import Entity
from accord.core.router.limits import Limits
from accord.journal.events import decode_event, encode_kept

START_MS = 1_700_000_000_000


class Node:
    def __init__(self, name: str, now_us: Callable[[], int]) -> None:
        self.name = name
        self.broker = Broker(
            Limits(), now_ms=START_MS, node=name, kept=["kept"], new_client_id=lambda: "auto"
        )
        self.bridge = OverlayBridge(self.broker, now_us)
        self.overlay = Overlay(name, 1, OverlayOptions(), lambda: 0.5, self.bridge.on_interest)
        self.channels = Channels(self.overlay)
        self.broker.bridge = self.bridge
        self.bridge.join(self.channels)

    def subscriber(self, pattern: str, where: str = "", qos: int = 1) -> MqttSession:
        opened = self.broker.open_session(f"at {self.name}", is_clean=True)
        assert opened is not None
        session, _ = opened
        session.is_connected = True
        refusal = self.broker.subscribe(
            session, TopicFilter(pattern, qos), 0, SubscriptionPredicate.parse(where, "")
        )
        assert refusal is None
        return session

    def publish(
        self,
        channel: str,
        payload: bytes = b"payload",
        *,
        qos: int = 1,
        is_retained: bool = False,
        expiry_s: int | None = None,
        **attributes: str,
    ) -> int:
        broker = self.broker
        properties = Properties(message_expiry_s=expiry_s, user=tuple(attributes.items()))
        now_ms = broker.context.now_ms
        message = make_message(channel, payload, qos, is_retained, "camera", now_ms, properties)
        way = broker.fan_out_for(Entity("camera", node=self.name), channel)
        broker.context.assign_number(message, way.channel_fan_out.counts)
        return broker.publish(message, way)

    def hand_over(self) -> None:
        for arrived in self.overlay.deliveries:
            self.bridge.on_event(arrived)
        self.overlay.deliveries.clear()


class Net:
    """In a line, in the order of their names."""

    def __init__(self, names: str) -> None:
        self.now_us = 0
        self.nodes = {name: Node(name, lambda: self.now_us) for name in names}
        for one, other in pairwise(names):
            self.nodes[one].overlay.link_up(other, 0)
            self.nodes[other].overlay.link_up(one, 0)
        self.settle()

    def settle(self, ms: int = 200) -> None:
        for _ in range(ms):
            self.now_us += 1_000
            for node in self.nodes.values():
                node.broker.context.now_ms = START_MS + self.now_us // 1_000
                node.channels.advance(self.now_us)
                node.hand_over()
            for node in self.nodes.values():
                self._exchange(node)

    def _exchange(self, node: Node) -> None:
        sends = list(node.overlay.sends)
        node.overlay.sends.clear()
        for neighbour, message in sends:
            self.nodes[neighbour].overlay.receive(node.name, message, self.now_us)
        for neighbour in list(node.overlay.neighbours):
            for event in node.overlay.take(neighbour, 1 << 20, self.now_us):
                node.bridge.on_sent(neighbour, event)
                other = self.nodes[neighbour]
                other.overlay.receive(node.name, event, self.now_us)
                other.hand_over()


def got(session: MqttSession) -> list[bytes]:
    return [each.message.payload for each in _deliveries(session)]


def _deliveries(session: MqttSession) -> list[ClientDelivery]:
    return list(session.unacknowledged.values())


def test_events_reach_subscribers_at_other_nodes_as_their_predicates_say() -> None:
    net = Net("abc")
    session = net.nodes["c"].subscriber("uav/#", "altitude_m > 300")
    net.settle()
    assert net.nodes["a"].publish("uav/x", b"low", altitude_m="100") == 0
    assert net.nodes["a"].publish("uav/x", b"high", altitude_m="400") == 1
    net.settle()
    assert got(session) == [b"high"]
    (delivery,) = _deliveries(session)
    assert delivery.message.properties.user == (("altitude_m", "400"),)
    assert (delivery.message.publisher, delivery.qos) == ("camera", 1)


def test_what_came_from_elsewhere_is_not_sent_on() -> None:
    net = Net("abc")
    sessions = [net.nodes[name].subscriber("#") for name in "abc"]
    net.settle()
    net.nodes["a"].publish("uav")
    net.settle()
    assert [len(got(session)) for session in sessions] == [1, 1, 1]
    assert net.nodes["b"].overlay.sender.published == 0


def test_who_does_not_subscribe_any_more_gets_nothing_over_the_link() -> None:
    net = Net("ab")
    session = net.nodes["b"].subscriber("uav")
    net.settle()
    net.nodes["b"].broker.end_session(session)
    net.settle()
    assert net.nodes["a"].publish("uav") == 0
    assert net.nodes["a"].overlay.sender.published == 0


def test_what_a_node_says_to_its_own_clients_stays_there() -> None:
    net = Net("ab")
    session = net.nodes["b"].subscriber("#")
    net.settle()
    net.nodes["a"].broker.publish_as_node("answer/to/somebody", b"yours")
    net.nodes["a"].publish("uav")
    net.settle()
    assert got(session) == [b"payload"]


def test_expiry_goes_along() -> None:
    net = Net("ab")
    session = net.nodes["b"].subscriber("uav")
    net.settle()
    net.nodes["a"].publish("uav", expiry_s=30)
    net.settle()
    (delivery,) = _deliveries(session)
    left_ms = delivery.message.expires_ms - net.nodes["b"].broker.context.now_ms
    assert 29_000 < left_ms <= 30_000
    assert delivery.message.expiry_s == 30


def test_retained_messages_come_to_nodes_that_need_them_later() -> None:
    net = Net("ab")
    net.nodes["a"].publish("state", b"on", is_retained=True)
    session = net.nodes["b"].subscriber("state")
    net.settle()
    assert got(session) == [b"on"]
    kept = net.nodes["b"].broker.retained.get("state")
    assert kept is not None
    assert kept.payload == b"on"
    # Told once more, as after a restart of the other node, it is not delivered again.
    net.nodes["a"].bridge.send(net.nodes["a"].broker.retained.get("state"), ["b"], 0)  # type: ignore[arg-type]
    net.settle()
    assert got(session) == [b"on"]
    net.nodes["a"].publish("state", b"", is_retained=True)
    net.settle()
    assert net.nodes["b"].broker.retained.get("state") is None


def test_a_node_does_not_pass_on_what_another_retains() -> None:
    net = Net("abc")
    net.nodes["b"].subscriber("state")
    net.settle()
    net.nodes["a"].publish("state", b"on", is_retained=True)
    net.settle()
    session = net.nodes["c"].subscriber("state")
    net.settle()
    assert got(session) == [b"on"]


def test_what_others_retain_no_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abroad_module, "_FEW", 3)
    net = Net("ab")
    node = net.nodes["b"]
    node.subscriber("#")
    net.settle()
    for number in range(9):
        net.nodes["a"].publish(f"state/{number}", b"", is_retained=True)
    net.settle()
    assert node.bridge._remote_retained == {}
    for number in range(9):
        net.nodes["a"].publish(f"state/{number}", b"on", is_retained=True)
        net.settle()
        node.broker.retained.remove(f"state/{number}")  # as if it had expired
        assert len(node.bridge._remote_retained) <= 5
    net.nodes["a"].publish("state/1", b"on", is_retained=True)
    net.settle()
    assert "state/1" in node.bridge._remote_retained
    net.nodes["a"].publish("state/1", b"", is_retained=True)
    net.settle()
    assert "state/1" not in node.bridge._remote_retained


def test_local_channels_stay() -> None:
    net = Net("ab")
    session = net.nodes["b"].subscriber("uav")
    net.nodes["a"].overlay.directory.create(ChannelDefinition(name="uav", template="local"))
    net.settle()
    net.nodes["a"].publish("uav")
    net.settle()
    assert got(session) == []


@pytest.mark.parametrize("channel", ["", "uav/#", "$SYS/uptime", "a\0b"])
def test_nonsense_from_another_node_is_counted(channel: str) -> None:
    node = Net("a").nodes["a"]
    node.bridge.on_event(TransitEvent("b", 1, 1, (1,), channel, b""))
    assert node.broker.context.counters.shed_causes.counts == {DAMAGED: 1}


# Damaged; a topic alias, a subscription identifier, an expiry beside the event's own.
@pytest.mark.parametrize("block", [b"\xff\xff", b"\x23\0\7", b"\x0b\5", b"\2\0\0\0\x09"])
def test_properties_that_are_not_for_receivers_are_counted(block: bytes) -> None:
    node = Net("a").nodes["a"]
    node.bridge.on_event(TransitEvent("b", 1, 1, (1,), "uav", b"", block))
    assert node.broker.context.counters.shed_causes.counts == {DAMAGED: 1}


def test_how_many_were_missed_stands_in_the_ledger() -> None:
    node = Node("boston", lambda: 0)
    node.broker.context.ledger.take()
    node.bridge.on_dropped(TransitEvent("athens", 1, 0, (), "chat", b""), "missed", 1_000)
    batch = node.broker.context.ledger.take()
    assert batch is not None
    assert [(row[2], row[3], row[12]) for row in batch.rows] == [(1_000, "chat", "missed")]


@pytest.mark.parametrize(
    "changes", [{"publisher": "\0"}, {"expiry_s": 2**40}, {"event": -(2**63)}, {"qos": -1}]
)
def test_what_no_node_can_have_sent_is_counted_and_not_noted(changes: dict[str, Any]) -> None:
    node = Net("a").nodes["a"]
    event = TransitEvent("b", 1, 1, (1,), "uav", b"")
    node.bridge.on_event(msgspec.structs.replace(event, **changes))
    node.bridge.on_dropped(msgspec.structs.replace(event, **changes), "link down")
    assert node.broker.context.counters.shed_causes.counts == {DAMAGED: 1}
    assert node.broker.context.ledger.take() is None


def test_each_hop_stands_in_the_ledger_of_its_node() -> None:
    net = Net("abc")
    net.nodes["c"].subscriber("uav")
    net.settle()
    net.nodes["a"].publish("uav")
    net.settle()
    destinations = []
    for node in net.nodes.values():
        batch = node.broker.context.ledger.take()
        rows = [] if batch is None else batch.rows
        destinations.append([(row[5], row[12]) for row in rows if row[5].startswith("node ")])
    assert [each[0][0] for each in destinations] == ["node b", "node c", "node c"]
    assert re.fullmatch(r"by a [0-9.]+ ms, b [0-9.]+ ms", destinations[2][0][1])


def test_events_of_an_ordered_channel_come_when_it_is_their_turn() -> None:
    net = Net("ab")
    definition = ChannelDefinition(name="queue", template="total_order")
    net.nodes["a"].overlay.directory.create(definition)
    net.settle()
    sessions = [node.subscriber("queue") for node in net.nodes.values()]
    net.settle()
    for number in range(3):
        for name, node in net.nodes.items():
            assert node.publish("queue", f"{name}{number}".encode(), is_retained=True) == 1
    assert [got(session) for session in sessions] == [[], []], "nobody's turn has come"
    net.settle(8_000)  # a sequencer that has just come up looks around first
    first, second = map(got, sessions)
    assert first == second
    assert sorted(first) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    for node in net.nodes.values():
        kept = node.broker.retained.get("queue")
        assert kept is not None
        assert kept.payload == first[-1], "the last in the order"


def test_what_is_kept_of_an_ordered_channel_is_kept_once() -> None:
    net = Net("a")
    node = net.nodes["a"]
    node.overlay.directory.create(ChannelDefinition(name="kept", template="total_order"))
    session = node.subscriber("kept")
    net.settle()
    node.broker.context.is_durable = True
    node.publish("kept", b"1")
    net.settle(8_000)  # a sequencer that has just come up looks around first
    assert got(session) == [b"1"]
    assert [decode_event(each).payload for each in encode_kept(node.broker.context.kept)] == [b"1"]


class _Waiting:
    def __init__(self) -> None:
        self.told = 0

    def resume_publishing(self) -> None:
        self.told += 1


def test_who_publishes_too_much_is_told_when_there_is_room() -> None:
    net = Net("ab")
    a = net.nodes["a"]
    a.overlay.directory.create(ChannelDefinition(name="feed", template="reliable"))
    net.nodes["b"].subscriber("feed", qos=0)
    net.settle()
    client = _Waiting()
    published = 0
    while not a.bridge.pause_publisher("feed", client):
        a.publish("feed", str(published).encode())
        published += 1
    assert published > 1_000
    a.bridge.resume_publishers()
    assert client.told == 0
    net.settle(1_000)
    a.bridge.resume_publishers()
    a.bridge.resume_publishers()
    assert client.told == 1
    assert not a.bridge.pause_publisher("feed", client)
