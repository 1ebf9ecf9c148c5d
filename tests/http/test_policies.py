from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import argon2
import httpx
import msgspec
import pytest
from msgspec.structs import replace
from tests.fake_node import FakeNode

from accord.core.policy.dry_run import OpenOperation
from accord.core.policy.explain import Explanation
from accord.core.policy.policies import Entity
from accord.core.policy.policy import Policy
from accord.core.policy.policy_set import PolicySet, parse_policy_set
from accord.core.router.rights import EVERYTHING, Rights
from accord.http import routes
from accord.http.app import create_app
from accord.journal.faults import FaultDisk
from accord.operations.operation import Problem, operation_of
from accord.operations.policies import Changed, DryRun, History, PutPolicies
from accord.operations.ports import NodePorts
from accord.runtime.policy_admin import PolicyAdmin, PolicyHost
from accord.runtime.policy_store import PolicyStore
from accord.runtime.users import User, Users, hash_password

PATH = "/api/v1/policies"
PASSWORD = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("x")
USERS = [
    User("ann", PASSWORD),
    User("bob", PASSWORD, Rights(("#",), ("#",))),
    User("cid", PASSWORD, Rights(statistics=False, policies=True)),
]
REPORT = Policy(name="Report", channel=("patrol/#",), importance=6)
TOML = {"Content-Type": "application/toml"}


class Site:
    """An application with policies, and requests to it."""

    def __init__(self, *, users: Users | None = None, disk: FaultDisk | None = None) -> None:
        desk = Entity("desk-1", "ann", ("analysts",), "alpha")
        around = PolicyHost(
            open_=lambda: [OpenOperation("subscribe", "patrol/report", desk)],
            find_entity=lambda client: desk if client == "desk-1" else None,
        )
        book = PolicySet(version=7, policies=(REPORT,))
        self.administration = PolicyAdmin(book, PolicyStore(disk), around)
        node = NodePorts(view=FakeNode(), policies=self.administration)
        self.app = create_app(node, users=users)

    def ask(self, method: str, path: str = PATH, **options: Any) -> httpx.Response:
        async def main() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.request(method, path, **options)

        return asyncio.run(main())

    @property
    def book(self) -> PolicySet:
        return self.administration.policy_set


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    found = msgspec.json.decode(answer.content, type=Problem)
    return answer.status_code, found.place, found.detail


