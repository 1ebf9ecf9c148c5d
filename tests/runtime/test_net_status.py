"""What a running node tells of its part in the overlay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from benchmarks.ports import free_port
from tests.brokers import HOST

from accord.core.channels.channels import SHIPPED
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.status import NetStatus
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import Node, Settings
from accord.runtime.overlay_service import NetOptions, OverlayService
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
