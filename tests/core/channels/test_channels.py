from __future__ import annotations

from collections.abc import Mapping

import msgspec

from accord.core.channels.channels import NONE, SHIPPED, UNKNOWN, Channels, Load
from accord.core.channels.routed import Local
from accord.core.channels.template import Template
from accord.core.model.units import NEVER_US
from accord.core.overlay.channel_directory import DEFAULT_TRAITS, ChannelDefinition, ChannelTraits
from accord.core.overlay.interests import Interest
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Control, Overlay
from accord.core.overlay.signalling import TemplateMessage, TransitEvent

EVENT = TransitEvent("", 0, 0, (), "uav/imagery", b"pixels")


class Flood(Template):
    """As small as a template can be: tells all neighbours, who tell theirs."""

    def __init__(self, context: object) -> None:
        super().__init__(context)  # type: ignore[arg-type]
        self.seen: dict[bytes, bool] = {}

    def on_published(
        self,
        event: TransitEvent,
        destinations: list[str],  # noqa: ARG002
        definition: ChannelDefinition,  # noqa: ARG002
        now_us: int,  # noqa: ARG002
    ) -> None:
        self._pass_on("", event.channel, event.payload)

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        if body not in self.seen:
            self.context.deliver(TransitEvent("", 0, 0, (), channel, body))
            self._pass_on(neighbour, channel, body)

    def _pass_on(self, origin: str, channel: str, body: bytes) -> None:
        self.seen[body] = True
        for neighbour in self.context.neighbours():
            if neighbour != origin:
                self.context.send_message(neighbour, channel, body)


