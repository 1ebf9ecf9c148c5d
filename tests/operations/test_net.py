"""The map and its history: what an asker sees of it, in pages."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from accord.core.monitoring.merge_patch import without_nulls
from accord.core.overlay.net_history import NetHistory
from accord.core.overlay.net_map import Change, Key, NetLink, NetMap, NetNode, Row
from accord.core.overlay.net_recorder import encode_change
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import LINK, NODE, Overlay
from accord.core.overlay.status import ArrivalStatus
from accord.core.overlay.status_publisher import ARRIVED, FLOW
from accord.core.router.rights import EVERYTHING, Rights
from accord.operations.live_catalog import SETS, read_request
from accord.operations.operation import Asker
from accord.operations.ports import NodePorts, PipelinePort
from tests.fake_net import FakeNet, five_cities, flow, route
from tests.fake_node import FakeNode
from tests.operations.asking import ask

T = 1_700_000_000_000
SEEING = Rights(subscribe=("uav/#",), statistics=True)
NET = "$accord/net"
ROWS: list[Change] = [
    ((NODE, "seattle", ""), NetNode(location=(47.6, -122.3))),
    ((LINK, "seattle", "denver"), NetLink(latency_us=12_000)),
    ((FLOW, "seattle", "0"), flow("seattle", "denver", channels=("secret", "uav/a"))),
    ((FLOW, "seattle", "1"), flow("seattle", "denver", channels=("secret",))),
    ((ARRIVED, "denver", "0"), ArrivalStatus(
        node="denver", source="seattle", channel="secret", delivered=1, late=0)),
    ((ARRIVED, "denver", "1"), ArrivalStatus(
        node="denver", source="seattle", channel="uav/a", delivered=2, late=1)),
]  # fmt: skip


class Known(NetMap):
    def __init__(self, rows: dict[Key, Row]) -> None:
        super().__init__(Overlay("seattle", 1, OverlayOptions(), lambda: 0.5, lambda *_: None))
        self.rows = rows


class MapNet(FakeNet):
    net_map: Known
    net_history: NetHistory

    def __init__(self) -> None:
        super().__init__()
        self.net_map = Known({key: row for key, row in ROWS if row is not None})
        self.net_history = NetHistory(T)


def ports(net: FakeNet, now_ms: int = T + 10_000) -> NodePorts:
    return NodePorts(view=FakeNode(), net=net, now_ms=lambda: now_ms)


def live_state(rights: Rights) -> dict[str, Any]:
    found = read_request('{"watch":1,"set":"net"}')
    assert isinstance(found, tuple)
    state = SETS["net"].compute(ports(MapNet()), found[1], Asker(rights=rights))
    shown = without_nulls(msgspec.to_builtins(state))
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(shown))
    return made


def test_the_live_set_shows_the_whole_network() -> None:
    state = live_state(EVERYTHING)
    assert state["nodes"] == {"seattle": {"location": [47.6, -122.3]}}
    assert state["links"] == {"seattle": {"denver": {"latency_us": 12_000}}}
    assert set(state["flows"]["seattle"]) == {"0", "1"}
    assert state["arrivals"]["denver"]["1"]["late"] == 1


def test_who_may_not_see_a_channel_sees_nothing_of_it() -> None:
    state = live_state(SEEING)
    assert set(state["flows"]["seattle"]) == {"0"}
    seen = state["flows"]["seattle"]["0"]
    assert (seen["channels"], seen["has_more"]) == (["uav/a"], True)
    assert set(state["arrivals"]["denver"]) == {"1"}
    assert b"secret" not in msgspec.json.encode(state)


def test_a_set_that_changes_with_the_map() -> None:
    net = MapNet()
    set_ = SETS["net"]
    before = set_.version(ports(net))
    net.net_map.version += 1
    assert set_.version(ports(net)) != before


class TestHistory:
    def net(self) -> MapNet:
        net = MapNet()
        net.net_history.add(ROWS, now_ms=T)
        slow = NetLink(latency_us=85_000)
        net.net_history.add([((LINK, "seattle", "denver"), slow)], now_ms=T + 1_000)
        net.net_history.add([((LINK, "seattle", "denver"), None)], now_ms=T + 2_000)
        return net

    def test_from_the_beginning(self) -> None:
        page = ask(ports(self.net()), NET, {"do": "history"})
        assert page["ok"]
        assert (page["from_ms"], page["at_ms"], page["has_more"]) == (T, T, False)
        assert page["rows"]["links"] == {"seattle": {"denver": {"latency_us": 12_000}}}
        assert [(each["at_ms"] - T, each["rows"]["links"]) for each in page["steps"]] == [
            (1_000, {"seattle": {"denver": {"latency_us": 85_000}}}),
            (2_000, {"seattle": {"denver": None}}),
        ]

    def test_from_a_moment_on(self) -> None:
        page = ask(ports(self.net()), NET, {"do": "history", "since_ms": T + 1_500})
        assert page["rows"]["links"] == {"seattle": {"denver": {"latency_us": 85_000}}}
        assert len(page["steps"]) == 1

    def test_in_pages(self) -> None:
        node = ports(self.net())
        first = ask(node, NET, {"do": "history", "limit": 1})
        assert (len(first["steps"]), first["has_more"]) == (1, True)
        next_ = ask(node, NET, {"do": "history", "after": first["after"], "limit": 1})
        assert next_["rows"] is None
        assert (next_["steps"][0]["at_ms"], next_["has_more"]) == (T + 2_000, False)

    def test_an_answer_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("accord.operations.net._MAX_CHANGES", 1)
        page = ask(ports(self.net()), NET, {"do": "history"})
        assert (len(page["steps"]), page["has_more"]) == (1, True)

    def test_it_hides_what_the_asker_may_not_see(self) -> None:
        net = self.net()
        hidden = flow("seattle", "denver", channels=("secret",))
        net.net_history.add([((FLOW, "seattle", "0"), hidden)], now_ms=T + 3_000)
        page = ask(ports(net), NET, {"do": "history"}, rights=SEEING)
        assert "secret" not in str(page)
        assert page["steps"][-1]["rows"]["flows"] == {"seattle": {"0": None}}

    @pytest.mark.parametrize("net", [FakeNet(), None])
    def test_a_node_that_does_not_know(self, net: FakeNet | None) -> None:
        answer = ask(NodePorts(view=FakeNode(), net=net), NET, {"do": "history"})
        assert (answer["ok"], answer["status"]) == (False, 404)


def test_the_status_hides_channels_too() -> None:
    net = FakeNet(
        msgspec.structs.replace(
            five_cities(),
            flows=(
                flow("seattle", "orlando", route("seattle", "orlando", delay_us=1),
                     channels=("uav/a", "secret")),
                flow("seattle", "denver", channels=("secret",)),
            ),
        )
    )  # fmt: skip
    reply = ask(ports(net), NET, {"do": "get"}, rights=SEEING)
    assert [each["channels"] for each in reply["flows"]] == [["uav/a"]]
    assert [each["channel"] for each in reply["arrivals"]] == ["uav/imagery"]
    assert "chat" not in str(reply["arrivals"])
    whole = ask(ports(net), NET, {"do": "get"})
    assert len(whole["flows"]) == 2


class ArchivedNet:
    """A pipeline that has records of the network."""

    def __init__(self, *records: tuple[int, str]) -> None:
        self.records = records
        self.ranges: list[tuple[int, int]] = []

    async def net_records(self, since_ms: int, until_ms: int, most: int) -> bytes:
        assert most > 0
        self.ranges.append((since_ms, until_ms))
        return msgspec.msgpack.encode(self.records)


def archived(pipeline: ArchivedNet, rights: Rights, **fields: int) -> Any:
    node = NodePorts(view=FakeNode(), net=MapNet(), pipeline=cast("PipelinePort", pipeline))
    return ask(
        node, NET, {"do": "archive", "since_ms": T, "until_ms": T + 60_000} | fields, rights=rights
    )


def test_an_older_time_is_told_by_what_was_recorded() -> None:
    failed = NetLink(latency_us=12_000, is_used=False)
    pipeline = ArchivedNet(
        *((T - 1_000, encode_change(key, row)) for key, row in ROWS if key[0] != ARRIVED),
        (T + 5_000, encode_change((LINK, "seattle", "denver"), failed)),
    )
    found = archived(pipeline, SEEING)
    assert pipeline.ranges == [(T - 1_800_000, T + 120_000)]
    assert (found["from_ms"], found["until_ms"]) == (T, T + 60_000)
    assert found["rows"]["links"]["seattle"]["denver"] == {"latency_us": 12_000}
    assert set(found["rows"]["flows"]["seattle"]) == {"0"}, "a secret channel"
    (step,) = found["steps"]
    assert step["at_ms"] == T + 5_000
    assert step["rows"]["links"]["seattle"]["denver"]["is_used"] is False


def test_a_time_that_is_none_is_refused() -> None:
    for until_ms in (T, T + 100_000_000):
        refused = archived(ArchivedNet(), EVERYTHING, until_ms=until_ms)
        assert (refused["status"], refused["place"]) == (400, "until_ms")
