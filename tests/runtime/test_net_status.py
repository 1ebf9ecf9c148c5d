"""What a running node tells of its part in the overlay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from benchmarks.ports import free_port
from tests import fake_pipeline
from tests.brokers import HOST

from accord.core.channels.channels import SHIPPED
from accord.core.monitoring.ledger import outcome_name
from accord.core.monitoring.sightings import LINKS
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.net_map import NetLink
from accord.core.overlay.overlay import LINK
from accord.core.overlay.status import NetStatus
from accord.journal.ledger_records import decode_ledger, decode_rows
from accord.journal.reader import Reader
from accord.journal.record import Batch
from accord.runtime.addresses import SocketAddress
from accord.runtime.durability import EVENTS
from accord.runtime.node import Node, Settings
from accord.runtime.overlay_service import NetOptions, OverlayService
from accord.runtime.pipeline import PipelineOptions
from accord.runtime.users import Users


def settings(name: str, *neighbours: SocketAddress) -> Settings:
    net = NetOptions(listen=(SocketAddress(HOST, 0),), neighbours=neighbours)
    return Settings(name=name, statistics_s=0, net=net)


def net_of(node: Node) -> OverlayService:
    assert isinstance(node.net, OverlayService)
    return node.net


async def until(net: OverlayService, is_so: Callable[[NetStatus], object]) -> NetStatus:
    """The test's time-out is the limit."""
    while not is_so(net.status()):
        await asyncio.sleep(0.01)
    return net.status()


def test_a_neighbour_that_is_not_there() -> None:
    async def main() -> None:
        dead = SocketAddress(HOST, free_port())
        async with Node(settings("a", dead), Users()) as node:
            status = await until(net_of(node), lambda now: now.links_down)
            (links_down,) = status.links_down
            assert links_down.address == str(dead)
            assert links_down.problem == "connection refused"
            assert [each.name for each in status.nodes] == ["a"]

    asyncio.run(main())


def test_two_nodes_see_each_other() -> None:
    async def main() -> None:
        async with Node(settings("a"), Users()) as a:
            (address,) = net_of(a).addresses
            async with Node(settings("b", address), Users()) as b:
                net = net_of(b)
                status = await until(net, lambda now: sum(each.is_used for each in now.links) == 2)
                assert status.links_down == ()
                assert net.templates == sorted(SHIPPED)
                wanted = ChannelDefinition("uav/#", max_delay_us=200_000)
                assert net.create_channel(wanted, replace=False) is None
                await until(net_of(a), lambda now: now.channels)
                (channel,) = net_of(a).channel_statuses()
                assert (channel.name, channel.node) == ("uav/#", "b")
                assert net_of(a).delete_channel("uav/#") is None
                await until(net, lambda now: not now.channels)

    asyncio.run(main())


def recorded(data: Path) -> list[tuple[str, str, str, str, bool]]:
    """Sightings in the journal of a node; the last member is whether one begins a state."""
    found = []
    for batch in Reader(data / EVENTS).read(0, max_records=10_000):
        assert isinstance(batch, Batch)
        for record in map(decode_ledger, batch.records()):
            for row in decode_rows(record):
                found.append((row[3], row[4], row[5], outcome_name(row[6]), row[7] == 0))
    return found


def is_mapped(node: Node) -> bool:
    row = net_of(node).net_map.rows.get((LINK, "a", "b"))
    return isinstance(row, NetLink) and row.is_up


def test_what_the_pipeline_measures_of_links_reaches_all_nodes(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    measured = [
        ["link", '["a","b"]', "failure_probability", 0.4, now_ms],
        ["link", '["b","c"]', "failure_probability", 0.9, now_ms],
        ["node", '["a","boise"]', "failure_probability", 0.3, now_ms],
    ]
    command = fake_pipeline.command({"measured": measured})
    with_pipeline = msgspec.structs.replace(
        settings("a"), data=tmp_path, pipeline=PipelineOptions(command=command)
    )

    async def main() -> None:
        async with Node(with_pipeline, Users()) as a:
            (address,) = net_of(a).addresses
            async with Node(settings("b", address), Users()) as b:
                await until(net_of(b), lambda now: any(each.failure == 0.4 for each in now.links))
                assert net_of(b).overlay.map.link_failure("a", "b") == 0.4
                assert net_of(a).overlay.map.node_failure("boise") == 0.3
            await until(net_of(a), lambda _: not is_mapped(a))
            async with Node(settings("b", address), Users()):
                await until(net_of(a), lambda _: is_mapped(a))

    asyncio.run(main())
    states = [
        state
        for *place, state, begins in recorded(tmp_path)
        if begins and place == [LINKS, "a", "b"]
    ]
    assert states == ["up", "down", "up"]
