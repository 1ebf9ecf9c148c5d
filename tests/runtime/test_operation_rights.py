"""Rights to operations at a running node: over MQTT and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest
from tests.runtime.test_operations import smallest

import accord
from accord.client.errors import RefusedError
from accord.client.session import Session
from accord.core.router.rights import Rights
from accord.http.app import create_app
from accord.operations.catalog import OPERATIONS
from accord.operations.channels import CreateChannel, ListChannels
from accord.operations.clients import GetClient, ListRetained
from accord.operations.events import GetEvent
from accord.operations.http_form import http_form
from accord.operations.operation import Request, Right
from accord.operations.quality import GetQuality
from accord.operations.status import GetTop, ListOutcomes
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.users import User, Users, hash_password

LOOPBACK: Final = ListenerSettings(SocketAddress("127.0.0.1", 0))
PHRASE: Final = "open sesame"
HASH: Final = hash_password(PHRASE)
READER: Final = Rights((), ("a/#",))
BLIND: Final = Rights(("#",), ("#",), statistics=False)
LISTS: Final[tuple[Request[Any], ...]] = (
    ListChannels(),
    ListRetained(),
    ListOutcomes(),
    GetTop(),
    GetQuality(),
    GetClient(client="ann"),
)
PAGES: Final = ("/ready", "/metrics", "/docs", "/openapi.json", "/asyncapi.json")


@asynccontextmanager
async def a_node(rights: Rights) -> AsyncIterator[Node]:
    """A node where ann has all rights, and eve these."""
    users = Users([User("ann", HASH), User("eve", HASH, rights)])
    async with Node(Settings(listeners=(LOOPBACK,)), users) as node:
        yield node


def client(node: Node, user: str, **options: Any) -> Any:
    url = f"mqtt://{node.addresses[0]}"
    return accord.connect(url, username=user, password=PHRASE, client_id=user, **options)


def http_client(node: Node, user: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(node.ports, users=node.users))
    return httpx.AsyncClient(
        transport=transport, base_url="http://localhost", auth=(user, PHRASE), timeout=60
    )


def test_a_reply_goes_to_the_asker_alone() -> None:
    async def main() -> None:
        async with (
            a_node(READER) as node,
            client(node, "ann") as ann,
            client(node, "eve") as eve,
            ann.subscribe("a/alarm") as heard,
            eve.subscribe("a/alarm") as own,
        ):
            with pytest.raises(RefusedError):
                await eve.publish("a/alarm", "fire", qos=1)
            await eve.publish(
                "$accord/expectations", b'{"do":"list"}', response_topic="a/alarm", qos=1
            )
            assert (await anext(aiter(own))).payload == b'{"ok":true,"expectations":[]}'
            with pytest.raises(RefusedError, match="that you are subscribed to"):
                await eve.publish(
                    "$accord/expectations", b'{"do":"list"}', response_topic="b/alarm", qos=1
                )
            await ann.publish("a/alarm", "the first", qos=1)
            assert (await anext(aiter(heard))).payload == b"the first"

    asyncio.run(main())


@pytest.mark.parametrize("user", ["ann", "eve"])
def test_no_will_passes_for_a_message_of_the_node(user: str) -> None:
    async def main() -> None:
        for topic in ("$accord/states", "$accord/expectations", "$accord/advice"):
            async with a_node(BLIND) as node:
                with pytest.raises(RefusedError, match="not authorized"):
                    async with client(node, user, will=accord.Will(topic, b"{}")):
                        pass

    asyncio.run(main())


def test_without_the_right_to_statistics_http_shows_none() -> None:
    async def main() -> None:
        async with a_node(BLIND) as node, http_client(node, "eve") as http:
            for path in PAGES:
                assert (await http.get(path)).status_code == 403, path
            assert (await http.get("/health")).status_code == 200
            for each in OPERATIONS:
                if each.right is Right.ANY or not each.path:
                    continue
                form = http_form(smallest(each))
                answer = await http.request(
                    form.method, form.path, headers=form.headers, content=form.body
                )
                assert answer.status_code == 403, each.name
                assert each.right.value in answer.json()["remedy"]

    asyncio.run(main())


def test_nothing_is_answered_without_the_credentials_of_a_user() -> None:
    async def main() -> None:
        async with a_node(READER) as node, http_client(node, "ann") as http:
            assert (await http.get("/api/v1/status")).status_code == 200
            refused = set()
            for each in OPERATIONS:
                if not each.path:
                    continue
                form = http_form(smallest(each))
                for auth in (("ann", "wrong"), ("nobody", PHRASE), None):
                    answer = await http.request(
                        form.method,
                        form.path,
                        headers=form.headers,
                        content=form.body,
                        auth=auth,
                    )
                    expected = (401,) if auth is None else (401, 429)
                    assert answer.status_code in expected, each.name
                    refused.add(answer.status_code)
            assert refused == {401, 429}  # guesses are limited

    asyncio.run(main())


def test_lists_show_what_the_asker_may_subscribe_to() -> None:
    async def main() -> None:
        async with a_node(READER) as node, client(node, "ann") as ann, client(node, "eve") as eve:
            for name in ("a/x", "b/x"):
                await ann.call(CreateChannel(name=name))
                await ann.publish(name, name, qos=1, retain=True)
            wanted = accord.Expectation.of({"rate": (1, 5)})
            async with (
                ann.subscribe("a/x", expect=[wanted]) as near,
                ann.subscribe("b/x", expect=[wanted]) as far,
                http_client(node, "eve") as http,
            ):
                await anext(aiter(near))
                await anext(aiter(far))
                for asked in LISTS:
                    shown = ""
                    while not ("a/x" in shown and "b/x" in shown):  # top is taken each second
                        shown = str(await ann.call(asked))
                        await asyncio.sleep(0.02)
                    for see in (by_mqtt(eve), by_http(http)):
                        shown = str(await see(asked))
                        assert "b/x" not in shown, asked
                        assert "a/x" in shown, asked
                (hidden,) = (await ann.call(ListOutcomes(channel="b/x"))).outcomes
                for see in (by_mqtt(eve), by_http(http)):
                    assert await see(GetEvent(event=hidden.event)) == 404

    asyncio.run(main())


def by_mqtt(session: Session) -> Any:
    async def see(asked: Request[Any]) -> Any:
        try:
            return await session.call(asked)
        except accord.NotTakenError as refused:
            return refused.status

    return see


def by_http(http: httpx.AsyncClient) -> Any:
    async def see(asked: Request[Any]) -> Any:
        answer = await http.get(http_form(asked).path)
        return answer.text if answer.status_code == 200 else answer.status_code

    return see
