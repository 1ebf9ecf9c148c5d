"""Login over real sockets: cookie, rights, token, and what is refused."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import argon2
import httpx
import pytest
from starlette.types import Message
from tests.certificates import make_certificate
from tests.fake_net import FakeNet
from tests.fake_node import FakeNode

from accord.core.router.rights import Rights
from accord.http import session_table
from accord.http.app import create_app
from accord.http.server import serve
from accord.http.session_table import ATTEMPTS, ATTEMPTS_PER_ADDRESS, IDLE_S
from accord.http.sessions import COOKIE, Sessions
from accord.operations.operation import RequestError
from accord.operations.ports import NodePorts
from accord.runtime.addresses import SocketAddress
from accord.runtime.tls import TlsFiles, server_context
from accord.runtime.users import User, Users

SESSION = "/api/v1/session"
TOKEN = "/api/v1/session/token"  # noqa: S105
STATUS = "/api/v1/status"
CHANNEL = "/api/v1/channels/chat"
WORD = "a long password"
QUICK = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
USERS = (
    User("ann", QUICK.hash(WORD), groups=("staff",)),
    User("bob", QUICK.hash(WORD), Rights(subscribe=("home/%u/#",), statistics=False)),
)


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Site:
    """A served node, with a client and the sessions it has."""

    def __init__(self, http: httpx.AsyncClient, sessions: Sessions, clock: Clock) -> None:
        self.http = http
        self.sessions = sessions
        self.clock = clock

    async def log_in(self, user: str = "ann", password: str = WORD, **options: Any) -> Any:
        return await self.http.post(SESSION, json={"user": user, "password": password}, **options)


@asynccontextmanager
async def a_site(
    users: tuple[User, ...] = USERS,
    tls: Path | None = None,
    origins: tuple[str, ...] = (),
) -> AsyncIterator[Site]:
    known = Users(users)
    clock = Clock()
    sessions = Sessions(known, clock)
    node = NodePorts(view=FakeNode(), net=FakeNet(), groups_of=known.groups_of)
    app = create_app(node, users=known, sessions=sessions, origins=origins)
    context, verify, scheme = None, True, "http"
    if tls is not None:
        certificate, key = make_certificate(tls)
        context = server_context(TlsFiles(certificate=str(certificate), key=str(key)))
        verify, scheme = ssl.create_default_context(cafile=certificate), "https"  # type: ignore[assignment]
    server = await serve(app, SocketAddress("127.0.0.1", 0), tls=context)
    async with httpx.AsyncClient(base_url=f"{scheme}://{server.address}", verify=verify) as http:
        yield Site(http, sessions, clock)
    await server.stop()
    await known.close()


def run(scenario: Callable[[Site], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with a_site(**options) as site:
            await scenario(site)

    asyncio.run(main())


def test_login_use_and_logout() -> None:
    async def scenario(site: Site) -> None:
        http = site.http
        before = (await http.get(SESSION)).json()
        nothing = {"statistics": False, "policies": False, "publish": [], "subscribe": []}
        assert before == {
            "user": "",
            "needs_login": True,
            "groups": [],
            "rights": nothing,
            "expires_ms": None,
            "node": "alpha",
            "version": "1.2",
        }
        assert (await http.get(STATUS)).status_code == 401

        opened = await site.log_in()
        assert opened.status_code == 200
        answer = opened.json()
        assert (answer["user"], answer["needs_login"]) == ("ann", False)
        assert answer["groups"] == ["staff"]
        assert answer["rights"]["policies"] is True
        assert answer["rights"]["publish"] == ["#"]
        assert answer["expires_ms"] > 0
        cookie = opened.headers["set-cookie"]
        name, _, rest = cookie.partition("=")
        assert name == COOKIE
        flags = {each.strip().lower() for each in rest.split(";")[1:]}
        assert flags == {"httponly", "path=/", "samesite=strict"}
        assert opened.headers["cache-control"] == "no-store"

        assert (await http.get(STATUS)).status_code == 200
        assert (await http.get("/metrics")).status_code == 200
        assert (await http.get(SESSION)).json()["user"] == "ann"
        assert (await http.put(CHANNEL, json={"paths": 2})).status_code == 200

        stolen = {"Cookie": f"{COOKIE}={http.cookies[COOKIE]}"}
        closed = await http.delete(SESSION)
        assert closed.json() == before
        assert COOKIE not in http.cookies
        assert (await http.get(STATUS, headers=stolen)).status_code == 401
        assert len(site.sessions.table) == 0

    run(scenario)


def test_over_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        opened = await site.log_in()
        assert "secure" in opened.headers["set-cookie"].lower()
        assert (await site.http.get(STATUS)).status_code == 200

    run(scenario, tls=tmp_path)


def test_rights_are_those_of_the_user() -> None:
    async def scenario(site: Site) -> None:
        answer = (await site.log_in("bob")).json()
        assert answer["rights"]["statistics"] is False
        assert answer["rights"]["subscribe"] == ["home/bob/#"]
        assert (await site.http.get(STATUS)).status_code == 403
        assert (await site.http.get("/metrics")).status_code == 403
        assert (await site.http.put(CHANNEL, json={})).status_code == 403

    run(scenario)


def test_basic_authentication_works_beside_it() -> None:
    async def scenario(site: Site) -> None:
        await site.log_in("ann")
        answer = await site.http.get(SESSION, auth=("bob", WORD))
        assert answer.json()["user"] == "bob"
        assert answer.json()["expires_ms"] is None
        assert (await site.http.get(STATUS, auth=("ann", "wrong"))).status_code == 401
        assert (await site.http.get(SESSION, auth=("ann", "wrong"))).status_code == 401

    run(scenario)


def test_a_node_without_users_needs_no_login() -> None:
    async def scenario(site: Site) -> None:
        answer = (await site.http.get(SESSION)).json()
        assert (answer["user"], answer["needs_login"]) == ("", False)
        assert answer["rights"]["statistics"] is True
        assert answer["rights"]["subscribe"] == ["#"]
        assert (await site.log_in()).status_code == 404
        token = (await site.http.post(TOKEN)).json()
        assert (token["username"], token["password"]) == ("", "")
        assert token["client_prefix"] == "console-"
        assert token["expires_ms"] > 0

    async def main() -> None:
        node = NodePorts(view=FakeNode())
        server = await serve(create_app(node), SocketAddress("127.0.0.1", 0))
        async with httpx.AsyncClient(base_url=f"http://{server.address}") as http:
            await scenario(Site(http, Sessions(Users()), Clock()))
        await server.stop()

    asyncio.run(main())


def test_a_session_ends_when_it_is_not_used() -> None:
    async def scenario(site: Site) -> None:
        await site.log_in()
        site.clock.now_s += IDLE_S - 1
        assert (await site.http.get(STATUS)).status_code == 200
        site.clock.now_s += IDLE_S
        assert (await site.http.get(STATUS)).status_code == 401
        assert (await site.http.get(SESSION)).json()["needs_login"] is True

    run(scenario)


def test_another_login_replaces_the_session() -> None:
    async def scenario(site: Site) -> None:
        await site.log_in("ann")
        first = site.http.cookies[COOKIE]
        await site.log_in("bob")
        assert site.http.cookies[COOKIE] != first
        assert len(site.sessions.table) == 1

    run(scenario)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"user":"ann","password":"wrong"}', 401),
        (b'{"user":"eve","password":"a long password"}', 401),
        (b'{"user":"ann"}', 400),
        (b'{"user":"ann","password":7}', 400),
        (b'{"user":"ann","password":"x","more":1}', 400),
        (b'["ann"]', 400),
        (b"{", 400),
        (b'{"user":"\\ud800","password":"x"}', 400),
        (b'{"user":"ann","password":"' + b"x" * 5_000 + b'"}', 400),
        (b'{"user":"' + b"x" * 20_000 + b'"}', 413),
        (b"[" * 16_000, 400),
        (b"", 400),
    ],
)
def test_logins_that_are_refused(body: bytes, status: int) -> None:
    async def scenario(site: Site) -> None:
        headers = {"Content-Type": "application/json"}
        answer = await site.http.post(SESSION, content=body, headers=headers)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert "set-cookie" not in answer.headers
        assert WORD not in answer.text

    run(scenario)


def test_a_form_of_another_content_type_is_refused() -> None:
    async def scenario(site: Site) -> None:
        answer = await site.http.post(SESSION, data={"user": "ann", "password": WORD})
        assert answer.status_code == 415

    run(scenario)


def test_attempts_are_limited_per_user() -> None:
    async def scenario(site: Site) -> None:
        statuses = [(await site.log_in("ann", "wrong")).status_code for _ in range(ATTEMPTS)]
        assert statuses == [401] * ATTEMPTS
        refused = await site.log_in("ann")  # even with the right password
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "6"
        assert refused.json()["detail"] == "too many attempts"
        assert (await site.log_in("bob")).status_code == 200
        site.clock.now_s += 6
        assert (await site.log_in("ann")).status_code == 200

    run(scenario)


def test_basic_authentication_counts_among_the_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(site: Site) -> None:
        async def ask(password: str, user: str = "ann") -> httpx.Response:
            return await site.http.get(STATUS, auth=(user, password))

        for _ in range(ATTEMPTS):
            assert (await ask("wrong")).status_code == 401
        refused = await ask(WORD)  # even the right password
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "6"
        assert (await site.log_in("ann")).status_code == 429
        assert (await ask(WORD, "bob")).status_code == 403  # of the same address: it may log in
        site.clock.now_s += 6
        assert (await ask(WORD)).status_code == 200

    run(scenario)
    said = [each.getMessage() for each in caplog.records]
    assert said.count("login: refused") == ATTEMPTS
    assert said.count("login: too many attempts") == 2


def test_a_client_with_basic_authentication_is_not_limited() -> None:
    async def scenario(site: Site) -> None:
        async def ask(password: str = WORD) -> int:
            return (await site.http.get(STATUS, auth=("ann", password))).status_code

        together = await asyncio.gather(*(ask() for _ in range(3 * ATTEMPTS)))
        assert together == [200] * (3 * ATTEMPTS)  # the first ones, too
        for _ in range(100):
            assert await ask() == 200
        # Guesses from elsewhere do not lock it out.
        for _ in range(ATTEMPTS + 1):
            with pytest.raises(RequestError):
                await site.sessions.open("ann", "wrong", "10.0.0.1")
        with pytest.raises(RequestError, match="too many attempts"):
            await site.sessions.open("ann", WORD, "10.0.0.1")
        assert await ask() == 200

    run(scenario)


def test_a_free_password_can_not_be_guessed_at_its_own_address() -> None:
    async def scenario(site: Site) -> None:
        async def ask(password: str) -> int:
            return (await site.http.get(STATUS, auth=("ann", password))).status_code

        assert await ask(WORD) == 200
        guesses = [await ask(f"wrong {number}") for number in range(3 * ATTEMPTS)]
        assert guesses == [401] * ATTEMPTS + [429] * (2 * ATTEMPTS)
        assert await ask(WORD) == 429

    run(scenario)


def test_ten_thousand_attempts() -> None:
    verified = 0

    async def scenario(site: Site) -> None:
        nonlocal verified
        verify = site.sessions.users.verify

        async def count(
            name: str | None, password: bytes | None, address: str = ""
        ) -> Rights | None:
            nonlocal verified
            verified += 1
            return await verify(name, password, address)

        site.sessions.users.verify = count  # type: ignore[method-assign]
        refused = 0
        for number in range(10_000):
            try:
                await site.sessions.open(f"user-{number}", "wrong", "10.0.0.1")
            except Exception as error:
                refused += getattr(error, "status", 0) == 429
        assert refused == 10_000 - verified
        assert len(site.sessions.limiter) <= 1 + ATTEMPTS_PER_ADDRESS
        assert len(site.sessions.table) == 0

    run(scenario)
    assert verified == ATTEMPTS_PER_ADDRESS


@pytest.mark.parametrize(
    "cookie",
    [
        f"{COOKIE}=",
        f"{COOKIE}={'A' * 43}",
        f"{COOKIE}={'A' * 3_000}",
        "x=" + "y" * 10_000,
        f"x={'y' * 5_000}; {COOKIE}={{id}}",
        f"{COOKIE}={{id}}x",
        f"{COOKIE.upper()}={{id}}",
        ";;;===;;" * 500,
    ],
)
def test_cookies_that_open_nothing(cookie: str) -> None:
    async def scenario(site: Site) -> None:
        await site.log_in()
        given = cookie.replace("{id}", site.http.cookies[COOKIE])
        site.http.cookies.clear()
        answer = await site.http.get(STATUS, headers={"Cookie": given})
        assert answer.status_code == 401

    run(scenario)


def test_a_cookie_among_others() -> None:
    async def scenario(site: Site) -> None:
        await site.log_in()
        found = site.http.cookies[COOKIE]
        site.http.cookies.clear()
        cookies = f"theme=dark; {COOKIE}={found};other=1"
        assert (await site.http.get(STATUS, headers={"Cookie": cookies})).status_code == 200

    run(scenario)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://{host}"}, 200),
        ({"Origin": "http://{host}", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://ops.example"}, 403),  # configured, but not for sessions
    ],
)
def test_other_sites_change_nothing(headers: dict[str, str], status: int) -> None:
    async def scenario(site: Site) -> None:
        await site.log_in()
        host = site.http.base_url.netloc.decode()
        given = {name: value.replace("{host}", host) for name, value in headers.items()}
        for method, path in (("PUT", CHANNEL), ("POST", TOKEN), ("DELETE", SESSION)):
            answer = await site.http.request(method, path, headers=given)
            assert answer.status_code == status, path
            assert (await site.http.get(STATUS, headers=given)).status_code in (200, 401)

    run(scenario, origins=("https://ops.example",))


def test_configured_sites_use_basic_authentication() -> None:
    async def scenario(site: Site) -> None:
        headers = {"Origin": "https://ops.example"}
        answer = await site.http.put(CHANNEL, json={}, headers=headers, auth=("ann", WORD))
        assert answer.status_code == 200

    run(scenario, origins=("https://ops.example",))


def test_pages_are_not_asked_by_the_browsers_dialog() -> None:
    async def scenario(site: Site) -> None:
        asked = await site.http.get(STATUS)
        assert asked.headers["www-authenticate"].startswith("Basic")
        page = await site.http.get(STATUS, headers={"Sec-Fetch-Mode": "cors"})
        assert page.status_code == 401
        assert "www-authenticate" not in page.headers
        visit = await site.http.get("/metrics", headers={"Sec-Fetch-Mode": "navigate"})
        assert "www-authenticate" in visit.headers

    run(scenario)


def test_tokens_need_a_login() -> None:
    async def scenario(site: Site) -> None:
        assert (await site.http.post(TOKEN)).status_code == 401
        await site.log_in()
        token = (await site.http.post(TOKEN)).json()
        assert token["username"] == "ann"
        tokens = site.sessions.users.tokens
        assert tokens.redeem("ann", token["password"].encode(), "console-x")
        for _ in range(100):
            await site.http.post(TOKEN)
        assert len(tokens) == 32

    run(scenario)


def test_tokens_end_with_their_session() -> None:
    async def scenario(site: Site) -> None:
        tokens = site.sessions.users.tokens

        async def token(**options: Any) -> bytes:
            answer = (await site.http.post(TOKEN, **options)).json()
            return str(answer["password"]).encode()

        await site.log_in()
        closed, kept = await token(), await token()
        assert tokens.redeem("ann", kept, "console-x")
        with_basic = await token(auth=("bob", WORD))
        await site.http.delete(SESSION)
        assert not tokens.redeem("ann", closed, "console-x")
        assert tokens.redeem("bob", with_basic, "console-x")

        await site.log_in()
        idle = await token()
        site.clock.now_s += IDLE_S
        assert not tokens.redeem("ann", idle, "console-x")

    run(scenario)


def test_sessions_are_bounded_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_table, "MAX_SESSIONS_PER_USER", 3)

    async def scenario(site: Site) -> None:
        await site.log_in()
        first = site.http.cookies[COOKIE]
        for _ in range(3):
            site.http.cookies.clear()
            assert (await site.log_in()).status_code == 200
        assert len(site.sessions.table) == 3
        site.http.cookies.clear()
        cookie = {"Cookie": f"{COOKIE}={first}"}
        assert (await site.http.get(STATUS, headers=cookie)).status_code == 401

    run(scenario)


@pytest.mark.parametrize(
    ("origin", "cookie", "outcome"),
    [
        ("http://localhost:8080", True, "served"),
        (None, True, "served"),
        ("https://evil.example", True, 403),
        ("https://ops.example", True, 403),
        ("https://ops.example", False, 401),
        ("http://localhost:8080", False, 401),
    ],
)
def test_web_sockets_pass_the_guard(origin: str | None, cookie: bool, outcome: str | int) -> None:
    """A WebSocket upgrade counts as a change, and is refused before it is accepted."""
    from accord.http.guard import Guard, asker_of  # noqa: PLC0415

    async def main() -> str | int:
        users = Users(USERS)
        sessions = Sessions(users)
        session_id = await sessions.open("ann", WORD, "here")
        found: list[str | int] = []

        async def app(scope: Any, _receive: Any, _send: Any) -> None:
            assert asker_of(scope).user == "ann"
            found.append("served")

        async def send(message: Message) -> None:
            if message["type"] == "websocket.http.response.start":
                found.append(message["status"])

        async def receive() -> Message:
            return {"type": "websocket.connect"}

        guard = Guard(
            app,
            users=users,
            verify=sessions.verify,
            is_loopback=True,
            origins=("https://ops.example",),
            find_session=sessions.find,
        )
        headers = [(b"host", b"localhost:8080")]
        if origin is not None:
            headers.append((b"origin", origin.encode()))
        if cookie:
            headers.append((b"cookie", f"{COOKIE}={session_id}".encode()))
        scope = {
            "type": "websocket",
            "path": "/api/v1/live",
            "headers": headers,
            "extensions": {"websocket.http.response": {}},
            "client": ("127.0.0.1", 1),
        }
        await guard(scope, receive, send)
        await users.close()
        return found[0]

    assert asyncio.run(main()) == outcome
