"""Why an event arrived as it did: the nodes of a line answer alike, until one of them is killed."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

import accord
from tests.brokers import accord_only
from tests.net_nodes import RunningNode, start_nodes, wait_until

pytestmark = accord_only

CHANNELS = """
[channels."uav/#"]
max_delay_ms = 2000
"""


def why(node_: RunningNode, event: str, **query: str) -> tuple[int, dict[str, Any]]:
    url = f"{node_.http_url}/api/v1/events/{event}"
    reply = httpx.get(url, params=query, timeout=30)
    return reply.status_code, reply.json()


async def publish_across(a: RunningNode, c: RunningNode) -> None:
    """A client at `c` gets what one at `a` publishes."""
    async with (
        accord.connect(a.url, client_id="raven-7") as source,
        accord.connect(c.url, client_id="ops-dc") as session,
        session.subscribe("uav/imagery") as events,
    ):
        await asyncio.sleep(2)  # until `a` knows of the interest
        for number in range(5):
            await source.publish("uav/imagery", str(number))
        async for event in events:
            if event.payload == b"4":
                return


def received(node_: RunningNode) -> list[str]:
    """The events that the ledger has of the client."""
    reply = httpx.get(f"{node_.http_url}/api/v1/ledger", params={"client": "ops-dc"}, timeout=30)
    return [each["event"] for each in reply.json()["outcomes"]]


def settled(nodes: dict[str, RunningNode], event: str) -> bool:
    """Whether all ledgers have it: they are written once a second."""
    status, found = why(nodes["b"], event)
    return status == 200 and set(found["nodes"]) == {"a", "b", "c"} and len(found["outcomes"]) >= 4


def test_each_node_knows_where_the_time_went() -> None:
    with start_nodes({"a": [], "b": ["a"], "c": ["b"]}, channels=CHANNELS, killed=["b"]) as nodes:
        asyncio.run(publish_across(nodes["a"], nodes["c"]))
        wait_until(lambda: received(nodes["c"]))
        event = received(nodes["c"])[0]
        wait_until(lambda: settled(nodes, event))
        answers = {name: why(each, event)[1] for name, each in nodes.items()}
        sentences = {each["verdict"]["sentence"] for each in answers.values()}
        assert len(sentences) == 1, sentences
        assert sentences.pop().startswith("In time at ops-dc after ")
        for name, found in answers.items():
            path = found["path"]
            assert [hop["node"] for hop in path["hops"]] == ["a", "b", "c"], name
            assert path["due_ms"] == 2_000
            assert found["unanswered"] == []
            budgets = [hop["budget_ms"] for hop in path["hops"]]
            assert all(each is not None and each > 0 for each in budgets[:2])
            assert abs(sum(budgets) - 2_000) < 1
            kinds = [step["kind"] for hop in path["hops"] for step in hop["steps"]]
            assert kinds.count("link") >= 2, "each node's ledger says when it sent the event on"
        printed = nodes["a"].accord("why", event)
        assert answers["a"]["verdict"]["sentence"] in " ".join(printed.stdout.split())

        nodes["b"].broker.process.kill()
        status, found = why(nodes["c"], event)
        assert status == 200
        assert found["verdict"]["sentence"].startswith("In time at ops-dc after ")
        assert set(found["unanswered"]) == {"a", "b"}
        assert [hop["node"] for hop in found["path"]["hops"]] == ["a", "b", "c"]