def version(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    changed = msgspec.json.decode(answer.content, type=Changed).version
    assert answer.headers["etag"] == f'"{changed}"'
    return changed


class TestSeeing:
    def test_as_json_and_as_toml(self) -> None:
        site = Site()
        answer = site.ask("GET")
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["etag"] == '"7"'
        assert parse_policy_set(answer.text, is_json=True) == site.book
        toml = site.ask("GET", headers={"Accept": "application/toml"})
        assert toml.headers["content-type"] == "application/toml"
        assert parse_policy_set(toml.text) == site.book

    def test_explanations(self) -> None:
        query = {"operation": "subscribe", "channel": "patrol/report", "client": "desk-1"}
        answer = Site().ask("GET", f"{PATH}/explain", params=query)
        explanation = msgspec.json.decode(answer.content, type=Explanation)
        assert (explanation.granted.policy, explanation.user) == ("Report", "ann")

    def test_explanations_of_an_event(self) -> None:
        site = Site()
        text = "where = \"sort = 'a=b' AND size = 7 AND payload_bytes = 9\"\nimportance = 1"
        site.ask("PUT", f"{PATH}/Sort", content=text, headers=TOML)
        query = {
            "operation": "publish",
            "channel": "x",
            "attribute": ["sort=a=b", "size=7"],
            "payload_bytes": 9,
        }
        answer = site.ask("GET", f"{PATH}/explain", params=query)
        assert msgspec.json.decode(answer.content, type=Explanation).granted.policy == "Sort"

    @pytest.mark.parametrize(
        ("query", "place"),
        [
            ({"operation": "dance", "channel": "a"}, "operation"),
            ({"operation": "publish", "channel": "a/#"}, "channel"),
            ({"operation": "publish", "channel": "a", "attribute": "b"}, "attribute"),
        ],
    )
    def test_questions_that_are_none(self, query: dict[str, str], place: str) -> None:
        answer = Site().ask("GET", f"{PATH}/explain", params=query)
        assert problem(answer)[:2] == (400, place)

    def test_a_dry_run_says_whom_it_affects(self) -> None:
        site = Site()
        answer = site.ask("POST", f"{PATH}/dry-run", content="strategy = 'strict'", headers=TOML)
        result = msgspec.json.decode(answer.content, type=DryRun)
        assert (result.version, result.total, result.affected[0].client) == (7, 1, "desk-1")
        assert site.book.version == 7


class TestChanging:
    def test_everything(self) -> None:
        site = Site()
        assert version(site.ask("PUT", json={"strategy": "strict"})) == 8
        assert site.book == PolicySet(version=8, strategy="strict")
        text = "[[policies]]\nname = 'Día'\nimportance = 1"
        assert version(site.ask("PUT", content=text, headers=TOML)) == 9
        assert [policy.name for policy in site.book.policies] == ["Día"]

    def test_settings(self) -> None:
        site = Site()
        patch = {"bandwidth": "800 kbit/s", "limits": [{"client": "a", "bandwidth": 64000}]}
        assert version(site.ask("PATCH", json=patch)) == 8
        assert (site.book.bandwidth_bps, site.book.limits[0].bandwidth_bps) == (800_000, 64_000)
        assert site.book.policies == (REPORT,)
        assert version(site.ask("PATCH", json={"bandwidth": None})) == 9
        assert site.book.bandwidth_bps is None

    @pytest.mark.parametrize("name", ["Images", "a b", "día/1", "history", "50 %"])
    def test_a_policy(self, name: str) -> None:
        site = Site()
        path = f"{PATH}/{quote(name, safe='')}"
        assert version(site.ask("PUT", path, json={"importance": 2})) == 8
        assert site.book.policies == (REPORT, Policy(name=name, importance=2))
        assert version(site.ask("DELETE", path)) == 9
        code, _, words = problem(site.ask("DELETE", path))
        assert (code, words.partition(";")[0]) == (404, f"there is no policy {name!r}")

    def test_an_earlier_version(self) -> None:
        site = Site()
        site.ask("PATCH", json={"strategy": "strict"})
        site.ask("PATCH", json={"strategy": "laxity"})
        assert version(site.ask("POST", f"{PATH}/rollback", json={"version": 8})) == 10
        assert site.book.strategy == "strict"
        found = msgspec.json.decode(site.ask("GET", f"{PATH}/history").content, type=History)
        assert [each.version for each in found.history] == [10, 9, 8]
        assert problem(site.ask("POST", f"{PATH}/rollback", json={"version": 3}))[0] == 404
        assert problem(site.ask("POST", f"{PATH}/rollback", json={"version": "3"}))[:2] == (
            400,
            "version",
        )

    def test_only_the_version_that_was_seen(self) -> None:
        site = Site()
        assert version(site.ask("PATCH", json={"shaping": False}, headers={"If-Match": '"7"'})) == 8
        late = site.ask("PATCH", json={"shaping": True}, headers={"If-Match": '"7"'})
        code, _, error = problem(late)
        assert code == 412
        assert "version 8 is current" in error
        assert site.ask("DELETE", f"{PATH}/Report", headers={"If-Match": "7"}).status_code == 412
        assert version(site.ask("PATCH", json={"shaping": True}, headers={"If-Match": "*"})) == 9

    def test_a_full_disk_is_told(self) -> None:
        disk = FaultDisk()
        site = Site(disk=disk)
        disk.capacity = 10
        answer = site.ask("PATCH", json={"strategy": "strict"})
        assert problem(answer)[0] == 503
        assert "no space left" in answer.text
        assert site.book.version == 7


class TestMistakes:
    @pytest.mark.parametrize(
        ("method", "path", "body", "place", "words"),
        [
            ("PUT", "", b'{"strategy": "x"}', "strategy", 'expected one of "strict"'),
            ("PUT", "", b'{"policies": [{"name": "a"}]}', "policies[0]", "expected importance"),
            ("PUT", "", b"[1", "request", "only a part"),
            ("PUT", "", b"[" * 100_000, "request", "nested too deeply"),
            ("PUT", "", b'\n"\xff"', "line 2", "expected UTF-8 text"),
            ("PUT", "/a", b'{"name": "b", "importance": 1}', "policy.name", "expected 'a'"),
            ("PUT", "/a", b"3", "policy", "expected object"),
            ("PATCH", "", b'{"policies": []}', "policies", "unknown"),
            ("PATCH", "", b"[]", "settings", "expected object"),
            ("POST", "/rollback", b"{}", "request", "missing required field version"),
            ("POST", "/dry-run", b'{"weights": [1]}', "weights", "expected 8"),
        ],
    )
    def test_where_and_what(
        self, method: str, path: str, body: bytes, place: str, words: str
    ) -> None:
        site = Site()
        headers = {"Content-Type": "application/json; charset=utf-8"}
        code, found, error = problem(site.ask(method, PATH + path, content=body, headers=headers))
        assert (code, found) == (400, place)
        assert words in error
        assert site.book.version == 7

    def test_toml_has_lines(self) -> None:
        answer = Site().ask("PUT", content="\n\nstrategy 3", headers=TOML)
        assert problem(answer)[0] == 400
        assert problem(answer)[1].startswith("line 3")

    @pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
    def test_forms_of_web_pages_are_neither_json_nor_toml(self, kind: str) -> None:
        site = Site()
        answer = site.ask("PUT", content=b"{}", headers={"Content-Type": kind} if kind else {})
        assert problem(answer)[0] == 415

    def test_too_much(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operation_of(PutPolicies), "max_bytes", 100)
        answer = Site().ask("PUT", content=b" " * 101, headers=TOML)
        assert problem(answer) == (413, "", "expected at most 100 bytes")

    def test_too_slow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(routes, "BODY_TIMEOUT_S", 0.01)

        async def slow() -> AsyncIterator[bytes]:
            yield b"strategy"
            await asyncio.Event().wait()

        site = Site()

        async def main() -> int:
            messages = slow()

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": await anext(messages), "more_body": True}

            codes = []

            async def send(message: Any) -> None:
                codes.append(message.get("status"))

            scope = {
                "type": "http",
                "method": "PUT",
                "path": PATH,
                "query_string": b"",
                "headers": [(b"host", b"localhost"), (b"content-type", b"application/toml")],
            }
            await site.app(scope, receive, send)
            assert isinstance(codes[0], int)
            return codes[0]

        assert asyncio.run(main()) == 408


class TestWhoMay:
    def ask(self, method: str, name: str | None, path: str = PATH, **options: Any) -> int:
        site = Site(users=Users(USERS))
        auth = None if name is None else (name, "x")
        return site.ask(method, path, auth=auth, **options).status_code

    def test_users_with_the_right(self) -> None:
        for name, code in (("ann", 200), ("bob", 403), ("cid", 200), ("eve", 401), (None, 401)):
            assert self.ask("GET", name) == code
            assert self.ask("GET", name, f"{PATH}/history") == code
            assert self.ask("PATCH", name, json={"shaping": False}) == code
            assert self.ask("DELETE", name, f"{PATH}/Report") == code

    def test_changes_are_signed(self) -> None:
        site = Site(users=Users(USERS))
        site.ask("PATCH", auth=("ann", "x"), json={"shaping": False})
        assert site.administration.history()[0].who == "ann"

    @pytest.mark.parametrize(
        ("anonymous", "code"),
        [(EVERYTHING, 200), (replace(EVERYTHING, policies=False), 403), (None, 403)],
    )
    def test_where_there_are_no_users(self, anonymous: Rights | None, code: int) -> None:
        site = Site(users=Users(anonymous=anonymous))
        assert site.ask("GET").status_code == code
        assert site.ask("PATCH", json={"shaping": False}).status_code == code

    @pytest.mark.parametrize(
        ("headers", "code"),
        [
            ({}, 200),
            ({"Origin": "http://localhost"}, 200),
            ({"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}, 200),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "http://localhost.evil.example"}, 403),
            ({"Origin": "http://localhost:3000"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
        ],
    )
    def test_pages_of_other_sites_change_nothing(self, headers: dict[str, str], code: int) -> None:
        site = Site()
        assert site.ask("PATCH", json={"shaping": False}, headers=headers).status_code == code
        assert site.ask("DELETE", f"{PATH}/Report", headers=headers).status_code == code
        assert site.book.version == (9 if code == 200 else 7)
        assert site.ask("GET", headers=headers).status_code == 200

    def test_pages_of_sites_that_are_named_may_change_things(self) -> None:
        site = "https://ops.example.org"
        users = Users([User("ann", hash_password("x"))])
        app = create_app(
            NodePorts(view=FakeNode(), policies=Site().administration), users=users, origins=(site,)
        )
        page = {"Origin": site, "Sec-Fetch-Site": "cross-site"}
        asked = {
            "Access-Control-Request-Method": "PATCH",
            "Access-Control-Request-Headers": "authorization, content-type",
        }

        async def main() -> None:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                beforehand = await http.options(PATH, headers={**page, **asked})
                assert beforehand.status_code == 200
                assert beforehand.headers["access-control-allow-origin"] == site
                changed = await http.patch(
                    PATH, headers=page, json={"shaping": False}, auth=("ann", "x")
                )
                assert changed.status_code == 200
                assert changed.headers["access-control-allow-origin"] == site
                other = {**page, "Origin": "https://evil.example"}
                refused = await http.patch(
                    PATH, headers=other, json={"shaping": True}, auth=("ann", "x")
                )
                assert refused.status_code == 403
                assert "access-control-allow-origin" not in refused.headers
            await users.close()

        asyncio.run(main())

    def test_this_machine_by_its_own_name(self) -> None:
        site = Site()
        answer = site.ask("PATCH", json={"shaping": False}, headers={"Host": "evil.example"})
        assert answer.status_code == 421


def test_without_the_right_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_: object) -> None:
        pytest.fail("the body was read")

    monkeypatch.setattr(routes, "read_body", read)
    site = Site(users=Users(USERS))
    text = "importance = 1"
    answer = site.ask("PUT", f"{PATH}/x", content=text, headers=TOML, auth=("bob", "x"))
    assert answer.status_code == 403


@pytest.mark.parametrize("text", [".".join("a" * 60) + " = 1", "[" + ".".join(["'b'"] * 60) + "]"])
def test_keys_of_many_parts_are_refused(text: str) -> None:
    answer = Site().ask("PUT", content=text, headers=TOML)
    assert answer.status_code == 400
    assert "a key has more than 32 parts" in answer.json()["detail"]


def test_a_body_that_ends_early_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        sent: list[Any] = []
        messages = iter(({"type": "http.request", "body": b"{", "more_body": True},))

        async def receive() -> dict[str, Any]:
            return next(messages, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "method": "PUT", "path": PATH, "raw_path": PATH.encode(),
            "query_string": b"", "headers": [*headers, (b"content-length", b"9")],
            "client": ("127.0.0.1", 1), "server": ("localhost", 80), "scheme": "http",
            "http_version": "1.1", "root_path": "",
        }  # fmt: skip
        await Site().app(scope, receive, send)
        assert sent[0]["status"] == 400

    asyncio.run(main())
    assert not caplog.records