def a_node(name: str, template: str = "routed", installed: Mapping[str, Load] = NONE) -> Channels:
    overlay = Overlay(name, 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
    channels = Channels(overlay, {**SHIPPED, "flood": Flood}, installed)
    problem = overlay.directory.create(ChannelDefinition(name="uav/#", template=template))
    assert problem is None
    return channels


def exchange(nodes: list[Channels], links: list[tuple[str, str]]) -> None:
    """Let everything that is said arrive, until nothing more is said."""
    by_name = {node.overlay.name: node for node in nodes}
    for one, other in links:
        by_name[one].overlay.link_up(other, 0)
        by_name[other].overlay.link_up(one, 0)
    for now_us in range(0, 40_000, 1_000):
        for node in nodes:
            node.advance(now_us)
        for node in nodes:
            sends: list[tuple[str, Control]] = list(node.overlay.sends)
            node.overlay.sends.clear()
            for neighbour, message in sends:
                by_name[neighbour].overlay.receive(node.overlay.name, message, now_us)
            node.check_invariants()


def test_local_channels_stay_where_they_are() -> None:
    node = a_node("a", "local")
    node.publish(EVENT, ["b"], 0)
    assert not node.overlay.routes.flows
    assert not node.overlay.drops


def test_channels_without_definition_are_routed() -> None:
    node = a_node("a", "local")
    node.publish(TransitEvent("", 0, 0, (), "sea", b""), ["b"], 0)
    assert [flow.destination for flow in node.overlay.routes.flows.values()] == ["b"]


def test_a_template_that_is_not_installed_is_told() -> None:
    node = a_node("a", "telepathy")
    node.publish(EVENT, ["b"], 0)
    assert node.overlay.dropped == {UNKNOWN: 1}
    assert node.overlay.drops == [(EVENT, UNKNOWN, 1)]


def test_what_a_template_loses_is_counted_by_cause() -> None:
    node = a_node("a")
    context = node.templates["reliable"].context
    context.report_dropped(EVENT, "missed", 1_000)
    context.report_dropped(EVENT, "missed")
    assert node.overlay.dropped == {"missed": 1_001}
    assert node.overlay.drops == [(EVENT, "missed", 1_000), (EVENT, "missed", 1)]


def test_a_template_from_elsewhere_sees_neighbours_and_its_own_messages() -> None:
    nodes = [a_node(name, "flood") for name in "abc"]
    exchange(nodes, [("a", "b"), ("b", "c")])
    nodes[0].publish(EVENT, ["c"], 40_000)
    for _ in range(3):
        for node in nodes:
            for neighbour, message in list(node.overlay.sends):
                if isinstance(message, TemplateMessage):
                    target = next(each for each in nodes if each.overlay.name == neighbour)
                    target.overlay.receive(node.overlay.name, message, 41_000)
            node.overlay.sends.clear()
    assert [[each.payload for each in node.overlay.deliveries] for node in nodes] == [
        [],
        [b"pixels"],
        [b"pixels"],
    ]


def test_a_service_talks_to_its_like_and_no_channel_uses_it() -> None:
    nodes = [a_node("a"), a_node("b")]
    services = [node.serve("$gossip", Flood) for node in nodes]
    exchange(nodes, [("a", "b")])
    services[0].context.send_message("b", "", b"news")
    exchange(nodes, [])
    assert list(services[1].seen) == [b"news"]
    assert "$gossip" not in nodes[0].templates


def test_what_was_kept_goes_to_one_node_whatever_the_template() -> None:
    node = a_node("a", "reliable")
    node.replay(EVENT, ["b"], 0)
    assert [flow.destination for flow in node.overlay.routes.flows.values()] == ["b"]
    assert not any(node.templates["reliable"].retained_state().values())


def test_events_of_a_template_travel_as_data_and_come_to_it() -> None:
    nodes = [a_node("a", "single_source"), a_node("b", "single_source")]
    exchange(nodes, [("a", "b")])
    nodes[1].overlay.add_interest("uav/#", ("", ""), None)
    exchange(nodes, [])
    nodes[0].publish(EVENT, ["b"], 80_000)
    (carried,) = nodes[0].overlay.take("b", 10_000, 80_000)
    assert (carried.template, carried.is_droppable) == ("single_source", True)
    nodes[1].overlay.receive("a", carried, 81_000)
    assert [each.payload for each in nodes[1].overlay.deliveries] == [b"pixels"]


def test_events_of_a_template_that_is_not_installed_end() -> None:
    nodes = [a_node("a"), a_node("b")]
    exchange(nodes, [("a", "b")])
    foreign = TransitEvent("a", 1, 1, (), "uav/imagery", b"", template="telepathy")
    nodes[1].overlay.receive("a", foreign, 50_000)
    assert [cause for _, cause, _ in nodes[1].overlay.drops] == [UNKNOWN]


def test_what_templates_ask_of_who_publishes() -> None:
    assert a_node("a", "total_order").channel_traits("uav/imagery") == ChannelTraits(
        True, True, keeps_order=True
    )
    assert a_node("a", "reliable").channel_traits("uav/imagery") == ChannelTraits(
        can_be_full=True, keeps_order=True
    )
    assert a_node("a", "single_source").channel_traits("uav/imagery") == DEFAULT_TRAITS
    assert a_node("a", "telepathy").channel_traits("uav/imagery").problem == (
        "the template telepathy of uav/imagery is not installed at a"
    )
    assert a_node("a", "reliable").has_room("uav/imagery")


def test_what_is_installed_is_loaded_when_it_is_needed() -> None:
    loaded: list[str] = []

    def load() -> type[Template] | None:
        loaded.append("telepathy")
        return Local

    channels = a_node("a", "telepathy", {"telepathy": load, "routed": load})
    assert "telepathy" in channels.names()
    assert not loaded
    assert channels.channel_traits("uav/imagery").problem == ""
    channels.publish(EVENT, ["b"], 0)
    assert loaded == ["telepathy"], "once, and never instead of what is shipped"


def test_what_can_not_be_loaded_is_not_installed() -> None:
    channels = a_node("a", "telepathy", {"telepathy": lambda: None})
    assert channels.nodes_without("telepathy") == []
    assert channels.channel_traits("uav/imagery").problem
    assert "telepathy" not in channels.names()
    assert channels.nodes_without("telepathy") == ["a"]


def test_what_another_template_still_has_is_not_settled() -> None:
    node = a_node("a", "reliable")
    members = node.templates["reliable"].members  # type: ignore[attr-defined]
    members._on_change("b", "1", msgspec.msgpack.encode(Interest("uav/#")))
    node.publish(msgspec.structs.replace(EVENT, event=7), ["b"], 0)
    assert node.unconfirmed("uav/imagery") == [7]
    definition = ChannelDefinition(name="uav/#", template="routed")
    assert node.overlay.directory.create(definition, replace=True) is None
    assert node.unconfirmed("uav/imagery") == [7]
    node.publish(msgspec.structs.replace(EVENT, event=8, qos=1), ["b"], 0)
    assert sorted(node.unconfirmed("uav/imagery")) == [7, 8]


def test_publishers_wait_where_the_node_itself_has_no_room() -> None:
    node = a_node("a", "reliable")
    assert node.has_room("uav/imagery")
    node.overlay.on_can_accept = lambda channel, *_: channel != "uav/imagery"
    assert not node.has_room("uav/imagery")
    assert node.has_room("uav/video")
    assert node.has_room("sea")  # what may be lost is


def test_the_node_counts_what_it_has_not_handed_over_yet() -> None:
    node = a_node("a", "reliable")
    asked: list[tuple[int, int]] = []

    def takes(_channel: str, events: int, events_bytes: int, _now_us: int) -> bool:
        asked.append((events, events_bytes))
        return True

    node.overlay.on_can_accept = takes
    context = node.templates["reliable"].context
    context.deliver(EVENT)
    context.can_accept("uav/imagery")
    node.overlay.deliveries.clear()
    context.can_accept("uav/imagery")
    context.deliver(EVENT)
    context.can_accept("uav/imagery")
    assert asked == [(1, 6), (0, 0), (1, 6)]


def test_who_does_not_get_on_is_waited_for_as_a_channel_says() -> None:
    node = a_node("a", "reliable")
    assert node.stall_timeout_us("uav/imagery") == 60_000_000
    assert node.stall_timeout_us("sea") == 0
    for options, timeout_us in (
        ({"stall_timeout_ms": "5"}, 5_000),
        ({"slow_members": "wait"}, NEVER_US),
    ):
        definition = ChannelDefinition(name="uav/#", template="reliable", options=options)
        assert node.overlay.directory.create(definition, replace=True) is None
        assert node.stall_timeout_us("uav/imagery") == timeout_us


def test_what_is_said_of_no_channel_at_all_is_nothing() -> None:
    node = a_node("a", "flood")
    node.overlay.link_up("b", 0)
    node.overlay.receive("b", TemplateMessage("flood", "x" * 65_536, b"1"), 0)
    assert not node.overlay.deliveries
    node.overlay.receive("b", TemplateMessage("flood", "x" * 65_535, b"1"), 0)
    assert len(node.overlay.deliveries) == 1
