"""Clients at two nodes without a network, and a persistent channel: history first, then live."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pytest
from tests.core.broker.dialogue import START_MS, Peer, Table

from accord.core.broker.child_bridge import ChildBridge
from accord.core.broker.kept_messages import is_remote, journalled_id
from accord.core.broker.message import MqttMessage
from accord.core.broker.overlay_bridge import OverlayBridge
from accord.core.broker.persistent_history import MISSED, HistorySubscriptions
from accord.core.broker.session_recovery import restore
from accord.core.channels.channels import Channels
from accord.core.channels.history.history_protocol import HistoryProtocol
from accord.core.channels.history.messages import (
    PERSISTENT,
    SERVICE,
    HistoryEvent,
    HistoryPage,
    MakeCut,
    ReadPage,
)
from accord.core.model.channels import filter_selects
from accord.core.mqtt.event_mapping import EVENT_NAMES
from accord.core.mqtt.packets import Puback, Publish, Suback, Subscribe, TopicFilter
from accord.core.mqtt.properties import EVENT, NODE, RECEIVED, Properties
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TransitEvent
from accord.core.policy.policies import Policies
from accord.core.policy.policy_set import parse_policy_set

CHAT: Final = "chat/room"
ASKING: Final = Properties(user=(EVENT_NAMES,))


class Site:
    """One node: its broker, its overlay, and a journal that is a list."""

    def __init__(self, world: World, name: str, kept: list[str], incarnation: int = 1) -> None:
        self.world = world
        self.name = name
        self.table = Table(is_durable=True, kept=kept)
        broker, self.hub = self.table.broker, self.table.hub
        self.hub.node = name
        self.hub.number += incarnation * 1_000_000_000
        self.bridge = OverlayBridge(broker, lambda: world.now_us)
        options = OverlayOptions()
        self.overlay = Overlay(name, incarnation, options, lambda: 0.5, self.bridge.on_interest)
        self.channels = Channels(self.overlay)
        self.exchange = self.channels.serve(
            SERVICE,
            lambda context: HistoryProtocol(context, self.overlay.store, self.overlay.interests),
        )
        self.pasts = HistorySubscriptions(
            broker, self.exchange, self.channels, lambda: world.now_us
        )
        self.journal: list[MqttMessage] = []
        options_ = {PERSISTENT: "true"}
        self.overlay.directory.create(ChannelDefinition(name="chat/#", options=options_))
        broker.bridge = self.bridge
        self.bridge.join(self.channels)
        broker.histories = self.pasts
        self.bridge.children = ChildBridge(self.bridge, incarnation, lambda: world.now_us)

    def turn(self) -> None:
        self.table.now_ms = START_MS + self.world.now_us // 1_000
        self.hub.now_ms = self.table.now_ms
        self.channels.advance(self.world.now_us)
        self.hand_over()
        self.table.commit()
        self.journal += [each for each in self.hub.kept if isinstance(each, MqttMessage)]
        self.hub.kept = []
        self.pasts.step()
        self.exchange.send_due(self.world.now_us)
        self._obey()
        self.pasts.step()
        self.pasts.check_invariants()
        self.table.commit()

    def hand_over(self) -> None:
        for event in self.overlay.deliveries:
            if event.channel == SERVICE:
                self.exchange.on_page_event(event, self.world.now_us)
            else:
                self.bridge.on_event(event)
        self.overlay.deliveries.clear()

    def _obey(self) -> None:
        orders = self.exchange.orders
        while orders:
            order = orders.pop(0)
            if isinstance(order, MakeCut):
                self.hub.cut_number = self.hub.number
                offset, number = len(self.journal), self.hub.number
                self.exchange.on_cut(order, offset, number, self.world.now_us)
            else:
                self.exchange.on_page_read(order, self._page(order), self.world.now_us)

    def _page(self, order: ReadPage) -> HistoryPage:
        asked = order.asked
        start = int(asked.cursor or asked.start)
        end = min(asked.before, start + 5)
        found = [
            HistoryEvent(
                each.number,
                each.received_ms,
                each.channel,
                each.publisher,
                each.qos,
                each.block,
                each.payload,
                *journalled_id(each.block),
            )
            for each in self.journal[start:end]
            if filter_selects(asked.wanted.filter, each.channel)
            and each.received_ms >= asked.wanted.since_ms
            and not is_remote(each.block)
        ]
        return HistoryPage(asked.id, tuple(found), "" if end == asked.before else str(end))


class World:
    def __init__(self, kept: list[str] | None = None) -> None:
        self.now_us = 0
        self.kept = kept or []
        self.sites = {name: Site(self, name, self.kept) for name in "ab"}
        self._is_linked = False
        self.link()

    def link(self) -> None:
        self._is_linked = True
        for one, other in ("ab", "ba"):
            self.sites[one].overlay.link_up(other, self.now_us)
        self.settle()

    def cut_off(self) -> None:
        self._is_linked = False
        for one, other in ("ab", "ba"):
            self.sites[one].overlay.link_down(other, self.now_us)
        self.settle()

    def settle(self, ms: int = 3_000) -> None:
        for _ in range(ms // 10):
            self.now_us += 10_000
            for site in self.sites.values():
                site.turn()
            for site in self.sites.values():
                self._exchange(site)

    def _exchange(self, site: Site) -> None:
        sends = list(site.overlay.sends)
        site.overlay.sends.clear()
        if not self._is_linked:
            return
        for neighbour, message in sends:
            self.sites[neighbour].overlay.receive(site.name, message, self.now_us)
        for neighbour in list(site.overlay.neighbours):
            for event in site.overlay.take(neighbour, 1 << 20, self.now_us):
                other = self.sites[neighbour]
                other.overlay.receive(site.name, event, self.now_us)
                other.hand_over()

    def join(self, site: str, client: str, **more: bool | int | Properties) -> Peer:
        return self.sites[site].table.join(client, **more)  # type: ignore[arg-type]

    def say(self, site: str, words: str, *, retain: bool = False) -> None:
        peer = self.join(site, f"speaker at {site}")
        for word in words.split():
            peer.publish(CHAT, word.encode(), 1, retain=retain)
            self.settle(20)
        peer.drop()


def read(peer: Peer) -> list[Publish]:
    """Take and acknowledge what came."""
    found = [each for each in peer.hear() if isinstance(each, Publish)]
    for each in found:
        if each.qos:
            peer.send(Puback(each.packet_id))
    return found


def words(peer: Peer) -> list[str]:
    return [each.payload.decode() for each in read(peer)]


def test_what_both_nodes_kept_comes_first_by_time_then_what_is_live() -> None:
    world = World()
    world.say("a", "1 2")
    world.say("b", "3 4")
    world.say("a", "5")
    ada = world.join("b", "ada").subscribe("chat/#", qos=1)
    world.settle()
    past = read(ada)
    assert [each.payload for each in past] == [b"1", b"2", b"3", b"4", b"5"]
    told = dict(past[0].properties.user)
    assert (told[NODE], sorted(told)) == ("a", [EVENT, NODE, RECEIVED])
    world.say("a", "6")
    world.say("b", "7")
    (six, seven) = read(ada)
    assert (six.payload, six.properties.user) == (b"6", ())
    assert seven.payload == b"7"
    world.settle(100_000)
    assert len(world.sites["b"].pasts) == 0  # its events come directly again
    world.say("a", "8")
    assert words(ada) == ["8"]


def test_what_is_published_meanwhile_comes_once() -> None:
    world = World()
    world.say("a", " ".join(str(number) for number in range(60)))
    ada = world.join("b", "ada").subscribe("chat/#", qos=1)
    speaker = world.join("a", "bob")
    got: list[str] = []
    for number in range(60, 160):
        speaker.publish(CHAT, str(number).encode(), 1)
        world.settle(20)
        got += words(ada)
    world.settle()
    assert got + words(ada) == [str(number) for number in range(160)]


def test_other_channels_do_not_wait() -> None:
    world = World()
    world.say("a", "old")
    ada = world.join("b", "ada").subscribe("#", qos=1)
    bob = world.join("b", "bob")
    bob.publish("other", b"now", 1)
    assert words(ada) == ["now"]
    world.settle()
    assert words(ada) == ["old"]


def test_now_means_no_past_and_a_moment_less_of_it() -> None:
    world = World()
    world.say("a", "1 2")
    moment = world.sites["a"].hub.now_ms
    world.settle()
    world.say("a", "3")
    ada, eve = world.join("b", "ada"), world.join("b", "eve")
    ada.subscribe("chat/#", qos=1, properties=Properties(user=(("since", "now"),)))
    at = f"1970-01-01T00:{moment // 60_000:02}:{moment % 60_000 // 1_000:02}.500"
    eve.subscribe("chat/#", qos=1, properties=Properties(user=(("since", at),)))
    world.settle()
    assert words(ada) == []
    assert words(eve) == ["3"]


def test_what_is_retained_does_not_come_besides() -> None:
    world = World()
    world.say("a", "1", retain=True)
    world.say("a", "2", retain=True)
    ada = world.join("b", "ada").subscribe("chat/#", qos=1)
    world.settle()
    assert words(ada) == ["1", "2"]
    world.sites["b"].table.join("bob").publish("other", b"kept", 1, retain=True)
    assert words(world.join("b", "eve").subscribe("other", qos=1)) == ["kept"]


def test_events_of_other_nodes_are_kept_here_only_if_a_policy_says_so() -> None:
    world = World()
    world.join("b", "ada").subscribe("chat/#", qos=1)
    world.settle()
    world.say("a", "1")
    assert (len(world.sites["a"].journal), len(world.sites["b"].journal)) == (1, 0)
    archiving = World(kept=["chat/#"])
    eve = archiving.join("b", "eve").subscribe("chat/#", qos=1)
    archiving.settle()
    archiving.say("a", "1")
    (copy,) = archiving.sites["b"].journal
    assert is_remote(copy.block)
    assert words(eve) == ["1"]
    # And whoever comes later gets it once.
    late = archiving.join("b", "late").subscribe("chat/#", qos=1)
    archiving.settle()
    assert words(late) == ["1"]


def test_a_client_that_is_slow_gets_it_as_it_takes_it() -> None:
    world = World()
    count = 1_200
    bob = world.join("a", "bob")
    for number in range(count):
        bob.publish(CHAT, str(number).encode(), 1)
        if number % 100 == 0:
            world.settle(20)
    world.settle()
    ada = world.join("b", "ada").subscribe("chat/#", qos=1)
    world.settle()
    waiting = world.sites["b"].table.session("ada").unacknowledged
    assert 0 < len(waiting) < count  # no more than a page or two
    got: list[str] = []
    for _ in range(400):
        got += words(ada)
        world.settle(50)
    assert got == [str(number) for number in range(count)]


def test_a_node_that_can_not_be_reached_is_told_of_and_caught_up_with() -> None:
    world = World()
    world.say("a", "1 2")
    world.say("b", "3")
    world.cut_off()
    world.settle(20_000)
    ledger = world.sites["b"].hub.ledger
    ada = world.join("b", "ada").subscribe("$accord/history", "chat/#", qos=1)
    world.settle(5_000)
    told = read(ada)
    forms = [json.loads(each.payload) for each in told if each.topic == "$accord/history"]
    assert forms == [
        {"filter": "chat/#", "state": "missing", "node": "a", "why": "can't be reached"},
        {"filter": "chat/#", "state": "live", "missing": ["a"]},
    ]
    assert [each.payload for each in told if each.topic == CHAT] == [b"3"]
    assert world.sites["b"].hub.counters.shed_causes.counts[MISSED] == 1
    batch = ledger.take()
    assert batch is not None
    assert any(MISSED in str(row) for row in batch.rows)
    world.say("b", "4")
    world.say("a", "5")
    assert words(ada) == ["4"]
    world.link()
    world.settle(10_000)
    found = [each.payload for each in read(ada) if each.topic == CHAT]
    assert found == [b"1", b"2", b"5"]


def test_who_subscribes_again_in_a_session_goes_on() -> None:
    world = World()
    world.say("a", "1 2")
    ada = world.join("b", "ada", expiry_s=1_000).subscribe("chat/#", qos=1)
    world.settle()
    assert words(ada) == ["1", "2"]
    ada.subscribe("chat/#", qos=1)
    world.settle()
    assert words(ada) == []
    world.say("a", "3")
    assert words(ada) == ["3"]
    since = Properties(user=(("since", "-1h"),))
    ada.subscribe("chat/#", qos=1, properties=since)
    world.settle()
    assert words(ada) == ["1", "2", "3"]


def test_shared_subscriptions_have_no_past() -> None:
    world = World()
    world.say("a", "1")
    ada = world.join("b", "ada").subscribe("$share/all/chat/#", qos=1)
    world.settle()
    assert words(ada) == []
    world.say("a", "2")
    assert words(ada) == ["2"]


def test_unsubscribing_and_leaving_end_it() -> None:
    world = World()
    world.say("a", "1")
    ada = world.join("b", "ada")
    ada.send(Subscribe(7, (TopicFilter("chat/#", 1),)))
    world.sites["b"].table.broker.unsubscribe(world.sites["b"].table.session("ada"), "chat/#")
    world.settle()
    eve = world.join("b", "eve").subscribe("chat/#", qos=1)
    eve.drop()
    world.settle()
    left = world.sites["b"].exchange.retained_state()
    assert not any(left.values()), left
    assert isinstance(ada.hear()[0], Suback)


def test_a_durable_session_goes_on_where_it_was_after_a_crash() -> None:
    world = World()
    world.say("a", "1 2 3")
    ada = world.join("b", "ada", expiry_s=1_000).subscribe("chat/#", qos=1)
    world.settle(100_000)
    assert words(ada) == ["1", "2", "3"]
    world.settle()
    before = world.sites["b"]
    records, places = list(before.table.log), before.exchange.watermarks()
    world.cut_off()
    world.say("a", "4 5")
    again = world.sites["b"] = Site(world, "b", [], incarnation=2)
    restored = restore(again.table.broker, records, now_ms=START_MS)
    assert restored.problems == []
    again.exchange.restore(places)
    for subscription, known in again.table.broker.recovered_histories.items():
        again.pasts.resume(known[0], known[1], subscription, known[2])
    again.table.broker.recovered_histories.clear()
    world.link()
    back = again.table.join("ada", clean=False, expiry_s=1_000, is_present=True)
    world.settle(10_000)
    assert words(back) == ["4", "5"]
    world.say("a", "6")
    assert words(back) == ["6"]


def give_up(site: Site, number: int, word: str, channel: str = CHAT) -> None:
    """A client of the secondary node x has published, and x gives that to one of its parents."""
    event = TransitEvent(
        "x", 1, 0, (), channel, word.encode(), qos=1, publisher="cy", child="x", child_number=number
    )
    children = site.bridge.children
    assert children is not None
    assert children.publish_event(event, is_echoed=False)


def test_what_two_parents_of_a_secondary_node_kept_comes_once() -> None:
    world = World()
    world.say("a", "1")
    world.cut_off()
    for name in "ab":
        give_up(world.sites[name], 7, "2")
    give_up(world.sites["b"], 8, "3")
    world.link()
    world.settle()
    assert [len(world.sites[name].journal) for name in "ab"] == [2, 2]
    for name in "ab":
        ada = world.join(name, f"ada at {name}").subscribe("chat/#", qos=1)
        world.settle(100_000)
        past = read(ada)
        assert [each.payload for each in past] == [b"1", b"2", b"3"]
        assert sorted(dict(past[1].properties.user)) == [EVENT, NODE, RECEIVED]
        world.settle()
        assert len(world.sites[name].pasts) == 0  # nothing of it is left open


def names(peer: Peer) -> list[tuple[str, str]]:
    return [(told[NODE], told[EVENT]) for told in (dict(e.properties.user) for e in read(peer))]


def test_an_event_of_the_past_has_the_name_it_had_live() -> None:
    world = World()
    live = [world.join(at, f"live at {at}", properties=ASKING) for at in "ab"]
    for peer in live:
        peer.subscribe("chat/#", qos=1)
    world.settle()
    world.say("a", "1")
    for number, at in ((7, "a"), (8, "b"), (9, "a")):
        give_up(world.sites[at], number, str(number))
        world.settle(100)
    world.say("b", "2")
    late = [world.join(at, f"late at {at}", properties=ASKING) for at in "ab"]
    for peer in late:
        peer.subscribe("chat/#", qos=1)
    world.settle()
    first, *others = [names(peer) for peer in (*live, *late)]
    assert [node for node, _ in first] == ["a", "x", "x", "x", "b"]
    assert all(each == first for each in others)


def test_what_was_kept_before_its_channel_was_persistent_has_its_name() -> None:
    world = World(kept=["room/#"])
    site = world.sites["a"]
    give_up(site, 7, "1", channel="room/a")
    world.settle()
    (kept,) = site.journal
    assert journalled_id(kept.block) == ("x", 7)
    for each in world.sites.values():
        definition = ChannelDefinition(name="room/#", options={PERSISTENT: "true"})
        each.overlay.directory.create(definition)
    ada = world.join("b", "ada", properties=ASKING).subscribe("room/#", qos=1)
    world.settle()
    assert names(ada) == [("x", "7")]


def test_a_copy_at_another_node_has_the_name_of_the_event() -> None:
    world = World(kept=["chat/#"])
    for at in "ab":
        world.join(at, f"ada at {at}").subscribe("chat/#", qos=1)
    world.settle()
    give_up(world.sites["a"], 7, "1")
    world.settle()
    (own,), (copy,) = (world.sites[name].journal for name in "ab")
    assert not is_remote(own.block)
    assert is_remote(copy.block)
    assert own.number == copy.number
    assert journalled_id(own.block) == journalled_id(copy.block) == ("x", 7)


def test_policies_know_where_an_event_of_the_past_was_published() -> None:
    world = World()
    give_up(world.sites["a"], 7, "1")
    world.settle()
    book = parse_policy_set("""
        [[policies]]
        name = "of a secondary node"
        operation = "publish"
        node = "x"
        importance = 6
        """)
    table = world.sites["b"].table
    table.broker.switch(book, Policies(book))
    ada = world.join("b", "ada").subscribe("chat/#", qos=1)
    ada.is_slow = True
    world.settle()
    assert table.session("ada").outbox.depth()[6] == 1


def test_what_came_by_one_parent_is_not_read_at_the_other() -> None:
    world = World()
    ada = world.join("b", "ada").subscribe("chat/#", qos=1)
    world.settle(100_000)
    world.cut_off()
    give_up(world.sites["a"], 7, "1")  # kept, and on its way to nobody
    world.settle()
    give_up(world.sites["b"], 7, "1")
    world.settle()
    assert words(ada) == ["1"]
    late = world.join("b", "late").subscribe("chat/#", qos=1)
    world.settle()
    assert words(late) == ["1"]
    world.link()
    give_up(world.sites["b"], 8, "2")
    world.settle(10_000)
    assert (words(ada), words(late)) == (["2"], ["2"])
    world.settle(100_000)
    assert len(world.sites["b"].pasts) == 0


def test_a_copy_that_nobody_gets_counts_as_come() -> None:
    world = World()
    ada = world.join("b", "ada").subscribe("chat/#", qos=1)
    world.settle()
    give_up(world.sites["b"], 7, "1")
    give_up(world.sites["a"], 7, "1")
    world.settle(100)
    assert words(ada) == ["1"]
    (copy,) = world.sites["a"].journal
    assert copy.number in world.sites["b"].exchange.peers["a"].seen
    world.cut_off()
    world.link()
    world.settle(100_000)
    assert words(ada) == []


def test_what_came_by_a_parent_that_may_not_have_it_on_disk_is_kept_by_the_next() -> None:
    world = World()
    ada = world.join("b", "ada").subscribe("chat/#", qos=1)
    world.settle()
    give_up(world.sites["a"], 7, "1")
    world.settle(100)
    assert words(ada) == ["1"]
    world.sites["a"].journal.clear()  # it fails before that
    give_up(world.sites["b"], 7, "1")
    world.settle(100)
    assert words(ada) == []
    assert len(world.sites["b"].journal) == 1
    late = world.join("b", "late").subscribe("chat/#", qos=1)
    world.settle()
    assert words(late) == ["1"]


def test_a_secondary_node_keeps_an_event_until_its_parent_has_it_on_disk() -> None:
    site = World().sites["a"]
    give_up(site, 7, "1")
    children = site.bridge.children
    assert children is not None
    (kept,) = site.hub.kept
    assert children.unconfirmed(CHAT) == [kept.number]
    assert children.unconfirmed("chat/other") == []
    site.turn()
    assert children.unconfirmed(CHAT) == []


DAMAGED: Final[list[dict[str, Any]]] = [
    {"qos": -5},
    {"qos": 9},
    {"channel": "chat/\0"},
    {"channel": "chat/" + "x" * 70_000},
    {"channel": "#"},
    {"channel": "$SYS/broker/uptime"},
    {"channel": "other"},
    {"number": -(2**63)},
    {"number": 2**64 - 1},
    {"block": b"\xff\xff"},
    {"publisher": "\0"},
    {"origin": "\0", "original": 1},
    {"origin": "x" * 70_000, "original": 1},
    {"origin": "x", "original": -1},
    {"origin": "x", "original": 2**64 - 1},
]


@pytest.mark.parametrize("changes", DAMAGED, ids=str)
def test_nonsense_in_the_past_of_another_node_is_left_out(changes: dict[str, Any]) -> None:
    world = World()
    world.say("b", "one two three")
    lying = world.sites["b"]
    honest = lying._page

    def page(order: ReadPage) -> HistoryPage:
        made = honest(order)
        events = [
            msgspec.structs.replace(each, **changes) if each.payload == b"two" else each
            for each in made.events
        ]
        return msgspec.structs.replace(made, events=tuple(events))

    lying._page = page  # type: ignore[method-assign]
    ada = world.join("a", "ada").subscribe("chat/#", qos=1)
    world.settle()
    assert words(ada) == ["one", "three"]
    shed = world.sites["a"].hub.counters.shed_causes.counts
    assert shed == {"unreadable in the archive": 1}
