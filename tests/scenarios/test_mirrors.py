"""A client at several real nodes misses nothing when one of them is killed, and gets all once."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

import accord
from accord.client.session import Session
from accord.client.subscription import Subscription
from tests.brokers import accord_only
from tests.net_nodes import RunningNode, start_nodes, wait_until
from tests.scenarios.test_persistent import CHANNEL, Site, hear, is_silent, of, say, start_site

# Two publishers beyond two nodes that a client may use, one of them a secondary node.
SITES: Final = {
    "backbone": ({"a": [], "b": ["a"], "c": ["a", "b"], "d": ["a", "b"]}, ()),
    "secondary": ({"a": [], "c": ["a"], "d": ["a", "c"], "b": ["c", "d"]}, ("b",)),
}
COUNT: Final = 600
KILLED_AT: Final = 200

pytestmark = pytest.mark.timeout(300)


@accord_only
@pytest.mark.parametrize(
    ("site", "template"), [("backbone", "total_order"), ("secondary", "reliable")]
)
def test_a_client_misses_nothing_when_its_node_is_killed(site: str, template: str) -> None:
    neighbours, secondary = SITES[site]
    with start_nodes(neighbours, killed=["a", "b"], secondary=secondary) as nodes:
        made = nodes["a"].accord("channel", "create", "orders/#", "--template", template)
        assert made.exit_code == 0, made.output
        for each in nodes.values():
            wait_until(lambda each=each: "orders/#" in each.accord("channel", "ls").output)  # type: ignore[misc]
        asyncio.run(_kill_one(nodes))


async def _kill_one(nodes: dict[str, RunningNode]) -> None:
    async with (
        accord.connect([nodes["a"].url, nodes["b"].url], mirrored=True) as client,
        accord.connect(nodes["c"].url) as one,
        accord.connect(nodes["d"].url) as other,
        client.subscribe("orders/#") as events,
    ):
        await asyncio.gather(_prove(one, "c"), _prove(other, "d"), _proven(events, 2))
        publishing = asyncio.gather(_say(one, "c"), _say(other, "d"))
        heard: list[str] = []
        while len(heard) < 2 * COUNT:
            heard.append(await _next(events))
            if len(heard) == KILLED_AT:
                nodes["a"].broker.process.send_signal(signal.SIGKILL)
        await publishing
        for name in ("c", "d"):
            numbers = [int(each.split()[1]) for each in heard if each.startswith(name)]
            assert numbers == list(range(COUNT)), name
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(events)


# Two parents of a secondary node, and a node beyond them; the client is at two of all these.
TIERS: Final = {"a": [], "b": ["a"], "c": ["b"], "x": ["a", "b"]}


@accord_only
@pytest.mark.parametrize(("servers", "killed"), [(("a", "b"), "a"), (("c", "x"), "c")])
def test_the_past_and_what_is_live_come_once_though_a_node_is_killed_meanwhile(
    tmp_path: Path, servers: tuple[str, str], killed: str
) -> None:
    with start_site(tmp_path, TIERS, ("x",)) as site:
        asyncio.run(_kill_while_the_past_is_told(site, servers, killed))


async def _kill_while_the_past_is_told(site: Site, servers: tuple[str, str], killed: str) -> None:
    half = COUNT // 2
    async with AsyncExitStack() as stack:
        # At nodes that stay: where a publisher's node is killed, QoS 1 may say something twice.
        at = {"x": site.url("x"), "c": site.url("b" if killed == "c" else "c")}
        publishers = {
            name: await stack.enter_async_context(accord.connect(url)) for name, url in at.items()
        }
        await asyncio.gather(*(say(each, name, range(half)) for name, each in publishers.items()))
        client = await stack.enter_async_context(_at(site, servers))
        events = await stack.enter_async_context(client.subscribe("chat/#", queue=50))
        publishing = asyncio.gather(
            *(say(each, name, range(half, COUNT)) for name, each in publishers.items())
        )
        heard = await hear(events, KILLED_AT)
        await asyncio.to_thread(site.kill, killed)
        await publishing
        await asyncio.to_thread(site.start, killed)
        while len({*heard}) < 2 * COUNT:
            heard += await hear(events, 1)
        assert await is_silent(events)
        assert len(heard) == 2 * COUNT
        for name in publishers:
            assert sorted(of(heard, name)) == list(range(COUNT))


@accord_only
@pytest.mark.parametrize("channel", ["orders/1", CHANNEL])
def test_what_a_node_owed_before_it_was_killed_does_not_come_again(
    tmp_path: Path, channel: str
) -> None:
    with start_site(tmp_path, TIERS, ("x",)) as site:
        made = site.node("c").accord("channel", "create", "orders/#", "--template", "reliable")
        assert made.exit_code == 0, made.output
        for name in TIERS:
            node = site.node(name)
            wait_until(lambda node=node: "orders/#" in node.accord("channel", "ls").output)  # type: ignore[misc]
        asyncio.run(_kill_one_that_owes(site, channel))


async def _kill_one_that_owes(site: Site, channel: str) -> None:
    async with (
        _at(site, ("a", "b")) as client,
        accord.connect(site.url("c")) as one,
        accord.connect(site.url("x")) as other,
        client.subscribe(channel, queue=20) as events,
    ):
        first = asyncio.gather(_prove(one, "c", channel), _prove(other, "x", channel))
        await asyncio.gather(first, _proven(events, 2))
        # More than the client takes: both nodes have it in what they owe the client, on disk.
        await asyncio.gather(_say(one, "c", channel), _say(other, "x", channel))
        heard = await hear(events, KILLED_AT)
        await asyncio.to_thread(site.kill, "a")
        await asyncio.to_thread(site.start, "a")
        while len({*heard}) < 2 * COUNT:
            heard += await hear(events, 1)
        assert await is_silent(events)
        assert len(heard) == 2 * COUNT


def _at(site: Site, servers: tuple[str, str]) -> AbstractAsyncContextManager[Session]:
    return accord.connect([site.url(each) for each in servers], mirrored=True)


async def _prove(session: Session, name: str, channel: str = "orders/first") -> None:
    """That both nodes are known to want it, which takes a moment."""
    for number in range(20):
        await session.publish(channel, f"{name} {number}".encode())
        await asyncio.sleep(0.1)


async def _proven(events: Subscription, sources: int) -> None:
    """Until the last one of each has come."""
    last = 0
    while last < sources:
        last += (await _next(events)).endswith(" 19")


async def _say(session: Session, name: str, channel: str = "orders/1") -> None:
    for number in range(COUNT):
        await session.publish(channel, f"{name} {number}".encode())


async def _next(events: Subscription) -> str:
    async with asyncio.timeout(60):
        return (await anext(events)).payload.decode()
