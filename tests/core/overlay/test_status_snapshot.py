"""What one node knows of all others, and how it gets to know it."""

from __future__ import annotations

from itertools import pairwise

from tests.overlay_network import MS, OverlayNetwork, S

from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.status import (
    IN_USE,
    ArrivalStatus,
    ChannelStatus,
    FlowStatus,
    RouteStatus,
    TimelinessStatus,
    shortfall,
)

LINE = {("a", "b"): 10, ("b", "c"): 20}
DIAMOND = {("a", "b"): 10, ("b", "d"): 10, ("a", "c"): 20, ("c", "d"): 20}


def network(links: dict[tuple[str, str], int]) -> OverlayNetwork:
    """Where all nodes know all others."""
    net = OverlayNetwork(links)
    names = list(net.nodes)
    net.run(
        lambda: all(
            len(each.map.distances(name).costs) == len(names) for name, each in net.nodes.items()
        )
    )
    return net


def flows(net: OverlayNetwork, node: str) -> list[FlowStatus]:
    return list(net.status(node).flows)


def paths(net: OverlayNetwork, node: str) -> list[tuple[str, ...]]:
    return [route.path for flow in flows(net, node) for route in flow.routes]


class TestNodesAndLinks:
    def test_all_are_known_to_each(self) -> None:
        net = network(LINE)
        net.nodes["c"].add_interest("uav/#", ("", ""), None)
        net.run(lambda: bool(net.needs["a"]))
        status = net.status("a")
        assert [(each.name, each.is_reachable, each.interests) for each in status.nodes] == [
            ("a", True, 0),
            ("b", True, 0),
            ("c", True, 1),
        ]
        assert {each.started_ms for each in status.nodes} == {1_000}
        links = {(each.source, each.target): each for each in status.links}
        assert list(links) == [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]
        assert all(each.is_up and each.is_used and not each.loss for each in links.values())
        assert abs(links["b", "c"].latency_us - 20 * MS) <= 1 * MS

    def test_a_node_that_is_cut_off(self) -> None:
        net = network(LINE)
        net.cut("b", "c")
        net.run(lambda: not net.status("a").nodes[2].is_reachable)
        links = {(each.source, each.target): each for each in net.status("a").links}
        assert not links["b", "c"].is_up
        assert links["c", "b"].is_up  # as it said last
        assert not links["c", "b"].is_used

    def test_what_a_node_does_that_is_cut_off_is_not_known(self) -> None:
        net = network(LINE)
        net.publish("c", "a", "uav/imagery")
        net.publish("a", "c", "uav/imagery")
        net.run(lambda: len(net.status("b").flows) == len(net.status("b").arrivals) == 2)
        net.cut("b", "c")
        net.run(lambda: not net.status("b").nodes[2].is_reachable)
        assert [flow.source for flow in net.status("b").flows] == ["a"]
        assert [each.node for each in net.status("b").arrivals] == ["a"]


