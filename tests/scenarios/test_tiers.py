"""A secondary node with two parents, all of them processes: publish and subscribe at all three."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

import pytest

import accord
from accord.client.session import Session
from accord.client.subscription import Subscription
from tests.brokers import accord_only
from tests.net_nodes import RunningNode, start_nodes, wait_until
from tests.scenarios.test_net import until
from tests.scenarios.test_templates import defined

TIERS = {"a": [], "b": ["a"], "x": ["a", "b"]}
EACH = 300


def active(node: RunningNode) -> str:
    tier = node.status().tier
    assert tier is not None
    return next((each.name for each in tier.parents if each.is_active), "")


def children(node: RunningNode) -> dict[str, bool]:
    """By name, whether this node is the active parent."""
    return {each.name: each.is_active for each in node.status().children if each.interests}


def is_child(node: RunningNode) -> bool:
    return "x" in children(node)


async def attached(nodes: dict[str, RunningNode]) -> None:
    """Both parents know what the child needs, and each other's needs."""
    for name in "ab":
        await asyncio.to_thread(wait_until, partial(is_child, nodes[name]))
        await until(nodes[name], "b" if name == "a" else "a", 1)


async def talk(session: Session, name: str, channel: str) -> None:
    for number in range(EACH):
        await session.publish(channel, f"{name} {number}".encode(), qos=1)
        await asyncio.sleep(0.002)


async def listen(events: Subscription, wanted: dict[str, bool]) -> list[str]:
    """Until all that is wanted has come, and a little longer."""
    heard = []
    left = dict(wanted)
    while left:
        heard.append((await anext(events)).payload.decode())
        left.pop(heard[-1], None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            heard.append((await anext(events)).payload.decode())
    return heard


async def converse(
    nodes: dict[str, RunningNode], talking: str, listening: str, channel: str, killed: str = ""
) -> dict[str, list[str]]:
    """What is heard at each node; `killed` is, when some of it has been said."""
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        sessions: dict[str, Session] = {}
        heard = {}
        for name in sorted({*talking, *listening}):
            sessions[name] = await stack.enter_async_context(accord.connect(nodes[name].url))
        for name in listening:
            events = sessions[name].subscribe(channel, qos=1)
            heard[name] = await stack.enter_async_context(events)
        if not killed:
            await attached(nodes)
        else:
            for name in "ab":
                await asyncio.to_thread(wait_until, partial(is_child, nodes[name]))
            await asyncio.to_thread(wait_until, lambda: active(nodes["x"]) == killed)
        wanted = {f"{name} {number}": True for name in talking for number in range(EACH)}
        got = asyncio.gather(*(listen(events, wanted) for events in heard.values()))
        said = asyncio.gather(*(talk(sessions[name], name, channel) for name in talking))
        if killed:
            await asyncio.sleep(0.3)
            nodes[killed].broker.process.kill()
        await said
        return dict(zip(heard, await got, strict=True))


def in_order(heard: list[str], talking: str) -> bool:
    return all(
        [each for each in heard if each.startswith(name)]
        == [f"{name} {number}" for number in range(EACH)]
        for name in talking
    )


DEFINED = defined("reliable") + '[channels."all/#"]\ntemplate = "total_order"\n'


@accord_only
def test_clients_of_all_tiers_hear_each_other() -> None:
    """On channels of three kinds: routed, reliable, and with one order for all."""
    with start_nodes(TIERS, DEFINED, secondary=["x"]) as nodes:
        for channel in ("plain/talk", "room/talk"):
            for name, heard in asyncio.run(converse(nodes, "abx", "abx", channel)).items():
                assert in_order(heard, "abx"), (channel, name)
        a, b, x = asyncio.run(converse(nodes, "abx", "abx", "all/talk")).values()
        assert a == b == x
        assert len(a) == len(set(a)) == 3 * EACH
        _look(nodes)


def _look(nodes: dict[str, RunningNode]) -> None:
    """What people see of it."""
    assert "secondary node, 2 of 2 parents linked" in nodes["x"].accord("net").stdout
    assert "child" in nodes["a"].accord("net").stdout
    listed = nodes["x"].accord("channel", "ls")
    assert listed.exit_code == 0
    assert "total_order" in listed.stdout
    refused = nodes["x"].accord("channel", "create", "mine", "--template", "reliable")
    assert refused.exit_code == 2
    assert "define channels at a backbone node" in refused.stderr


@accord_only
def test_nothing_is_lost_when_the_active_parent_is_killed() -> None:
    with start_nodes(TIERS, DEFINED, secondary=["x"], killed=["a"]) as nodes:
        heard = asyncio.run(converse(nodes, "bx", "bx", "room/talk", killed="a"))
        assert in_order(heard["b"], "bx")
        assert in_order(heard["x"], "bx")
        assert active(nodes["x"]) == "b"
        assert [each.is_active for each in nodes["b"].status().children] == [True]
