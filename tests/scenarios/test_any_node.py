"""Nodes in a line are asked through each other, until one of them is killed."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

import accord
from accord.operations.clients import DisconnectClient, ListClients
from accord.operations.status import GetStatus
from tests.brokers import accord_only
from tests.net_nodes import RunningNode, start_nodes, wait_until

pytestmark = accord_only


def get(node_: RunningNode, path: str, **query: str) -> tuple[int, dict[str, Any]]:
    reply = httpx.get(f"{node_.http_url}/api/v1/{path}", params=query, timeout=30)
    return reply.status_code, reply.json()


async def ask_over_mqtt(a: RunningNode, c: RunningNode) -> None:
    async with accord.connect(a.url) as session, accord.connect(c.url, client_id="patrol"):
        status = await session.call(GetStatus(node="c"))
        assert status.name == "c"
        clients = await session.call(ListClients(node="c"))
        assert "patrol" in [each.client for each in clients.clients]
        with pytest.raises(accord.NotTakenError, match="directly") as refused:
            await session.call(DisconnectClient(client="patrol", node="c"))
        assert refused.value.status == 400
        many = await asyncio.gather(*(session.call(GetStatus(node=each)) for each in "abc" * 5))
        assert [each.name for each in many] == list("abc" * 5)


def test_a_node_answers_through_others_until_it_is_killed() -> None:
    with start_nodes({"a": [], "b": ["a"], "c": ["b"]}, killed=["c"]) as nodes:
        a, c = nodes["a"], nodes["c"]
        assert get(a, "status", node="c")[1]["name"] == "c"
        assert get(a, "status", node="a")[1]["name"] == "a"
        _, own = get(c, "net")
        assert get(a, "net", node="c")[1]["node"] == own["node"] == "c"
        status, problem = get(a, "clients/nobody", node="c")
        assert (status, problem["place"]) == (404, "client")
        status, problem = get(a, "status", node="atlantis")
        assert (status, problem["place"]) == (404, "node")
        assert "atlantis" in problem["detail"]
        status, problem = get(a, "report", node="c")
        assert (status, problem["place"]) == (400, "node")
        checked = httpx.post(
            f"{a.http_url}/api/v1/predicates/check", params={"node": "c"}, json={"where": "a > "}
        )
        assert (checked.status_code, checked.json()["at"]) == (400, 4)
        asyncio.run(ask_over_mqtt(a, c))
        shown = a.accord("status", "--node", "c")
        assert shown.exit_code == 0
        assert '"name":"c"' in a.accord("status", "--node", "c", "--json").output
        assert '"node":"c"' in a.accord("admission", "--node", "c", "--json").output

        c.broker.process.kill()
        began_s = time.monotonic()
        status, problem = get(a, "status", node="c")
        assert (status, problem["place"]) == (504, "node")
        assert problem["detail"] in ("node c does not answer", "node c can't be reached now")
        assert time.monotonic() - began_s < 8
        wait_until(lambda: "reached" in get(a, "status", node="c")[1]["detail"])
        assert "can't be reached" in a.accord("status", "--node", "c").output
        assert get(a, "status", node="b")[1]["name"] == "b"
        books = {each["node"]: each["problem"] for each in get(a, "admission/books")[1]["books"]}
        assert books == {"a": "", "b": "", "c": books["c"]}
        assert "can't be reached" in books["c"]