class TestFlows:
    def test_those_of_all_nodes_are_known_to_each(self) -> None:
        net = network(DIAMOND)
        net.define("a", ChannelDefinition("uav/#", max_delay_us=200 * MS, paths=2))
        net.publish("a", "d", "uav/imagery")
        net.run(lambda: len(paths(net, "c")) == 2)
        net.run(lambda: all(each.state == IN_USE for each in flows(net, "c")[0].routes))
        assert flows(net, "c") == flows(net, "a")
        flow = flows(net, "c")[0]
        assert (flow.source, flow.destination, flow.channels) == ("a", "d", ("uav/imagery",))
        assert [route.path for route in flow.routes] == [("a", "b", "d"), ("a", "c", "d")]
        assert abs(flow.routes[1].delay_us - 40 * MS) <= 2 * MS
        assert flow.is_met
        assert not flow.has_more

    def test_other_routes_are_told_soon(self) -> None:
        net = network(DIAMOND)
        net.publish("a", "d", "uav/imagery")
        net.run(lambda: paths(net, "d") == [("a", "b", "d")])
        net.cut("b", "d")
        net.run(lambda: paths(net, "a") == [("a", "c", "d")])
        began_us = net.now_us
        net.run(lambda: paths(net, "d") == [("a", "c", "d")])
        assert net.now_us - began_us < 300 * MS
        assert flows(net, "d")[0].changes == 2

    def test_flows_that_have_ended_are_taken_back(self) -> None:
        net = OverlayNetwork(LINE, OverlayOptions(ping_us=100 * MS, idle_us=2 * S))
        net.run(lambda: net.nodes["a"].map.is_reachable("a", "c"))
        for channel in ("uav/imagery", "uav/position"):
            net.publish("a", "c", channel)
        net.run(lambda: bool(flows(net, "c")))
        assert flows(net, "c")[0].channels == ("uav/imagery", "uav/position")
        net.run(lambda: not flows(net, "c"))
        assert net.nodes["c"].store.of("a", "flow") == {}

    def test_a_path_that_takes_a_little_longer_is_no_news(self) -> None:
        net = network(LINE)
        net.publish("a", "c", "uav/imagery")
        net.run(lambda: bool(flows(net, "c")) and flows(net, "c")[0].routes[0].state == IN_USE)
        net.run_for(5 * S)
        version = net.nodes["a"].store.get("a", "flow", "0")
        net.nodes["a"].routes.flows[next(iter(net.nodes["a"].routes.flows))].routes[0].delay_us += 9
        net.run_for(5 * S)
        assert net.nodes["a"].store.get("a", "flow", "0") == version
        net.nodes["a"].routes.flows[next(iter(net.nodes["a"].routes.flows))].routes[0].delay_us += (
            9 * MS
        )
        net.run_for(5 * S)
        assert net.nodes["a"].store.get("a", "flow", "0") != version

    def test_only_so_many_channels_are_named(self) -> None:
        net = network(LINE)
        for number in range(20):
            net.publish("a", "c", f"uav/{number}")
        net.publish("a", "c", "x" * 60_000)
        assert flows(net, "a")[0].channels == tuple(f"uav/{number}" for number in range(8))
        assert flows(net, "a")[0].has_more

    def test_only_so_many_are_told(self) -> None:
        net = network(LINE)
        for number in range(300):
            net.define("a", ChannelDefinition(f"uav/{number}", max_delay_us=S + number))
            net.publish("a", "c", f"uav/{number}")
        net.run(lambda: net.nodes["a"].status_publisher.unpublished == 300 - 256)
        assert len(flows(net, "a")) == 300
        net.run(lambda: len(flows(net, "c")) == 256)

    def test_what_nobody_can_read_is_passed_over(self) -> None:
        net = network(LINE)
        net.nodes["a"].store.put("flow", "7", b"\xc1")
        net.nodes["a"].store.put("arrived", "odd", b"\x01")
        net.run(lambda: bool(net.nodes["c"].store.of("a", "arrived")))
        assert net.status("c").flows == ()
        assert net.status("c").arrivals == ()


class TestArrivals:
    def test_what_is_late_is_counted_and_told(self) -> None:
        net = network(LINE)
        net.define("a", ChannelDefinition("uav/#", max_delay_us=20 * MS))
        net.define("a", ChannelDefinition("uav/slow", max_delay_us=S))
        net.run(lambda: len(net.nodes["c"].directory.all()) == 2)
        for channel in ("uav/imagery", "uav/slow", "chat"):
            net.publish("a", "c", channel, qos=1)
        net.publish("a", "b", "uav/imagery", qos=1)
        net.run(lambda: len(net.status("a").arrivals) == 4)
        expected = {
            ArrivalStatus(node="b", source="a", channel="uav/imagery", delivered=1, late=0),
            ArrivalStatus(node="c", source="a", channel="uav/imagery", delivered=1, late=1),
            ArrivalStatus(node="c", source="a", channel="uav/slow", delivered=1, late=0),
            ArrivalStatus(node="c", source="a", channel="chat", delivered=1, late=0),
        }
        for node in net.nodes:
            net.run(lambda node=node: set(net.status(node).arrivals) == expected)  # type: ignore[misc]
        carried = net.status("c").carried
        assert (carried.delivered, carried.late) == (3, 1)
        assert set(net.status("c").in_time) == {
            TimelinessStatus(channel="uav/#", delivered=1, late=1),
            TimelinessStatus(channel="uav/slow", delivered=1, late=0),
            TimelinessStatus(channel="", delivered=1, late=0),
        }
        assert net.status("a").carried.published == 4

    def test_they_are_told_seldom(self) -> None:
        net = network(LINE)
        told: list[int] = []
        net.nodes["a"].store.watch("arrived", lambda *_: told.append(net.now_us))
        began_us = net.now_us
        while net.now_us < began_us + 12 * S:
            net.publish("a", "c", "uav/imagery")
            net.run_for(200 * MS)
        assert 3 <= len(told) <= 7
        assert all(after - before >= 2 * S - 100 * MS for before, after in pairwise(told))
        net.run_for(3 * S)
        count = len(told)
        net.run_for(3 * S)
        assert len(told) == count


