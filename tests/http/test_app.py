from __future__ import annotations

import asyncio
import re
from typing import Any

import argon2
import httpx
import msgspec
import pytest
from tests.fake_node import FakeNode

from accord.core.router.limits import BUILD
from accord.core.router.rights import Rights
from accord.http.app import create_app
from accord.operations.clients import ClientPage
from accord.operations.ports import NodePorts
from accord.operations.status import NodeSummary
from accord.runtime.password_queue import BusyError
from accord.runtime.users import User, Users

QUICK = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
PASSWORD = QUICK.hash("día:x")
USERS = [
    User("ann", PASSWORD),
    User("bob", PASSWORD, Rights(subscribe=("#",), statistics=False)),
]


def ask(
    path: str,
    node: FakeNode | None = None,
    *,
    users: Users | None = None,
    is_loopback: bool = True,
    host: str = "localhost:8080",
    **options: Any,
) -> httpx.Response:
    app = create_app(NodePorts(view=node or FakeNode()), users=users, is_loopback=is_loopback)

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            headers = {"Host": host, **options.pop("headers", {})}
            answer = await client.get(path, headers=headers, **options)
        if users is not None:
            await users.close()
        return answer

    return asyncio.run(main())


def test_status() -> None:
    node = FakeNode()
    answer = ask("/api/v1/status", node)
    assert answer.headers["content-type"] == "application/json"
    assert msgspec.json.decode(answer.content, type=NodeSummary) == NodeSummary(
        name="alpha",
        version="1.2",
        build=BUILD,
        is_ready=True,
        verdict="All is well at alpha: nothing to deliver now.",
        statistics=node.statistics(),
    )


def test_clients_come_page_by_page() -> None:
    node = FakeNode()
    answer = msgspec.json.decode(
        ask("/api/v1/clients?limit=1&offset=1", node).content, type=ClientPage
    )
    assert (answer.total, answer.offset) == (3, 1)
    assert [client.client for client in answer.clients] == ["client-1"]
    assert node.clients_seen == 2


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "offset=-1", "limit=x"])
def test_pages_that_are_none(query: str) -> None:
    assert ask(f"/api/v1/clients?{query}").status_code == 400


def test_probes() -> None:
    node = FakeNode()
    assert ask("/health", node).text == "ok\n"
    assert ask("/ready", node).status_code == 200
    node.is_serving = False
    assert ask("/health", node).status_code == 200
    assert ask("/ready", node).status_code == 503


def test_metrics() -> None:
    answer = ask("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "accord_sessions 3.0" in answer.text


def test_openapi_has_the_schema_of_what_is_returned() -> None:
    document = ask("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    schemas = document["components"]["schemas"]
    assert schemas["NodeSummary"]["properties"]["statistics"] == {
        "$ref": "#/components/schemas/Statistics"
    }
    answer = document["paths"]["/api/v1/status"]["get"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/NodeSummary")
    for reference in re.findall(r'"#/components/schemas/(\w+)"', ask("/openapi.json").text):
        assert reference in schemas


def test_the_page_needs_nothing_from_elsewhere() -> None:
    answer = ask("/")
    assert not re.search(r"<script(?![^>]* src=)", answer.text)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    links = re.findall(r'(?:href|src)="([^"]*)"', answer.text)
    assert "/docs" in links
    for link in links:
        assert link.startswith("/")
        assert not link.startswith("//")
        assert ask(link).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "[::1]"]
)
def test_this_machine_is_addressed_by_its_own_names(host: str) -> None:
    assert ask("/api/v1/status", host=host).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "", "localhost.evil.example", "192.168.1.2:8080"]
)
def test_no_web_page_reaches_this_machine_by_another_name(host: str) -> None:
    for path in ("/", "/health", "/api/v1/status"):
        assert ask(path, host=host).status_code == 421
    assert ask("/api/v1/status", host=host, is_loopback=False).status_code == 200


@pytest.mark.parametrize(
    ("name", "password", "status"),
    [("ann", "día:x", 200), ("ann", "wrong", 401), ("eve", "día:x", 401), ("bob", "día:x", 403)],
)
def test_where_there_are_users_one_must_ask(name: str, password: str, status: int) -> None:
    for path in ("/ready", "/metrics", "/api/v1/status", "/docs", "/openapi.json", "/none"):
        answer = ask(path, users=Users(USERS), auth=(name, password.encode()))
        assert answer.status_code == (404 if status == 200 and path == "/none" else status)


@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic ???", "Basic YW5u", "Basic /zp4", "Bearer x", "Basic " + "A" * 5_000],
)
def test_nobody_comes_in_without_a_name_and_password(header: str) -> None:
    headers = {"Authorization": header} if header else {}
    answer = ask("/api/v1/status", users=Users(USERS, anonymous=Rights()), headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")


def test_health_needs_no_user() -> None:
    assert ask("/health", users=Users(USERS)).status_code == 200
    assert ask("/health/", users=Users(USERS)).status_code == 401


def test_without_users_everybody_may_ask() -> None:
    assert ask("/api/v1/status", users=Users()).status_code == 200


def test_without_users_the_rights_of_anonymous_clients_count() -> None:
    users = Users(anonymous=Rights(statistics=False))
    for path in ("/api/v1/status", "/api/v1/clients", "/metrics"):
        assert ask(path, users=users).status_code == 403
    assert ask("/health", users=users).status_code == 200


def test_too_many_askers_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(*_: object) -> None:
        raise BusyError(64)

    users = Users(USERS)
    monkeypatch.setattr(users, "verify", busy)
    answer = ask("/metrics", users=users, auth=("ann", "x"))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
