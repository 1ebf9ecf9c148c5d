"""Quality over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import argon2
import httpx
import msgspec
from tests.fake_node import FakeNode

from accord.core.broker.client_negotiation import ClientNegotiation
from accord.core.quality.properties import Property
from accord.core.quality.status import PropertyStatus, QualityStatus, QualityTotals
from accord.core.router.rights import Rights
from accord.http.app import create_app
from accord.operations.operation import Problem
from accord.operations.ports import NodePorts
from accord.runtime.users import User, Users

QUALITY = "/api/v1/quality"
PROPERTIES = "/api/v1/quality/properties"
PASSWORD = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("x")
SIZE = "name = size\nrange = 0..100\nbetter = lower\n"
FORBIDDEN = "bob may not use properties.define"
TEXT = {"Content-Type": "text/plain"}


class FakeQuality:
    quality: ClientNegotiation  # not used: no request here acts for a client

    def status(self, pattern: str) -> QualityStatus:
        return QualityStatus(node=pattern, strategy="pareto", totals=self.totals())

    def totals(self) -> QualityTotals:
        return QualityTotals(profiles=3, states={"satisfied": 2, "suspended": 1}, advice=7)

    def properties(self) -> list[PropertyStatus]:
        return [PropertyStatus(name="rate", better="higher", range=(0.0, None))]

    def define(self, properties: list[Property]) -> None:
        self.defined = [each.name for each in properties]


def ask(method: str, path: str, *, users: Users | None = None, **options: Any) -> httpx.Response:
    app = create_app(NodePorts(view=FakeNode(), quality=FakeQuality()), users=users)

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    return asyncio.run(main())


def test_looking() -> None:
    status = msgspec.json.decode(ask("GET", QUALITY).content, type=QualityStatus)
    assert (status.node, status.totals.profiles) == ("#", 3)
    named = ask("GET", QUALITY, params={"channel": "lab/+"})
    assert named.json()["node"] == "lab/+"
    wrong = ask("GET", QUALITY, params={"channel": "lab/#/x"})
    assert (wrong.status_code, wrong.json()["place"]) == (400, "channel")
    assert ask("GET", PROPERTIES).json()["properties"][0]["range"] == [0, None]


def test_defining() -> None:
    said = ask("POST", PROPERTIES, content=SIZE, headers=TEXT)
    assert (said.status_code, said.json()) == (200, {"properties": ["size"]})
    wrong = ask("POST", PROPERTIES, content="bad", headers=TEXT)
    assert wrong.status_code == 400
    problem = msgspec.json.decode(wrong.content, type=Problem)
    assert problem.place == "line 1"
    assert ask("POST", PROPERTIES, content=b"\xff", headers=TEXT).status_code == 400
    assert ask("POST", PROPERTIES, content=b"x" * 1_000_001, headers=TEXT).status_code == 413
    assert ask("POST", PROPERTIES, json={}).status_code == 415


def test_rights() -> None:
    users = Users([User("bob", PASSWORD, Rights()), User("cid", PASSWORD, Rights(policies=True))])
    assert ask("GET", QUALITY, users=users).status_code == 401
    assert ask("GET", QUALITY, users=users, auth=("bob", "x")).status_code == 200
    refused = ask("POST", PROPERTIES, users=users, auth=("bob", "x"), content="a", headers=TEXT)
    assert (refused.status_code, refused.json()["detail"]) == (403, FORBIDDEN)
    allowed = ask("POST", PROPERTIES, users=users, auth=("cid", "x"), content=SIZE, headers=TEXT)
    assert allowed.status_code == 200


def test_metrics() -> None:
    text = ask("GET", "/metrics").text
    for line in (
        'accord_expectations{state="satisfied"} 2.0',
        'accord_expectations{state="suspended"} 1.0',
        "accord_profiles 3.0",
        "accord_advice_total 7.0",
    ):
        assert line in text.splitlines()
