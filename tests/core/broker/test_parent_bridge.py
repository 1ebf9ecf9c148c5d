"""What clients of a secondary node get of persistent channels, and what becomes of theirs."""

from __future__ import annotations

import json
from typing import Final

import pytest
from tests.core.broker.dialogue import START_MS, Peer, Table

from accord.core.broker.kept_messages import journalled_id
from accord.core.broker.message import MqttMessage
from accord.core.broker.parent_bridge import ParentBridge
from accord.core.broker.persistent_history import HistorySubscriptions
from accord.core.channels.history.history_client import PeerState
from accord.core.channels.history.messages import (
    PERSISTENT,
    CutReply,
    CutRequest,
    HistoryEvent,
    HistoryPage,
    PageRequest,
)
from accord.core.mqtt.event_mapping import EVENT_NAMES
from accord.core.mqtt.packets import Publish
from accord.core.mqtt.properties import Properties
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.signalling import TransitEvent
from accord.core.tiers.child import Child
from accord.core.tiers.messages import (
    ChannelLookupReply,
    ChildHeartbeat,
    DownstreamEvent,
    FromChild,
    ParentHeartbeat,
    PeerListUpdate,
    RelayedHistoryReply,
    RelayedHistoryRequest,
    TemplateTraits,
    TierOptions,
    UpstreamEvent,
)
from accord.journal.events import decode_event, encode_event, kept_message

S: Final = 1_000_000
CHAT: Final = "chat/room"
HERE: Final = PeerState(is_here=True, incarnation=1, has_kept=True, since=1)


class Secondary:
    """The node x, and its parent a, which has kept some events and has no other clients."""

    def __init__(
        self, count: int = 3, kept: list[str] | None = None, *, is_linked: bool = True
    ) -> None:
        self.now_us = 1
        self.table = Table(is_durable=True, kept=kept)
        self.table.hub.node = "x"
        self.child = Child("x", 1, TierOptions())
        self.upwards = ParentBridge(self.table.broker, lambda: self.now_us, self.child)
        self.table.broker.bridge = self.upwards
        asker, lookups = self.child.history.client, self.child.channel_cache
        self.pasts = HistorySubscriptions(self.table.broker, asker, lookups, lambda: self.now_us)
        self.table.broker.histories = self.pasts
        self.upwards.start()
        self.kept = [_kept(number) for number in range(1, count + 1)]
        self.ups: list[UpstreamEvent] = []
        self.downs = 0
        if is_linked:
            self.child.link_up("a", 0, self.now_us)
            self.run(1)

    def run(self, for_s: float) -> None:
        for _ in range(round(for_s * 20)):
            self.now_us += S // 20
            self.table.now_ms = self.table.hub.now_ms = START_MS + self.now_us // 1_000
            self.child.advance(self.now_us)
            sends, self.child.sends = self.child.sends, []
            for _, message in sends:
                self._answer(message)
            self.ups += self.child.take("a", 1_000_000, self.now_us)
            self._hand_over()
            self.table.commit()
            self.pasts.step()
            self.pasts.check_invariants()
            self.table.commit()

    def _hand_over(self) -> None:
        events, self.child.deliveries[:] = list(self.child.deliveries), []
        for event in events:
            self.upwards.on_event(event)

    def _answer(self, message: FromChild) -> None:
        tell, now_us = self.child.receive, self.now_us
        turn, version = self.child.selector.parent_epoch, self.child._log.version
        match message:
            case ChildHeartbeat():
                served = ParentHeartbeat(
                    1,
                    1,
                    1,
                    turn,
                    message.at_us,
                    version=version,
                    directory=7,
                    record_version=(1, 1),
                )
                tell("a", served, now_us)
                if message.roster == 0:
                    tell("a", PeerListUpdate(turn, 5, (("a", HERE),)), now_us)
            case RelayedHistoryRequest(_, node, CutRequest(round_)):
                made = CutReply(round_, 1, len(self.kept), len(self.kept), (1, 1))
                tell("a", RelayedHistoryReply(node, made), now_us)
            case RelayedHistoryRequest(_, node, PageRequest() as asked):
                events = tuple(self.kept[asked.start : asked.before])
                tell("a", RelayedHistoryReply(node, HistoryPage(asked.id, events)), now_us)
            case _:
                page = (
                    (ChannelDefinition("chat/#", options={PERSISTENT: "7d"}), "a"),
                    (ChannelDefinition("other/#"), "a"),
                    (ChannelDefinition("placed/#", template="total_order"), "a"),
                )
                traits = {
                    "routed": TemplateTraits(),
                    "total_order": TemplateTraits(is_ordered=True),
                }
                tell("a", ChannelLookupReply(7, traits, page=page, after="", is_last=True), now_us)

    def publish_at_parent(self, origin: str = "", original: int = 0) -> None:
        """The parent keeps an event, and sends it down."""
        number = len(self.kept) + 1
        self.kept.append(_kept(number, origin, original))
        payload = _text(number).encode()
        self.downs += 1
        event = TransitEvent(
            "a", 0, 0, (), CHAT, payload, qos=1, event=number, child=origin, child_number=original
        )
        self.child.receive(
            "a", DownstreamEvent(self.child.selector.parent_epoch, self.downs, event), self.now_us
        )


