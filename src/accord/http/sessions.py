"""Login of people with a browser: sessions in a cookie that scripts of the page can't read.

`Sessions` is shared by all HTTP listeners of a node. A session names a user; its rights are those
that the user has now.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from accord.core.model.errors import AccordError
from accord.core.router.rights import Rights
from accord.http.guard import asker_of
from accord.http.routes import NOT_STORED, problem_response, read_body
from accord.http.session_table import LoginLimiter, SessionTable, UserSession, key_of
from accord.operations.operation import (
    API,
    JSON,
    Asker,
    RequestError,
    decoding_problem,
    problem_of,
)
from accord.operations.ports import NodePorts
from accord.operations.session import (
    ROUTES,
    ConnectToken,
    Login,
    SessionRights,
    SessionStatus,
)
from accord.runtime.addresses import network_of
from accord.runtime.connect_tokens import CLIENT_PREFIX, TOKEN_TIMEOUT_S
from accord.runtime.logs import get_log
from accord.runtime.password_queue import BusyError
from accord.runtime.users import Users

log = get_log(__name__)

COOKIE: Final = "accord_session"
_MAX_COOKIES: Final = 4_096  # characters of the header that are looked at
_MAX_BODY: Final = 16_384


class Sessions:
    """Sessions of users who logged in with a browser."""

    def __init__(self, users: Users, clock: Callable[[], float] = time.monotonic) -> None:
        self.users = users
        self.table = SessionTable()
        self.limiter = LoginLimiter()
        self._clock = clock
        self._under_way: set[tuple[str, bytes]] = set()  # attempts, at most one per connection

    def find(self, cookies: str) -> UserSession | None:
        """The open session of a request's `Cookie` header."""
        session_id = id_of(cookies)
        return None if not session_id else self.table.use(session_id, now_s=self._clock())

    def is_open(self, cookies: str) -> bool:
        """Whether the session is still open; asking is no use of it."""
        return self.table.has(id_of(cookies), now_s=self._clock())

    async def open(self, user: str, password: str, address: str) -> str:
        """A new session's ID; raises RequestError for wrong credentials or too many attempts."""
        if not self.users.are_configured:
            raise RequestError(404, "this node has no users", remedy="no login is needed")
        if await self.verify(user, password.encode(), address) is None:
            raise RequestError(401, "wrong name or password")
        now_s = self._clock()
        session_id = secrets.token_urlsafe(32)
        self.table.open(session_id, user, now_s=now_s)
        log.info("session: opened", user=user, address=address)
        return session_id

    async def verify(self, user: str, password: bytes, address: str) -> Rights | None:
        """The rights for these credentials, of a form or of Basic authentication; None if wrong.

        Raises RequestError for too many attempts, which are not verified.
        """
        digest = self.users.digest(user, password)
        attempt = (network_of(address), digest)
        # The first requests of a client come together: the same password again is no guess.
        is_free = attempt in self._under_way or self.limiter.is_free(address, user, digest)
        if is_free:
            return await self._verify_now(user, password, address)
        if wait_s := self.limiter.accept(address, user, now_s=self._clock()):
            log.warning("login: too many attempts", user=user, address=address)
            remedy = f"try again in {wait_s} s"
            raise RequestError(429, "too many attempts", remedy=remedy, retry_s=wait_s)
        self._under_way.add(attempt)
        try:
            rights = await self._verify_now(user, password, address)
        finally:
            self._under_way.discard(attempt)
        if rights is not None:
            self.limiter.succeeded(address, user, digest, now_s=self._clock())
        return rights

    async def _verify_now(self, user: str, password: bytes, address: str) -> Rights | None:
        try:
            rights = await self.users.verify(user, password, address)
        except BusyError as error:
            log.warning("login: too many passwords wait to be verified", address=address)
            raise RequestError(503, str(error), retry_s=1) from None
        if rights is None:
            log.warning("login: refused", user=user, address=address)
        return rights

    def close(self, cookies: str, address: str) -> None:
        if session := self.table.close(id_of(cookies)):
            log.info("session: closed", user=session.user, address=address)

    def issue_token(self, user: str, cookies: str) -> str:
        """A token for MQTT, which ends with the user's session if there is one."""
        session = self.find(cookies)
        if session is None or session.user != user:
            return self.users.tokens.issue(user)
        key = key_of(id_of(cookies))
        return self.users.tokens.issue(user, lambda: self.table.has_key(key, now_s=self._clock()))

    def ends_ms(self, session: UserSession) -> int:
        """When the session ends unless it is used, in ms since 1970."""
        return round((time.time() + session.left_s(self._clock())) * 1_000)


