"""The rows of the map are what the status says, at every node, whatever happens."""

from __future__ import annotations

import msgspec
import pytest
from tests.overlay_network import MS, OverlayNetwork, S

from accord.core.model.locations import is_location
from accord.core.overlay import net_map
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.net_map import NetLink, NetMap, NetNode
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import LINK, NODE, NodeValue, Overlay
from accord.core.overlay.status import ArrivalStatus, FlowStatus
from accord.core.overlay.status_snapshot import net_status

LINKS = {("a", "b"): 10, ("b", "c"): 10, ("a", "c"): 30, ("c", "d"): 5}
SEATTLE = (47.61, -122.33)


class Watched(OverlayNetwork):
    """Every node has a map, which is brought up to date from time to time."""

    def __init__(self) -> None:
        options = OverlayOptions(ping_us=100 * MS, publish_arrivals_us=200 * MS)
        super().__init__(LINKS, options)
        self.maps = {name: NetMap(overlay) for name, overlay in self.nodes.items()}

    def check(self) -> None:
        """Each map shows what the status of its node does."""
        for name, known in self.maps.items():
            known.update()
            known.check_invariants()
            assert not known.update()
            status = net_status(self.nodes[name])
            rows = known.rows
            nodes = {origin: row for (kind, origin, _), row in rows.items() if kind == NODE}
            assert nodes == {
                each.name: NetNode(
                    is_reachable=each.is_reachable,
                    processing_us=each.processing_us,
                    started_ms=each.started_ms,
                    location=each.location,
                )
                for each in status.nodes
            }
            links = {key[1:]: row for key, row in rows.items() if key[0] == LINK}
            assert links == {
                (each.source, each.target): NetLink(
                    latency_us=each.latency_us,
                    is_up=each.is_up,
                    is_used=each.is_used,
                    loss=round(each.loss, 4),
                    failure=each.failure,
                )
                for each in status.links
            }
            flows = [row for row in rows.values() if isinstance(row, FlowStatus)]
            assert {each.source for each in flows} == {each.source for each in status.flows}
            came = [row for row in rows.values() if isinstance(row, ArrivalStatus)]
            assert {each.channel for each in came} == {each.channel for each in status.arrivals}


def test_it_follows_links_flows_and_arrivals_at_every_node() -> None:
    net = Watched()
    net.define("a", ChannelDefinition("uav", max_delay_us=100 * MS, paths=2))
    net.run_for(2 * S)
    net.check()
    for _ in range(20):
        net.publish("a", "c", "uav")
        net.run_for(50 * MS)
    net.run_for(3 * S)
    net.check()
    (flow,) = (row for row in net.maps["d"].rows.values() if isinstance(row, FlowStatus))
    assert (flow.source, flow.destination, flow.channels) == ("a", "c", ("uav",))
    assert {each.path for each in flow.routes} == {("a", "c"), ("a", "b", "c")}
    net.cut("b", "c")
    net.run_for(3 * S)
    net.check()
    assert net.maps["d"].rows[LINK, "b", "c"].is_used is False  # type: ignore[union-attr]
    assert net.maps["d"].faults() == ([], [("b", "c")])
    net.join("b", "c", 40)
    net.run_for(3 * S)
    net.check()


def test_what_an_unreachable_node_reported_is_left_out() -> None:
    net = Watched()
    net.run_for(S)
    net.publish("d", "a", "uav")
    net.run_for(3 * S)
    net.check()
    assert any(isinstance(row, FlowStatus) for row in net.maps["a"].rows.values())
    net.cut("c", "d")
    net.run_for(3 * S)
    net.check()
    assert not any(isinstance(row, FlowStatus) for row in net.maps["a"].rows.values())
    assert net.maps["a"].rows[NODE, "d", ""].is_reachable is False  # type: ignore[union-attr]
    assert net.maps["a"].faults() == (["d"], [])
    net.join("c", "d", 5)
    net.run_for(3 * S)
    net.check()
    assert net.maps["a"].faults() == ([], [])
    assert net.maps["a"].rows[NODE, "d", ""].is_reachable is True  # type: ignore[union-attr]


def test_all_nodes_learn_where_a_node_is() -> None:
    net = Watched()
    one = net.nodes["a"]
    one.options = msgspec.structs.replace(one.options, location=SEATTLE)
    net.run_for(3 * S)
    one.record_processing(500_000)  # has it announced
    net.run_for(3 * S)
    net.check()
    for known in net.maps.values():
        row = known.rows[NODE, "a", ""]
        assert isinstance(row, NetNode)
        assert row.location == SEATTLE


def test_it_is_announced_at_the_start() -> None:
    options = OverlayOptions(location=SEATTLE)
    overlay = Overlay("a", 1, options, lambda: 0.5, lambda *_: None)
    assert overlay.locations == {"a": SEATTLE}


@pytest.mark.parametrize("location", [(91.0, 0.0), (0.0, 181.0), (float("nan"), 0.0)])
def test_a_place_that_is_none_is_ignored(location: tuple[float, float]) -> None:
    assert not is_location(*location)
    overlay = Overlay("a", 1, OverlayOptions(location=location), lambda: 0.5, lambda *_: None)
    assert overlay.locations == {}


def test_the_record_can_be_read_by_nodes_of_both_formats() -> None:
    class Former(msgspec.Struct, frozen=True, array_like=True):
        processing_us: int

    new = msgspec.msgpack.encode(NodeValue(7, SEATTLE))
    assert msgspec.msgpack.decode(new, type=Former) == Former(7)
    old = msgspec.msgpack.encode(Former(7))
    assert msgspec.msgpack.decode(old, type=NodeValue) == NodeValue(7)


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(net_map._BOUNDS, NODE, 2)
    net = Watched()
    net.run_for(2 * S)
    known = net.maps["a"]
    known.update()
    known.check_invariants()
    assert known.left_out == 2
    net.cut("c", "d")
    net.join("c", "d", 5)
    net.run_for(2 * S)
    known.update()
    assert known.left_out == 2
    del known.rows[NODE, "a", ""]
    known._counts[NODE] -= 1
    known._fill(NODE)
    assert len(known.update()) == 1
    known.check_invariants()
    assert known.left_out == 1