def _kept(number: int, origin: str = "", original: int = 0) -> HistoryEvent:
    payload = _text(number).encode()
    return HistoryEvent(number, START_MS, CHAT, "bob", 1, b"", payload, origin, original)


def _text(number: int) -> str:
    return f"event {number}"


def heard(peer: Peer) -> list[str]:
    return [each.payload.decode() for each in peer.hear() if isinstance(each, Publish)]


def test_who_subscribes_gets_the_past_of_others_then_what_is_live() -> None:
    x = Secondary()
    ada = x.table.join("ada").subscribe("$accord/history").subscribe("chat/+")
    x.run(1)
    x.publish_at_parent()
    x.run(3)
    events = heard(ada)
    assert [each for each in events if "event" in each] == [_text(each) for each in range(1, 5)]
    (told,) = [json.loads(each) for each in events if "event" not in each]
    assert told == {"filter": "chat/+", "state": "live", "missing": []}
    x.publish_at_parent()
    x.run(1)
    assert heard(ada) == ["event 5"]


def test_what_is_not_persistent_is_live_at_once() -> None:
    x = Secondary()
    ada = x.table.join("ada").subscribe("$accord/history")
    ada.subscribe("other/#", "$share/all/chat/#", "$SYS/#")
    x.run(3)
    assert heard(ada) == []


def test_what_clients_say_comes_back_from_who_keeps_it_and_is_not_kept_here() -> None:
    x = Secondary(0)
    ada = x.table.join("ada").subscribe("chat/#")
    x.run(3)
    x.table.join("bob").publish(CHAT, b"event 1")
    x.run(1)
    (up,) = x.ups
    assert up.is_echoed
    assert heard(ada) == []
    assert x.table.hub.kept == []
    x.publish_at_parent("x", up.event.child_number)
    x.run(1)
    assert heard(ada) == ["event 1"]
    # Another parent has kept it, too.
    x.kept.append(_kept(2, "x", up.event.child_number))
    x.child.history.start_parent_epoch(x.now_us)
    x.run(4)
    assert heard(ada) == []


def test_what_a_secondary_node_has_on_disk_has_the_name_that_went_up() -> None:
    x = Secondary(0)
    x.table.join("ada", expiry_s=60).subscribe("other/#", qos=1).drop()
    x.run(1)
    bob = x.table.join("bob")
    for number in range(3):
        bob.publish("other/a", str(number).encode(), 1)
    x.run(1)
    sent = {each.event.payload: (each.event.child, each.event.child_number) for each in x.ups}
    assert len({*sent.values()}) == 3
    after, restored = x.table.after_crash(x.table.log)
    assert restored.problems == []
    owed = [each.message for each in after.session("ada").unacknowledged.values()]
    assert {each.payload: (each.event_node, each.event_number) for each in owed} == sent


@pytest.mark.parametrize("channel", ["other/a", "placed/a"])
def test_what_a_secondary_node_keeps_has_the_name_that_went_up(channel: str) -> None:
    x = Secondary(0, kept=["other/#", "placed/#"])
    x.table.join("bob").publish(channel, b"1")
    x.run(1)
    (kept,) = x.table.hub.kept
    assert isinstance(kept, MqttMessage)
    (up,) = [each.event for each in x.ups]
    record = decode_event(encode_event(kept))
    assert journalled_id(record.attributes) == (up.child, up.child_number) == ("x", up.child_number)
    # And it is the same after a crash, without what was noted besides.
    again = kept_message(record)
    assert (again.event_node, again.event_number) == ("x", up.child_number)
    assert not again.properties.user


def test_what_waits_for_its_name_is_kept_without_one() -> None:
    x = Secondary(0, kept=["other/#"], is_linked=False)
    x.table.join("bob").publish("other/a", b"1", retain=True)
    (kept,) = x.table.hub.kept
    assert isinstance(kept, MqttMessage)
    assert journalled_id(kept.block) == ("", 0)
    # Its number is none: another event may have it as its name.
    ada = x.table.join("ada", properties=Properties(user=(EVENT_NAMES,))).subscribe("other/#")
    (retained,) = ada.hear()
    assert isinstance(retained, Publish)
    assert not retained.properties.user


def test_after_a_change_of_the_parent_what_got_lost_is_read() -> None:
    x = Secondary()
    ada = x.table.join("ada").subscribe("chat/#")
    x.run(3)
    x.publish_at_parent()
    x.run(1)
    assert len(heard(ada)) == 4
    x.kept.append(_kept(5))  # which the parent did not bring any more
    x.run(1)
    assert heard(ada) == []
    x.child.link_down("a", x.now_us)
    x.downs = 0
    x.child.link_up("a", 0, x.now_us)
    x.run(4)
    assert heard(ada) == ["event 5"]
