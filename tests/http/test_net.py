from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import argon2
import httpx
import msgspec
import pytest
from tests.fake_net import FakeNet, five_cities
from tests.fake_node import FakeNode

from accord.core.overlay.channel_directory import Channel, ChannelDefinition, ChannelList
from accord.core.overlay.status import NetStatus
from accord.core.router.rights import NO_RIGHTS, Rights
from accord.http import routes
from accord.http.app import create_app
from accord.operations.channels import Deleted
from accord.operations.operation import Problem
from accord.operations.ports import NodePorts
from accord.runtime.users import User, Users

NET = "/api/v1/net"
CHANNELS = "/api/v1/channels"
PASSWORD = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("x")
USERS = [
    User("ann", PASSWORD),
    User("bob", PASSWORD, Rights(("#",), ("#",))),
    User("cid", PASSWORD, Rights(statistics=False, policies=True)),
]
UAV = {"template": "routed", "max_delay_ms": 200, "paths": 2, "resiliency": 0.999}


def ask(
    method: str,
    path: str,
    net: FakeNet | None = None,
    *,
    users: Users | None = None,
    **options: Any,
) -> httpx.Response:
    app = create_app(NodePorts(view=FakeNode(), net=net), users=users)

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    return asyncio.run(main())


def put(net: FakeNet, name: str, body: Any = UAV, **options: Any) -> httpx.Response:
    return ask("PUT", f"{CHANNELS}/{quote(name, safe='')}", net, json=body, **options)


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    found = msgspec.json.decode(answer.content, type=Problem)
    return answer.status_code, found.place, found.detail


class TestSeeing:
    def test_everything(self) -> None:
        answer = ask("GET", NET, FakeNet())
        assert answer.headers["content-type"] == "application/json"
        assert msgspec.json.decode(answer.content, type=NetStatus) == five_cities()
        assert answer.json()["flows"][0]["routes"][0]["path"][1] == "losangeles"

    def test_one_channel(self) -> None:
        net = FakeNet()
        net.create_channel(ChannelDefinition("uav/#", paths=2), replace=False)
        answer = ask("GET", f"{CHANNELS}/uav%2F%23", net)
        assert msgspec.json.decode(answer.content, type=Channel).paths == 2
        code, _, words = problem(ask("GET", f"{CHANNELS}/uav", net))
        assert (code, words) == (404, "'uav' is not defined")

    def test_channels(self) -> None:
        net = FakeNet()
        net.create_channel(ChannelDefinition("uav/#", max_delay_us=200_000), replace=False)
        answer = msgspec.json.decode(ask("GET", CHANNELS, net).content, type=ChannelList)
        assert answer.channels == (
            Channel(
                name="uav/#",
                template="routed",
                max_delay_ms=200,
                paths=1,
                resiliency=0,
                node="seattle",
                flows=2,
                flows_met=1,
                delivered=1_000,
                late=4,
            ),
        )

    def test_openapi(self) -> None:
        document = ask("GET", "/openapi.json", FakeNet()).json()
        schemas = document["components"]["schemas"]
        answer = document["paths"][NET]["get"]["responses"]["200"]
        assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/NetStatus")
        body = document["paths"][f"{CHANNELS}/{{name}}"]["put"]["requestBody"]["content"]
        assert "max_delay_ms" in body["application/json"]["schema"]["properties"]
        for reference in re.findall(
            r'"#/components/schemas/(\w+)"', msgspec.json.encode(document).decode()
        ):
            assert reference in schemas


