"""Channels with a guarantee of their own, across real nodes: publish at several, compare at all."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

import accord
from accord.client.session import Session
from accord.client.subscription import Subscription
from tests.brokers import accord_only
from tests.net_nodes import RunningNode, start_nodes
from tests.scenarios.test_net import until

LINE = {"a": [], "b": ["a"], "c": ["b"]}
EACH = 200


def defined(template: str) -> str:
    return f'[channels."room/#"]\ntemplate = "{template}"\n'


async def talk(session: Session, name: str, *, is_mixed: bool) -> None:
    for number in range(EACH):
        qos = (number + ord(name)) % 3 if is_mixed else 1
        await session.publish("room/talk", f"{name} {number}".encode(), qos=qos)


async def listen(events: Subscription, count: int) -> list[str]:
    return [(await anext(events)).payload.decode() for _ in range(count)]


async def converse(
    nodes: dict[str, RunningNode], talking: str, *, is_mixed: bool = False
) -> dict[str, list[str]]:
    """What is heard at each node, the speakers' own included."""
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        sessions, heard = {}, {}
        for name, node in nodes.items():
            sessions[name] = await stack.enter_async_context(accord.connect(node.url))
            events = sessions[name].subscribe("room/talk", qos=2)
            heard[name] = await stack.enter_async_context(events)
        for name, node in nodes.items():
            for other in nodes:
                if other != name:
                    await until(node, other, 1)
        listening = [listen(events, EACH * len(talking)) for events in heard.values()]
        got = asyncio.gather(*listening)
        await asyncio.gather(*(talk(sessions[name], name, is_mixed=is_mixed) for name in talking))
        return dict(zip(heard, await got, strict=True))


@accord_only
@pytest.mark.parametrize("template", ["single_source", "unreliable", "reliable"])
def test_all_that_is_said_is_heard_in_order_from_each(template: str) -> None:
    """Nothing is lost on loopback, whatever may be."""
    with start_nodes(LINE, defined(template)) as nodes:
        for heard in asyncio.run(converse(nodes, "abc")).values():
            for name in "abc":
                said = [each for each in heard if each.startswith(name)]
                assert said == [f"{name} {number}" for number in range(EACH)]


@accord_only
def test_all_hear_the_same_in_the_same_order() -> None:
    """Whatever the QoS of each event."""
    with start_nodes(LINE, defined("total_order")) as nodes:
        a, b, c = asyncio.run(converse(nodes, "abc", is_mixed=True)).values()
        assert a == b == c
        assert len(set(a)) == 3 * EACH


@accord_only
def test_a_channel_is_bound_to_its_template_at_run_time() -> None:
    with start_nodes(LINE) as nodes:
        made = nodes["c"].accord("channel", "create", "room/talk", "--template", "total_order")
        assert made.exit_code == 0, made.stderr
        heard = asyncio.run(converse(nodes, "ac"))
        assert heard["a"] == heard["b"] == heard["c"]
        wrong = nodes["a"].accord("channel", "create", "room/b", "--template", "telepathy")
        assert wrong.exit_code == 2
        assert "telepathy" in wrong.stderr


@accord_only
def test_a_slow_member_slows_the_source_and_gets_everything() -> None:
    """Far more than the queues on the way hold: the publisher is held back, not cut off."""
    with start_nodes({"a": [], "b": ["a"]}, defined("reliable")) as nodes:
        asyncio.run(_flood(nodes["a"], nodes["b"]))


async def _flood(a: RunningNode, b: RunningNode) -> None:
    count, payload = 6_000, bytes(2_000)
    async with (
        asyncio.timeout(60),
        accord.connect(a.url) as source,
        accord.connect(b.url) as member,
        member.subscribe("room/#", qos=1) as events,
    ):
        await until(a, "b", 1)

        async def publish() -> None:
            for number in range(count):
                await source.publish("room/talk", payload + str(number).encode(), qos=0)

        publishing = asyncio.create_task(publish())
        got = [int((await anext(events)).payload[len(payload) :]) for _ in range(count)]
        await publishing
        assert got == list(range(count))


@accord_only
def test_channels_are_defined_from_python_too() -> None:
    with start_nodes({"a": [], "b": ["a"]}) as nodes:
        asyncio.run(_define(nodes["a"], nodes["b"]))


async def _define(a: RunningNode, b: RunningNode) -> None:
    async with accord.connect(a.url) as session, accord.connect(b.url) as other:
        made = await session.create_channel("standup/queue", template="total_order")
        assert (made.name, made.template, made.node) == ("standup/queue", "total_order", "a")
        with pytest.raises(accord.ChannelRefusedError, match="delete it first"):
            await session.create_channel("standup/queue", template="reliable")
        with pytest.raises(accord.ChannelRefusedError, match="unknown template"):
            await session.create_channel("x", template="telepathy")
        kept = await session.create_channel(
            "chat", template="reliable", persistent="7d", options={"stall_timeout_ms": 500}
        )
        assert kept.options == {"persistent": "7d", "stall_timeout_ms": "500"}
        with pytest.raises(ValueError, match="persistent is True, but another"):
            await session.create_channel("x", persistent=True, options={"persistent": "7d"})
        with pytest.raises(accord.ChannelRefusedError, match="slow_members: expected drop or"):
            await session.create_channel("x", template="reliable", options={"slow_members": True})
        await session.delete_channel("chat")
        while not (found := await other.channels()):
            await asyncio.sleep(0.02)
        assert [each.name for each in found] == ["standup/queue"]
        await other.delete_channel("standup/queue")
        while await session.channels():
            await asyncio.sleep(0.02)
