"""Operations on a running node: over MQTT by the Python client, and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx
import msgspec
import pytest

import accord
from accord.client.session import Session
from accord.core.router.rights import Rights
from accord.http.app import create_app
from accord.operations.catalog import OPERATIONS
from accord.operations.clients import (
    DisconnectClient,
    EndSession,
    GetClient,
    ListClients,
    ListRetained,
    RemoveRetained,
)
from accord.operations.http_form import http_form
from accord.operations.operation import API, Operation, Request
from accord.operations.policies import GetPolicies, LimitClients, PutPolicy
from accord.operations.quality import ListExpectations, SuspendExpectation
from accord.operations.status import GetStatus
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.users import Users

LOOPBACK = ListenerSettings(SocketAddress("127.0.0.1", 0))
Check = Callable[[Node, Session], Awaitable[None]]


def run(check: Check, rights: Rights | None = None) -> None:
    async def scene() -> None:
        anonymous = rights or accord_rights()
        async with (
            Node(Settings(listeners=(LOOPBACK,)), Users(anonymous=anonymous)) as node,
            accord.connect(url(node), client_id="admin") as session,
        ):
            await check(node, session)

    asyncio.run(scene())


def accord_rights() -> Rights:
    return Rights(("#",), ("#",), system=True, policies=True)


def url(node: Node) -> str:
    return f"mqtt://{node.addresses[0]}"


def test_clients_are_listed_disconnected_and_forgotten() -> None:
    async def check(node: Node, session: Session) -> None:
        lasting = accord.connect(url(node), client_id="p-1", clean_start=False)
        async with lasting as other, other.subscribe("a/+", where="x > 1"):
            page = await session.call(ListClients())
            assert {each.client for each in page.clients} == {"admin", "p-1"}
            found = await session.call(GetClient(client="p-1"))
            assert [each.where for each in found.subscriptions] == ["x > 1"]
            ended = await session.call(DisconnectClient(client="p-1"))
            assert (ended.was_connected, ended.is_forgotten) == (True, False)
        forgotten = await session.call(EndSession(client="p-1"))
        assert (forgotten.was_connected, forgotten.is_forgotten) == (False, True)
        with pytest.raises(accord.NotTakenError, match="no client 'p-1'") as refused:
            await session.call(GetClient(client="p-1"))
        assert (refused.value.status, refused.value.place) == (404, "client")

    run(check)


def test_retained_messages_are_listed_and_removed() -> None:
    async def check(_: Node, session: Session) -> None:
        for name in ("a/1", "a/2", "b"):
            await session.publish(name, name, retain=True)
        await session.publish("a/raw", b"\xff", retain=True)
        page = await session.call(ListRetained(channel="a/#", limit=2))
        assert [(each.channel, each.payload) for each in page.messages] == [
            ("a/1", "a/1"),
            ("a/2", "a/2"),
        ]
        assert not page.is_complete
        assert (await session.call(RemoveRetained(channel="a/#"))).removed == 3
        left = await session.call(ListRetained(channel="+/#"))
        assert [each.channel for each in left.messages] == ["b"]

    run(check)


def test_rights_hold_by_every_interface() -> None:
    async def check(node: Node, session: Session) -> None:
        with pytest.raises(accord.NotTakenError, match=r"may not use clients\.list"):
            await session.call(ListClients())
        with pytest.raises(accord.NotTakenError, match="another client"):
            await session.call(ListExpectations(client="p-1"))
        assert (await session.call(ListExpectations())).expectations == ()
        transport = httpx.ASGITransport(create_app(node.ports, users=node.users))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            for each in OPERATIONS:
                if each.method == "GET" and each.right.name != "ANY" and not each.path_fields:
                    assert (await http.get(API + each.path)).status_code in (400, 403), each.name
            assert (await http.get(f"{API}/clients")).status_code == 403

    run(check, Rights(("#",), ("#",), statistics=False))


REQUIRED: Final[dict[str, Any]] = {
    "bandwidth": None,
    "cursor": "none",
    "event": "0",
    "expect": {"rate": [1, None]},
    "kind": "node",
    "offset": 0,
    "operation": "subscribe",
    "settings": {"strategy": "weighted fair"},
    "since_ms": 0,
    "text": "name = depth\nrange = 0..100\nbetter = lower",
    "until_ms": 1_000,
    "version": 1 << 50,
}


def smallest(operation: Operation) -> Request[Any]:
    """A request with its required fields, for the client that asks."""
    values: dict[str, Any] = {}
    for name, field in operation.fields.items():
        if name == "client" and not field.required:
            values[name] = "admin"
        elif field.required or name in operation.path_fields:
            (schema,), _ = msgspec.json.schema_components([field.type])
            examples = schema.get("examples") or [f"no such {name}"]
            values[name] = REQUIRED[name] if name in REQUIRED else examples[0]
    made: Request[Any] = msgspec.convert({**values, "do": operation.action}, operation.request)
    return made


# They fail in a node without one.
OF_THE_PIPELINE: Final = (
    "report.get", "histogram.count", "export.export", "attributes.list", "net.archive",
)  # fmt: skip


def test_each_operation_by_the_python_client_and_http() -> None:
    async def check(node: Node, session: Session) -> None:
        async def by_python(asked: Request[Any]) -> int:
            try:
                await session.call(asked)
            except accord.NotTakenError as refused:
                return refused.status
            return 200

        transport = httpx.ASGITransport(create_app(node.ports, users=node.users))
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
            session.subscribe("uav/imagery"),
        ):
            done = 0
            for each in OPERATIONS:
                asked = smallest(each)
                if each.streams:
                    with pytest.raises(ValueError, match=r"use Session\.query"):
                        await session.call(asked)
                    continue
                status = await by_python(asked)
                form = http_form(asked)
                answer = await http.request(
                    form.method, form.path, headers=form.headers, content=form.body
                )
                assert status < 500 or each.name in OF_THE_PIPELINE, each.name
                is_unique = each.name in ("channels.delete", "policies.remove_policy")
                if status != 200 or not (is_unique or each.action in ("revoke", "unadvertise")):
                    assert answer.status_code == status, (each.name, answer.text)
                done += status == 200
            assert done > 20

    run(check)


def test_policies_by_the_python_client() -> None:
    async def check(node: Node, session: Session) -> None:
        version = (await session.call(GetPolicies())).version
        put = PutPolicy(name="Alarms", policy={"channel": "+/alarm", "importance": 6})
        changed = await session.call(put)
        assert changed.version == version + 1
        late = LimitClients(clients=("p-1",), bandwidth="300 kbit/s", if_version=version)
        with pytest.raises(accord.NotTakenError, match="is current") as refused:
            await session.call(late)
        assert refused.value.status == 412
        await session.call(LimitClients(clients=("p-1", "p-2"), bandwidth="300 kbit/s"))
        assert node.policy_runtime is not None
        limits = node.policy_runtime.admin.policy_set.limits
        assert [each.client for each in limits] == ["p-1", "p-2"]
        assert (await session.call(GetStatus())).is_ready

    run(check)


def test_an_administrator_acts_for_a_client() -> None:
    async def check(node: Node, session: Session) -> None:
        async with accord.connect(url(node), client_id="p-1") as other:
            wanted = accord.Expectation.of({"rate": (1, 5)})
            async with other.subscribe("lab/+", expect=[wanted]):
                (found,) = (await session.call(ListExpectations(client="p-1"))).expectations
                assert found.channel == "lab/+"
                asked = SuspendExpectation(id=found.expectation, client="p-1")
                assert (await session.call(asked)).state == "suspended"

    run(check)