class TestDefining:
    @pytest.mark.parametrize("name", ["uav/imagery", "uav/#", "+/x", "/a//b", "ü %41?&"])
    def test_a_channel(self, name: str) -> None:
        net = FakeNet()
        answer = put(net, name)
        assert answer.status_code == 200, answer.text
        made = msgspec.json.decode(answer.content, type=Channel)
        assert (made.name, made.max_delay_ms, made.node) == (name, 200, "seattle")
        assert net.registry.get(name) == ChannelDefinition(
            name, "routed", max_delay_us=200_000, paths=2, resiliency=0.999
        )
        gone = ask("DELETE", f"{CHANNELS}/{quote(name, safe='')}", net)
        assert msgspec.json.decode(gone.content, type=Deleted).name == name
        assert net.registry.all() == []

    def test_what_is_left_out_has_defaults(self) -> None:
        net = FakeNet()
        put(net, "chat", {"max_delay_ms": 0.5, "options": {"datagrams": "true"}})
        assert net.registry.get("chat") == ChannelDefinition(
            "chat", max_delay_us=500, options={"datagrams": "true"}
        )

    def test_putting_replaces_unless_it_must_be_new(self) -> None:
        net = FakeNet()
        put(net, "chat", {"paths": 2})
        new_only = {"If-None-Match": "*"}
        assert put(net, "chat", {"paths": 2}, headers=new_only).status_code == 200
        code, _, words = problem(put(net, "chat", {"paths": 3}, headers=new_only))
        assert code == 412
        assert "'chat' is defined at node 'seattle' already: delete it first, or" in words
        assert put(net, "chat", {"paths": 3}).status_code == 200
        assert [each.paths for each in net.registry.all()] == [3]

    @pytest.mark.parametrize(
        ("name", "body", "place", "words"),
        [
            (
                "a",
                {"template": "x"},
                "template",
                "unknown template 'x'; expected one of local, routed",
            ),
            ("a", {"path": 2}, "request", "unknown field path"),
            ("a", {"paths": 99}, "paths", "expected int <= 8"),
            ("a", {"paths": "2"}, "paths", "expected int, got str"),
            ("a", {"resiliency": 1.5}, "resiliency", "expected float <= 1"),
            ("a", {"max_delay_ms": -1}, "max_delay_ms", "expected float >= 0"),
            ("a", [], "request", "expected an object"),
            ("uav/#/x", {}, "", "name: "),
            ("", {}, "", "name: expected at least one character"),
            ("a", {"options": {"": "x"}}, "options.", "the template has no such option"),
            ("a", {"options": {"datagrams": None}}, "options.datagrams", "expected text, true"),
            ("a", {"options": {"datagrams": 1}}, "options.datagrams", "expected true or false"),
        ],
    )
    def test_mistakes(self, name: str, body: Any, place: str, words: str) -> None:
        net = FakeNet()
        code, where, what = problem(put(net, name, body))
        assert (code, where) == (400, place)
        assert words in what
        assert net.registry.all() == []

    def test_what_is_no_json(self) -> None:
        nested = b'{"options": {"a": ' + b"[" * 30_000 + b"]" * 30_000 + b"}}"
        for content in (b"{", b"\xff", b"", nested):
            headers = {"Content-Type": "application/json"}
            answer = ask("PUT", f"{CHANNELS}/a", FakeNet(), content=content, headers=headers)
            assert answer.status_code == 400
        code, _, words = problem(ask("PUT", f"{CHANNELS}/a", FakeNet(), content=b"paths=2"))
        assert (code, words) == (415, "expected application/json as content type, got none")

    def test_too_much_and_too_slow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def slowly() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.sleep(60)

        headers = {"Content-Type": "application/json"}
        large = ask("PUT", f"{CHANNELS}/a", FakeNet(), content=b" " * 70_000, headers=headers)
        assert problem(large)[0] == 413
        monkeypatch.setattr(routes, "BODY_TIMEOUT_S", 0.01)
        late = ask("PUT", f"{CHANNELS}/a", FakeNet(), content=slowly(), headers=headers)
        assert problem(late)[0] == 408

    def test_what_is_not_there(self) -> None:
        code, _, words = problem(ask("DELETE", f"{CHANNELS}/a", FakeNet()))
        assert (code, words) == (404, "'a' is not defined; `accord channel ls` shows what is")


class TestRights:
    @pytest.mark.parametrize(
        ("name", "sees", "defines"), [("ann", 200, 200), ("bob", 200, 403), ("cid", 403, 200)]
    )
    def test_of_users(self, name: str, sees: int, defines: int) -> None:
        net = FakeNet()
        auth = (name, "x")
        net.create_channel(ChannelDefinition("chat"), replace=True)
        for path in (NET, CHANNELS, f"{CHANNELS}/chat"):
            assert ask("GET", path, net, users=Users(USERS), auth=auth).status_code == sees
        answer = put(net, "a", users=Users(USERS), auth=auth)
        assert answer.status_code == defines
        if defines == 403:
            assert problem(answer)[2] == "bob may not use channels.create"
        gone = ask("DELETE", f"{CHANNELS}/a", net, users=Users(USERS), auth=auth)
        assert gone.status_code == defines

    def test_nobody(self) -> None:
        assert put(FakeNet(), "a", users=Users(USERS)).status_code == 401
        assert put(FakeNet(), "a", users=Users(anonymous=NO_RIGHTS)).status_code == 403
        assert put(FakeNet(), "a", users=Users(anonymous=Rights(policies=True))).status_code == 200

    def test_pages_of_other_sites(self) -> None:
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
            assert put(FakeNet(), "a", headers=headers).status_code == 403
