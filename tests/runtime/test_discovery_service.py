"""Nodes that find each other: through one neighbour, and by beacons in a multicast group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from benchmarks.ports import free_port
from tests.brokers import HOST
from tests.runtime.test_link_transports import WEB
from tests.runtime.test_overlay_service import ANYWHERE, KEY, link_of, net_of, until

from accord.core.overlay.discovery import ADDRESS, DiscoveryOptions, encode_addresses
from accord.core.overlay.options import OverlayOptions
from accord.core.router.rights import EVERYTHING
from accord.runtime.addresses import SocketAddress
from accord.runtime.multicast_links import MulticastOptions
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.overlay_service import NetOptions
from accord.runtime.users import Users


def node(
    name: str, *neighbours: SocketAddress, most: int = 4, discovers: bool = True, port: int = 0,
    key: bytes = KEY, listen: tuple[SocketAddress, ...] = (ANYWHERE,),
) -> Node:  # fmt: skip
    group = SocketAddress("239.255.77.4", port)
    options = NetOptions(
        listen=listen,
        neighbours=neighbours,
        key=key,
        overlay=OverlayOptions(ping_us=50_000),
        discover=DiscoveryOptions(max_links=most) if discovers else None,
        multicast=MulticastOptions(group=group, interface=HOST) if port else None,
    )
    settings = Settings(
        name=name, listeners=(ListenerSettings(ANYWHERE),), statistics_s=0, net=options
    )
    return Node(settings, Users(anonymous=EVERYTHING))


def linked(one: Node) -> list[str]:
    return sorted(net_of(one).overlay.used_neighbours())


def run(test: Callable[[AsyncExitStack], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            await test(stack)

    asyncio.run(main())


def test_who_knows_one_neighbour_finds_the_others() -> None:
    async def test(stack: AsyncExitStack) -> None:
        a = await stack.enter_async_context(node("a", listen=(WEB,)))
        b = await stack.enter_async_context(node("b", link_of(a)))
        c = await stack.enter_async_context(node("c", link_of(b)))
        shy = await stack.enter_async_context(node("shy", link_of(b), discovers=False))
        await until(lambda: linked(c) == ["a", "b"])
        await until(lambda: linked(a) == ["b", "c"])
        assert linked(shy) == ["b"], "it neither seeks nor tells"
        told = net_of(b).overlay.store.get("a", ADDRESS, "")
        assert told == encode_addresses((str(link_of(a)),)), "a WebSocket"

    run(test)


def test_no_more_links_are_sought_than_allowed() -> None:
    async def test(stack: AsyncExitStack) -> None:
        hub = await stack.enter_async_context(node("hub", most=1))
        others = [
            await stack.enter_async_context(node(name, link_of(hub), most=1)) for name in "abcd"
        ]
        await until(lambda: len(linked(hub)) == 4)
        await until(lambda: all(len(net_of(each).overlay.store.origins()) == 5 for each in others))
        await asyncio.sleep(2.5)  # two looks
        assert [linked(each) for each in others] == [["hub"]] * 4

    run(test)


def test_beacons_find_first_neighbours() -> None:
    async def test(stack: AsyncExitStack) -> None:
        port = free_port()
        a = await stack.enter_async_context(node("a", port=port))
        b = await stack.enter_async_context(node("b", port=port))
        stranger = await stack.enter_async_context(
            node("stranger", port=port, key=b"another secret, a wrong one")
        )
        await until(lambda: linked(a) == ["b"] and linked(b) == ["a"])
        assert linked(stranger) == []
        assert net_of(stranger).status().links_down == (), "it has not even tried"

    run(test)


def test_addresses_that_lead_elsewhere_do_no_harm() -> None:
    async def test(stack: AsyncExitStack) -> None:
        b = await stack.enter_async_context(node("b", discovers=False, listen=(ANYWHERE, ANYWHERE)))
        liar = await stack.enter_async_context(node("liar", link_of(b), discovers=False))
        mute = await stack.enter_async_context(node("mute", link_of(b), discovers=False))
        elsewhere = str(net_of(b).addresses[1])
        net_of(liar).overlay.store.put(ADDRESS, "", encode_addresses((elsewhere,)))
        net_of(mute).overlay.store.put(ADDRESS, "", encode_addresses(("nonsense",)))
        a = await stack.enter_async_context(node("a", link_of(b)))
        await until(lambda: linked(a) == ["b"])
        (link,) = net_of(a).links()
        found = "expected node liar there, found b"
        await until(lambda: any(found in each.problem for each in net_of(a).status().links_down))
        await until(lambda: not net_of(a).status().links_down)  # then it is left alone
        assert net_of(a).links()[0].up_us == link.up_us, "the link to who is there has stayed"

    run(test)