class TestChannels:
    def test_whether_they_get_what_they_require(self) -> None:
        net = network(DIAMOND)
        net.define("b", ChannelDefinition("uav/#", max_delay_us=30 * MS, paths=2))
        net.define("b", ChannelDefinition("chat", paths=2))
        net.define("b", ChannelDefinition("log", template="local"))
        net.run(lambda: len(net.nodes["a"].directory.all()) == 3)
        net.publish("a", "d", "uav/imagery")
        net.publish("a", "d", "chat")
        net.run(lambda: len(flows(net, "d")) == 2)
        net.run(
            lambda: all(each.state == IN_USE for flow in flows(net, "d") for each in flow.routes)
        )
        net.run(lambda: len(net.status("d").arrivals) == 2)
        chat, log, uav = net.status("d").channels
        assert chat == ChannelStatus(
            name="chat",
            template="routed",
            max_delay_us=0,
            paths=2,
            resiliency=0.0,
            node="b",
            flows=1,
            flows_met=1,
            delivered=1,
        )
        assert (log.template, log.flows, log.delivered) == ("local", 0, 0)
        # Only one of the two paths is quick enough.
        assert (uav.name, uav.flows, uav.flows_met, uav.delivered) == ("uav/#", 1, 0, 1)
        assert [shortfall(flow) for flow in flows(net, "d")] == ["1 of 2 paths", ""]

    def test_flows_from_before_a_change_do_not_count(self) -> None:
        net = network(LINE)
        net.define("a", ChannelDefinition("uav/#", max_delay_us=100 * MS))
        net.publish("a", "c", "uav/imagery")
        net.run(lambda: net.status("a").channels[0].flows_met == 1)
        net.define("a", ChannelDefinition("uav/#", max_delay_us=20 * MS, created_us=1))
        assert net.status("a").channels[0].flows == 0
        net.publish("a", "c", "uav/imagery")
        net.run(lambda: flows(net, "a")[-1].routes[0].state == IN_USE)
        channel = net.status("a").channels[0]
        assert (channel.flows, channel.flows_met) == (1, 0)
        assert shortfall(flows(net, "a")[-1]) == "too slow"


def flow(*routes: RouteStatus, resiliency: float = 0.0, reached: float = 1.0) -> FlowStatus:
    return FlowStatus(
        source="a",
        destination="b",
        max_delay_us=10,
        paths=2,
        resiliency=resiliency,
        reached=reached,
        is_met=True,
        changes=1,
        routes=routes,
        channels=(),
    )


def test_what_lacks() -> None:
    quick = RouteStatus(path=("a", "b"), delay_us=10, state=IN_USE)
    slow = RouteStatus(path=("a", "b"), delay_us=11, state=IN_USE)
    asked = RouteStatus(path=("a", "b"), delay_us=1, state="setting up")
    assert shortfall(flow()) == "no route"
    assert shortfall(flow(asked)) == "no route yet"
    assert shortfall(flow(quick, slow)) == "too slow"
    assert shortfall(flow(quick)) == "1 of 2 paths"
    assert shortfall(flow(quick, quick)) == ""
    assert shortfall(flow(quick, resiliency=0.9, reached=0.95)) == ""
    assert shortfall(flow(quick, quick, resiliency=0.9, reached=0.85)) == "too likely to fail"
