"""Answers across tiers: clients of backbone and of secondary nodes, all of them processes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

import pytest

import accord
from accord.client.feedback import Answers
from accord.client.messages import ReceivedEvent
from accord.client.session import Session
from accord.client.subscription import Subscription
from accord.core.model.receipts import ReceiptSigner
from tests.brokers import accord_only
from tests.net_nodes import RunningNode, start_nodes, wait_until
from tests.scenarios.test_net import until
from tests.scenarios.test_tiers import active, children

pytestmark = accord_only

# The parents of z are others than those of x and y.
TIERS = {"a": [], "b": ["a"], "c": ["a", "b"], "x": ["a", "b"], "y": ["a", "b"], "z": ["c", "b"]}
SECONDARY = ("x", "y", "z")
EACH = 100
PAIRS = ("xb", "bx", "xc", "cx", "xy", "yx", "xz", "zx")  # who asks whom


class Party(NamedTuple):
    """A client of one node: it hears what is said to it, and what is answered."""

    session: Session
    events: Subscription
    answers: Answers


async def parties(
    nodes: dict[str, RunningNode], names: str, stack: AsyncExitStack
) -> dict[str, Party]:
    made = {}
    for name in names:
        session = await stack.enter_async_context(accord.connect(nodes[name].url, client_id=name))
        events = await stack.enter_async_context(session.subscribe(f"to/{name}/#"))
        answers = await stack.enter_async_context(session.feedback(queue=10_000))
        made[name] = Party(session, events, answers)
    return made


async def known(nodes: dict[str, RunningNode], needs: dict[str, int]) -> None:
    """All backbone nodes know what the others need, also for their children."""
    for name, parents in TIERS.items():
        for parent in parents if name in SECONDARY else ():
            is_there = partial(lambda child, at: child in children(at), name, nodes[parent])
            await asyncio.to_thread(wait_until, is_there)
    for of, count in needs.items():
        for at in needs:
            if at != of:
                await until(nodes[at], of, count)


def counted(node: RunningNode) -> dict[str, int]:
    status = node.accord("status", "--json")
    assert status.exit_code == 0, status.stderr
    causes: dict[str, int] = json.loads(status.stdout)["statistics"]["shed"]["causes"]
    return causes


def test_all_answer_each_other_also_when_the_active_parent_is_killed() -> None:
    """In all directions; when it is killed, no answer is lost and none comes twice."""
    with start_nodes(TIERS, secondary=SECONDARY, killed=["a"]) as nodes:
        asyncio.run(_all_directions(nodes))
        got = asyncio.run(_answers_while_a_dies(nodes))
        for asks in got:
            assert got[asks] == Counter(_wanted(asks)), asks
        assert active(nodes["x"]) == active(nodes["y"]) == "b"


async def _all_directions(nodes: dict[str, RunningNode]) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(120):
        met = await parties(nodes, "acxyz", stack)
        await known(nodes, {"a": 3, "b": 3, "c": 2})
        for source in met:
            for receiver in met:
                if source != receiver:
                    await _dialogue(met[source], met[receiver], source, receiver)
        await _astray(nodes, met["x"].session)


async def _dialogue(source: Party, receiver: Party, asks: str, answers: str) -> None:
    data = f"{asks} asks {answers}".encode()
    await source.session.publish(f"to/{answers}/{asks}", feedback=True, correlation_data=data)
    await (await anext(receiver.events)).feedback("seen")
    answer = await anext(source.answers)
    assert (answer.text, answer.source, answer.node) == ("seen", answers, answers)
    assert (answer.channel, answer.correlation_data) == (f"to/{answers}/{asks}", data)
    await answer.feedback("thanks")
    back = await anext(receiver.answers)
    assert (back.text, back.source, back.node) == ("thanks", asks, asks)
    await back.feedback("not at all", qos=2)
    assert (await anext(source.answers)).text == "not at all"


async def _astray(nodes: dict[str, RunningNode], session: Session) -> None:
    """What leads nowhere is counted by the parent, what is forged by whose it would be."""
    for node in ("nowhere", "z"):
        forged = ReceiptSigner(node, bytes(32)).make("z", "", 1, "to/x/z", None)
        await session.publish(f"$accord/feedback/{forged}", qos=1)
    parents = [nodes["a"], nodes["b"]]
    unknown = partial(_is_counted, parents, "node of the event's source unknown")
    await asyncio.to_thread(wait_until, unknown)
    await asyncio.to_thread(wait_until, partial(_is_counted, [nodes["z"]], "forged receipt"))


def _is_counted(nodes: list[RunningNode], cause: str) -> bool:
    return any(cause in counted(each) for each in nodes)


def _wanted(asks: str) -> list[str]:
    return [f"{pair[1]} {number}" for pair in PAIRS if pair[0] == asks for number in range(EACH)]


async def _answers_while_a_dies(nodes: dict[str, RunningNode]) -> dict[str, Counter[str]]:
    async with AsyncExitStack() as stack, asyncio.timeout(180):
        met = await parties(nodes, "bcxyz", stack)
        await known(nodes, {"a": 2, "b": 4, "c": 2})
        for child in "xy":
            await asyncio.to_thread(wait_until, partial(lambda at: active(at) == "a", nodes[child]))
        questions: list[tuple[str, ReceivedEvent]] = []
        for asks, answers in map(tuple, PAIRS):
            await met[asks].session.publish(f"to/{answers}/{asks}", feedback=True)
            questions.append((answers, await anext(met[answers].events)))
        heard = asyncio.gather(*(_hear(each.answers, _wanted(name)) for name, each in met.items()))
        said = asyncio.gather(*(_answer(name, question) for name, question in questions))
        await asyncio.sleep(0.3)
        nodes["a"].broker.process.kill()
        await said
        return dict(zip(met, await heard, strict=True))


async def _answer(name: str, question: ReceivedEvent) -> None:
    for number in range(EACH):
        await question.feedback(f"{name} {number}", qos=1 + number % 2)
        await asyncio.sleep(0.005)


async def _hear(answers: Answers, wanted: Iterable[str]) -> Counter[str]:
    """Until all that is wanted has come, and a little longer."""
    heard: Counter[str] = Counter()
    left = dict.fromkeys(wanted, True)
    while left:
        text = (await anext(answers)).text
        heard[text] += 1
        left.pop(text, None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            heard[(await anext(answers)).text] += 1
    return heard
