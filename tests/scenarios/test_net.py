"""Several nodes: publish at one, subscribe at another, and lose one on the way between them."""

from __future__ import annotations

import asyncio
import json
from typing import Final

import accord
from accord.client.session import Session
from accord.client.subscription import Subscription
from tests.brokers import accord_only
from tests.net_nodes import RunningNode, start_nodes, wait_until

HIGH: Final = "altitude_m > 300"
UAV: Final = '[channels."uav/#"]\nmax_delay_ms = 5_000\n'


def needs_are_known(node: RunningNode, of: str, count: int) -> bool:
    return any(each.name == of and each.interests == count for each in node.status().nodes)


async def until(node: RunningNode, of: str, count: int) -> None:
    """What `of` needs is known at `node`."""
    await asyncio.to_thread(wait_until, lambda: needs_are_known(node, of, count))


def unreachable(node: RunningNode) -> list[str]:
    return [each.name for each in node.status().nodes if not each.is_reachable]


async def publish(session: Session, channel: str, numbers: range) -> None:
    for number in numbers:
        altitude_m = 420 if number % 2 else 120
        await session.publish(channel, str(number).encode(), altitude_m=altitude_m)


async def receive(events: Subscription, count: int) -> list[int]:
    return [int((await anext(events)).payload) for _ in range(count)]


@accord_only
def test_three_nodes_in_a_line() -> None:
    with start_nodes({"a": [], "b": ["a"], "c": ["b"]}, UAV) as nodes:
        asyncio.run(_line(nodes["a"], nodes["c"]))
        _look(nodes["b"])
        _define(nodes["a"], nodes["c"])


async def _line(a: RunningNode, c: RunningNode) -> None:
    async with (
        accord.connect(a.url) as publisher,
        accord.connect(c.url) as subscriber,
        subscriber.subscribe("uav/#", where=HIGH, qos=1) as events,
    ):
        await until(a, "c", 1)
        await publish(publisher, "uav/imagery", range(20))
        # While a route is being established the first ones wait, and may be overtaken.
        assert sorted(await receive(events, 10)) == list(range(1, 20, 2))
    await until(a, "c", 0)


def _look(b: RunningNode) -> None:
    """At a node that neither published nor subscribed."""
    wait_until(lambda: b.paths() == [("a", "b", "c")])
    wait_until(lambda: any(each.delivered == 10 for each in b.status().arrivals))
    wait_until(lambda: sum(each.is_used for each in b.status().links) == 4)
    status = b.status()
    assert [(each.name, each.is_reachable) for each in status.nodes] == [
        ("a", True),
        ("b", True),
        ("c", True),
    ]
    assert [(each.source, each.target) for each in status.links] == [
        *(("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")),
    ]
    assert [flow.channels for flow in status.flows] == [("uav/imagery",)]
    # What no predicate selects stays where it is.
    assert [(each.node, each.source, each.delivered) for each in status.arrivals] == [
        ("c", "a", 10)
    ]
    shown = b.accord("net")
    assert shown.exit_code == 0, shown.stderr
    assert "a → b → c" in shown.stdout
    traced = b.accord("net", "trace", "uav/imagery", "--json")
    trace = json.loads(traced.stdout)
    assert [(hop["source"], hop["target"]) for hop in trace["routes"][0]["hops"]] == [
        ("a", "b"),
        ("b", "c"),
    ]
    assert trace["routes"][0]["margin_us"] > 0


def _define(a: RunningNode, c: RunningNode) -> None:
    """At one node for all."""
    made = a.accord("channel", "create", "chat", "--max-delay", "200ms", "--paths", "2")
    assert made.exit_code == 0, made.stderr
    wait_until(lambda: len(c.status().channels) == 2)
    chat = c.status().channels[0]
    assert (chat.name, chat.node, chat.max_delay_us, chat.paths) == ("chat", "a", 200_000, 2)
    assert c.accord("channel", "rm", "chat").exit_code == 0
    wait_until(lambda: len(a.status().channels) == 1)


@accord_only
def test_a_node_on_the_way_is_killed() -> None:
    """Its neighbours find another way, and nothing that was acknowledged is lost or comes twice."""
    links = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
    with start_nodes(links, UAV, killed=["b", "c"]) as nodes:
        asyncio.run(_detour(nodes))


async def _detour(nodes: dict[str, RunningNode]) -> None:
    a, d = nodes["a"], nodes["d"]
    async with (
        accord.connect(a.url) as publisher,
        accord.connect(d.url) as subscriber,
        subscriber.subscribe("uav/+", where=HIGH, qos=1) as events,
    ):
        await until(a, "d", 1)
        await publish(publisher, "uav/imagery", range(20))
        came = await receive(events, 10)
        await asyncio.to_thread(wait_until, lambda: len(a.paths()) == 1)
        _, middle, _ = a.paths()[0]
        other = {"b": "c", "c": "b"}[middle]
        sending = asyncio.create_task(publish(publisher, "uav/imagery", range(20, 400)))
        came += await receive(events, 20)
        nodes[middle].broker.process.kill()
        came += await receive(events, 170)
        await sending
        assert sorted(came) == list(range(1, 400, 2))
        await asyncio.to_thread(wait_until, lambda: a.paths() == [("a", other, "d")])
        await asyncio.to_thread(wait_until, lambda: d.paths() == [("a", other, "d")])
        await asyncio.to_thread(wait_until, lambda: unreachable(a) == [middle])