def id_of(cookies: str) -> str:
    """The session ID of a `Cookie` header; empty if there is none."""
    for pair in cookies[:_MAX_COOKIES].split(";"):
        name, _, value = pair.partition("=")
        if name.strip() == COOKIE:
            return value.strip()
    return ""


def session_routes(node: NodePorts, sessions: Sessions) -> list[Route]:
    """The routes of `operations.session.ROUTES`."""
    pages = _SessionPages(node, sessions)
    answers: dict[str, dict[str, _Answer]] = {}
    for each in ROUTES:
        answers.setdefault(each.path, {})[each.method] = getattr(pages, each.name)
    return [
        Route(API + path, partial(_dispatch, by_method), methods=[*by_method])
        for path, by_method in answers.items()
    ]


_Answer = Callable[[HttpRequest], Awaitable[Response]]


async def _dispatch(by_method: dict[str, _Answer], request: HttpRequest) -> Response:
    """One route for a path, so that `Allow` names all its methods."""
    method = "GET" if request.method == "HEAD" else request.method
    return await by_method[method](request)


class _SessionPages:
    def __init__(self, node: NodePorts, sessions: Sessions) -> None:
        self._view = node.view
        self._groups_of = node.groups_of
        self._sessions = sessions

    async def get(self, request: HttpRequest) -> Response:
        asker = asker_of(request.scope)
        session = self._sessions.find(request.headers.get("cookie", ""))
        is_own = session is not None and session.user == asker.user
        return _json(self._status(asker, session if is_own else None))

    async def open(self, request: HttpRequest) -> Response:
        sessions = self._sessions
        address = asker_of(request.scope).address
        try:
            login = await _read_login(request)
            session_id = await sessions.open(login.user, login.password, address)
        except AccordError as error:
            return problem_response(problem_of(error), getattr(error, "retry_s", 0) or 1)
        sessions.close(request.headers.get("cookie", ""), address)  # it is replaced
        session = sessions.find(f"{COOKIE}={session_id}")
        rights = sessions.users.rights_of(login.user)
        assert session is not None
        assert rights is not None
        granted = rights.for_client(user=login.user, client="")
        asker = Asker(user=login.user, address=address, rights=granted)
        response = _json(self._status(asker, session))
        response.set_cookie(
            COOKIE,
            session_id,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    async def close(self, request: HttpRequest) -> Response:
        asker = asker_of(request.scope)
        self._sessions.close(request.headers.get("cookie", ""), asker.address)
        response = _json(self._logged_out())
        response.delete_cookie(
            COOKIE,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    async def issue_token(self, request: HttpRequest) -> Response:
        user = asker_of(request.scope).user
        cookies = request.headers.get("cookie", "")
        token = self._sessions.issue_token(user, cookies) if user else ""
        expires_ms = round((time.time() + TOKEN_TIMEOUT_S) * 1_000)
        return _json(
            ConnectToken(
                username=user, password=token, client_prefix=CLIENT_PREFIX, expires_ms=expires_ms
            )
        )

    def _status(self, asker: Asker, session: UserSession | None) -> SessionStatus:
        if self._sessions.users.are_configured and not asker.user:
            return self._logged_out()
        return SessionStatus(
            user=asker.user,
            groups=self._groups_of(asker.user),
            rights=SessionRights.of(asker.rights),
            expires_ms=None if session is None else self._sessions.ends_ms(session),
            node=self._view.name,
            version=self._view.version,
        )

    def _logged_out(self) -> SessionStatus:
        return SessionStatus(
            needs_login=self._sessions.users.are_configured,
            node=self._view.name,
            version=self._view.version,
        )


async def _read_login(request: HttpRequest) -> Login:
    data, _ = await read_body(request, (JSON,), _MAX_BODY)
    try:
        return msgspec.json.decode(data, type=Login)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise decoding_problem(error) from None


def _json(answer: SessionStatus | ConnectToken) -> Response:
    return Response(msgspec.json.encode(answer), headers=NOT_STORED, media_type=JSON)
