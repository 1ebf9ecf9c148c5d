"""A client at several real nodes misses nothing when one of them is killed, and gets all once."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

import pytest

import accord
from accord.client.session import Session
from accord.client.subscription import Subscription
from tests.brokers import accord_only
from tests.net_nodes import RunningNode, start_nodes, wait_until

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


async def _prove(session: Session, name: str) -> None:
    """That both nodes are known to want it, which takes a moment."""
    for number in range(20):
        await session.publish("orders/first", f"{name} {number}".encode())
        await asyncio.sleep(0.1)


async def _proven(events: Subscription, sources: int) -> None:
    """Until the last one of each has come."""
    last = 0
    while last < sources:
        last += (await _next(events)).endswith(" 19")


async def _say(session: Session, name: str) -> None:
    for number in range(COUNT):
        await session.publish("orders/1", f"{name} {number}".encode())


async def _next(events: Subscription) -> str:
    async with asyncio.timeout(60):
        return (await anext(events)).payload.decode()
