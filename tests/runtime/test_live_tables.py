"""Live sets of a real node: their figures are what was published, received and dropped."""

from __future__ import annotations

import asyncio
import time
from typing import Any, TypeVar

import msgspec
import pytest
from tests.live_client import live_server
from tests.runtime.test_policy_runtime import a_node, decide, manager, picture, until, url

import accord
from accord.client.session import Session
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.router.rights import EVERYTHING, Rights
from accord.operations.clients import ClientChannels, ListClientChannels
from accord.operations.live_catalog import SETS
from accord.operations.live_deliveries import (
    ChannelViewState,
    ClientViewState,
    OutcomesState,
    WatchChannel,
    WatchClient,
    WatchOutcomes,
)
from accord.operations.live_set import Watch
from accord.operations.live_tables import ChannelsState, ClientsState, WatchChannels, WatchClients
from accord.operations.operation import Asker, RequestError, operation_of
from accord.runtime.ledger_store import MAX_FOLLOWING
from accord.runtime.node import Node

ADMIN = Asker(rights=EVERYTHING)
READER = Asker(rights=Rights(subscribe=("uav/#",), statistics=True))  # of one branch
State = TypeVar("State")


def sample(node: Node) -> None:
    manager(node).monitor.sample(now_ms=time.time_ns() // 1_000_000)


def state(node: Node, ask: Watch, kind: type[State], asker: Asker = ADMIN) -> State:
    found = SETS[str(ask.__struct_config__.tag)].compute(node.ports, ask, asker)
    assert isinstance(found, kind)
    return found


async def seeded(node: Node, ask: Watch, kind: type[State], asker: Asker = ADMIN) -> State:
    """The state once what happened before is counted, too."""
    before = manager(node).monitor.seeded
    state(node, ask, kind, asker)
    await until(lambda: manager(node).monitor.seeded > before)
    return state(node, ask, kind, asker)


async def take(events: Any, count: int) -> list[Any]:
    found = []
    async with asyncio.timeout(20):
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


def connect(node: Node, name: str) -> Any:
    return accord.connect(url(node), client_id=name)


async def publish(session: Session, channel: str, count: int, **options: Any) -> None:
    for number in range(count):
        await session.publish(channel, str(number), **options)


def test_a_client_gets_a_line_per_channel() -> None:
    async def run() -> None:
        async with a_node() as node:
            await decide(
                node,
                """
                [[policies]]
                name = "Reports"
                channel = "patrol/report"
                importance = 6
                preferences = "FullImageDrop"
                """,
            )
            async with (
                connect(node, "raven-7") as raven,
                connect(node, "hq") as hq,
                connect(node, "patrol-1") as patrol,
                patrol.subscribe("#") as events,
                patrol.subscribe("idle/channel"),
            ):
                await publish(raven, "uav/imagery", 12)
                await publish(hq, "patrol/report", 5)
                await publish(raven, "patrol/report", 3, qos=0)
                await take(events, 20)
                sample(node)
                found = await seeded(node, WatchClient(watch=1, client="patrol-1"), ClientViewState)
                assert list(found.channels) == ["uav/imagery", "patrol/report", "idle/channel"]
                imagery, report, idle = found.channels.values()
                assert (imagery.received, imagery.dropped, imagery.late) == (12, 0, 0)
                assert (imagery.sources, imagery.importance, imagery.policy) == (
                    ("raven-7",),
                    3,
                    "",
                )
                assert (report.received, report.sources) == (8, ("hq", "raven-7"))
                assert (report.importance, report.policy) == (6, "Reports")
                assert report.preset == "FullImageDrop"
                assert report.preferences is not None
                assert report.preferences.deadline_ms == 5_000
                assert (report.in_time, idle.in_time, idle.received) == (1.0, None, 0)
                assert report.last_ms is not None
                assert report.p50_ms is not None
                assert found.channels_total == 3
                assert {channel for _, channel, _, _ in found.latencies} == set(
                    list(found.channels)[:2]
                )
                assert found.status is not None
                assert found.status.sent == 20
                # Later events are added to what the table was seeded with.
                await publish(raven, "uav/imagery", 4)
                await take(events, 4)
                sample(node)
                later = state(node, WatchClient(watch=1, client="patrol-1"), ClientViewState)
                assert later.channels["uav/imagery"].received == 16
                fewer = state(
                    node, WatchClient(watch=2, client="patrol-1"), ClientViewState, READER
                )
                assert list(fewer.channels) == ["uav/imagery"]
                assert {channel for _, channel, _, _ in fewer.latencies} == {"uav/imagery"}
                once = await operation_of(ListClientChannels).perform(
                    node.ports, ListClientChannels(client="patrol-1"), ADMIN
                )
                assert isinstance(once, ClientChannels)
                assert once.channels["uav/imagery"].received == 16
                with pytest.raises(RequestError, match="no client 'nobody'"):
                    await operation_of(ListClientChannels).perform(
                        node.ports, ListClientChannels(client="nobody"), ADMIN
                    )

    asyncio.run(run())


def test_what_a_thin_link_can_not_carry_in_time_is_dropped() -> None:
    async def run() -> None:
        async with a_node() as node:
            await manager(node).admin.patch({"client_bandwidth": "100 kbit/s"})
            async with (
                connect(node, "raven-7") as raven,
                connect(node, "patrol-1") as patrol,
                patrol.subscribe("uav/imagery", qos=0) as events,
            ):
                for _ in range(40):
                    await raven.publish("uav/imagery", b"x" * 2_000, qos=0, deadline_ms=400)
                await raven.publish("uav/imagery", b"end", qos=1)
                got = 0
                async with asyncio.timeout(20):
                    async for event in events:
                        got += 1
                        if event.payload == b"end":
                            break
                sample(node)
                found = await seeded(node, WatchClient(watch=1, client="patrol-1"), ClientViewState)
                (line,) = found.channels.values()
                assert (line.received, line.dropped) == (got, 41 - got)
                assert 0 < line.dropped < 40
                assert line.in_time == round((got - line.late) / 41, 4)
                expired = [each for each in found.latencies if each[3] == "expired"]
                assert expired
                channel = await seeded(
                    node, WatchChannel(watch=1, channel="uav/imagery"), ChannelViewState
                )
                (subscriber,) = channel.subscribers.values()
                assert (subscriber.received, subscriber.dropped) == (got, 41 - got)
                assert channel.publishers["raven-7"].published == 41
                newest = await seeded(
                    node, WatchOutcomes(watch=1, client="patrol-1", limit=500), OutcomesState
                )
                by_outcome = {"delivered": 0, "expired": 0, "late": 0}
                for each in newest.rows.values():
                    by_outcome[each.outcome] += each.count
                assert by_outcome["expired"] == 41 - got
                assert by_outcome["delivered"] + by_outcome["late"] == got

    asyncio.run(run())


def test_shaped_events_are_counted_with_who_decided() -> None:
    async def run() -> None:
        async with a_node() as node:
            await decide(
                node,
                """
                [[policies]]
                name = "small"
                channel = "image"
                preferences = { shaping = "scaling", max_bytes = 20000 }
                """,
            )
            async with (
                connect(node, "cam") as camera,
                connect(node, "patrol-1") as patrol,
                patrol.subscribe("image") as events,
            ):
                for _ in range(3):
                    await camera.publish("image", picture(), content_type="image/jpeg")
                await take(events, 3)
                sample(node)
                found = await seeded(node, WatchClient(watch=1, client="patrol-1"), ClientViewState)
                line = found.channels["image"]
                assert (line.received, line.shaped, line.dropped) == (3, 3, 0)
                assert (line.importance, line.policy, line.preset) == (3, "small", "")
                assert line.preferences is not None
                assert (line.preferences.shaping, line.preferences.max_bytes) == ("scaling", 20_000)
                assert {each[3] for each in found.latencies} == {"shaped"}

    asyncio.run(run())


def test_a_channel_has_its_publishers_and_subscribers() -> None:
    async def run() -> None:
        async with a_node() as node:
            assert node.net is not None
            definition = ChannelDefinition(name="uav/#", template="routed", max_delay_us=200_000)
            assert node.net.create_channel(definition, replace=False) is None
            async with (
                connect(node, "raven-7") as raven,
                connect(node, "raven-9") as other,
                connect(node, "patrol-1") as patrol,
                connect(node, "desk-1") as desk,
                patrol.subscribe("uav/imagery", where="height > 300") as high,
                desk.subscribe("uav/#", qos=2) as events,
                desk.subscribe("uav/imagery", qos=0),
            ):
                await publish(raven, "uav/imagery", 6, height=400)
                await publish(other, "uav/imagery", 4, height=100)
                await publish(other, "uav/tasking", 2)
                await take(high, 6)
                await take(events, 12)
                sample(node)
                watch = WatchChannel(watch=1, channel="uav/imagery")
                found = await seeded(node, watch, ChannelViewState)
                assert found.activity is not None
                assert (found.activity.published, found.activity.delivered) == (10, 16)
                assert (found.activity.template, found.activity.max_delay_ms) == ("routed", 200)
                assert (found.activity.subscribers, found.activity.publishers) == (2, 2)
                assert found.definition is not None
                assert found.definition.name == "uav/#"
                assert {name: each.published for name, each in found.publishers.items()} == {
                    "raven-7": 6,
                    "raven-9": 4,
                }
                assert found.publishers["raven-7"].last_ms is not None
                patrol_, desk_ = (found.subscribers[name] for name in ("patrol-1", "desk-1"))
                assert (patrol_.received, patrol_.where) == (6, "height > 300")
                assert (desk_.received, desk_.filter, desk_.qos) == (10, "uav/#", 2)
                assert (found.subscribers_total, found.publishers_total) == (2, 2)
                with pytest.raises(RequestError, match="may not see"):
                    state(node, WatchChannel(watch=1, channel="patrol/x"), ChannelViewState, READER)
                with pytest.raises(RequestError, match="without wildcards"):
                    state(node, WatchChannel(watch=1, channel="uav/#"), ChannelViewState)

    asyncio.run(run())


def test_tables_of_channels_and_clients() -> None:
    async def run() -> None:
        async with a_node() as node:
            assert node.net is not None
            made = ChannelDefinition(name="uav/quiet", template="routed")
            assert node.net.create_channel(made, replace=False) is None
            async with (
                connect(node, "raven-7") as raven,
                connect(node, "patrol-1") as patrol,
                patrol.subscribe("uav/#") as events,
            ):
                for number, channel in enumerate(("uav/b", "uav/a", "patrol/x"), 1):
                    await publish(raven, channel, number)
                await take(events, 3)
                sample(node)
                ask = WatchChannels(watch=1, sort="published", descending=True)
                found = state(node, ask, ChannelsState)
                assert found.order == ("patrol/x", "uav/a", "uav/b", "uav/quiet")
                assert (found.total, found.matching) == (4, 4)
                assert [found.rows[name].published for name in found.order] == [3, 2, 1, 0]
                assert [found.rows[name].subscribers for name in found.order] == [0, 1, 1, 1]
                assert [found.rows[name].publishers for name in found.order] == [1, 1, 1, 0]
                assert found.rows["uav/quiet"].template == "routed"
                second = WatchChannels(watch=1, search="UAV", offset=1, limit=1)
                part = state(node, second, ChannelsState)
                assert (part.order, part.matching, part.total) == (("uav/b",), 3, 4)
                for column in found.rows["uav/a"].__struct_fields__:
                    each = state(node, WatchChannels(watch=1, sort=column), ChannelsState)
                    assert set(each.order) == set(found.order)
                seen = state(node, WatchChannels(watch=1), ChannelsState, READER)
                assert (seen.order, seen.total) == (("uav/a", "uav/b", "uav/quiet"), 3)
                with pytest.raises(RequestError, match="expected one of channel"):
                    state(node, WatchChannels(watch=1, sort="colour"), ChannelsState)

                clients = state(node, WatchClients(watch=1, sort="sent"), ClientsState)
                assert clients.order == ("raven-7", "patrol-1")
                patrol_row = clients.rows["patrol-1"]
                assert (patrol_row.sent, patrol_row.subscriptions) == (3, 1)
                assert clients.rows["raven-7"].received == 6
                assert patrol_row.is_connected
                for column in patrol_row.__struct_fields__:
                    each_ = state(node, WatchClients(watch=1, sort=column), ClientsState)
                    assert set(each_.order) == set(clients.order)
                one = state(node, WatchClients(watch=1, search="RAVEN"), ClientsState)
                assert (one.order, one.total, one.matching) == (("raven-7",), 2, 1)

    asyncio.run(run())


def test_tables_that_nobody_asks_for_are_dropped() -> None:
    async def run() -> None:
        async with a_node() as node:
            store = manager(node).monitor.store
            now_ms = time.time_ns() // 1_000_000
            for number in range(MAX_FOLLOWING + 5):
                store.follow_client(f"client-{number}", now_ms=now_ms)
            assert store.following == MAX_FOLLOWING
            store.drain(now_ms=now_ms + 60_000)
            assert store.following == 0

    asyncio.run(run())


def test_a_viewer_is_sent_what_a_client_gets() -> None:
    async def run() -> None:
        async with (
            a_node() as node,
            live_server(node.ports) as server,
            server.client() as viewer,
            connect(node, "raven-7") as raven,
            connect(node, "patrol-1") as patrol,
            patrol.subscribe("uav/imagery") as events,
        ):
            first = await viewer.watch("client", client="patrol-1")
            assert first["channels"]["uav/imagery"]["received"] == 0
            await publish(raven, "uav/imagery", 7)
            await take(events, 7)
            async with asyncio.timeout(20):
                while viewer.states[1]["channels"]["uav/imagery"]["received"] < 7:
                    await viewer.update()
            for name in SETS:
                more: dict[str, object] = {"channel": "uav/imagery", "client": "patrol-1"}
                fields = SETS[name].fields
                wanted = {key: value for key, value in more.items() if key in fields}
                found = await viewer.watch(name, number=2, **wanted)
                assert "detail" not in msgspec.json.decode(msgspec.json.encode(found))

    asyncio.run(run())
