"""Authentication of HTTP requests.

If users are configured, requests carry the name and password of one (Basic authentication), or the
cookie of a session. Some need neither: `/health`, which process monitors use; the files of the
console, which hold no data; and the routes to log in. A node that listens on this machine only has
another threat: DNS rebinding, by a web page in a local browser whose own host name resolves to this
machine. Such a node replies only if it is addressed by one of the machine's own names.

Cross-site requests must not change anything either, because browsers attach the user's credentials
to them. Browsers also send the origin of a page, so a request that changes something, or opens a
WebSocket, is refused if its origin is neither this node nor a configured site (`origins`); with the
cookie of a session only pages of this node are accepted. Other clients send no origin, and need
not.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from accord.core.router.rights import EVERYTHING, NO_RIGHTS, Rights
from accord.operations.operation import API, PROBLEM, Asker, Problem, RequestError
from accord.operations.session import SESSION_PATH
from accord.runtime.users import Users
from accord.runtime.websocket import is_local_host, is_named, is_same_origin

OPEN: Final = frozenset({"/health"})
_LOGIN: Final = API + SESSION_PATH
_ASKER: Final = "accord.asker"
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_CREDENTIALS: Final = 4_096


def asker_of(scope: Scope) -> Asker:
    """The asker of a request that passed the guard."""
    asker: Asker = scope[_ASKER]
    return asker


class FoundSession(Protocol):
    """An open session."""

    user: str


Verify = Callable[[str, bytes, str], Awaitable[Rights | None]]


class Guard:
    """ASGI middleware that passes authenticated requests on, and refuses the rest.

    Each operation checks the right it takes; other pages take the right to statistics.
    `find_session` finds the session of a `Cookie` header, `is_open` says which paths need no login,
    `verify` returns the rights for a name and password that an address sent, None if wrong.
    """

    def __init__(  # noqa: PLR0913
        self,
        app: ASGIApp,
        *,
        users: Users | None,
        verify: Verify,
        is_loopback: bool,
        origins: tuple[str, ...] = (),
        find_session: Callable[[str], FoundSession | None] = lambda _cookies: None,
        is_open: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        self._app = app
        self._origins = origins
        self._find_session = find_session
        self._is_open = is_open
        self._users = users if users is not None and users.are_configured else None
        self._verify = verify
        anonymous = EVERYTHING if users is None else users.anonymous
        self._anonymous = anonymous or Rights()
        self._is_loopback = is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_request = scope["type"] in ("http", "websocket")
        refusal = await self._refusal(scope) if is_request else None
        await (refusal or self._app)(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._is_loopback and not is_local_host(headers.get("host", "")):
            return _refuse(421, "expected to be addressed as localhost, 127.0.0.1 or [::1]")
        path = scope["path"]
        if path in OPEN or self._is_open(path):
            return None
        is_reading = scope.get("method", "") in _READING  # a WebSocket has no method
        if not is_reading and not self._is_welcome(headers):
            problem = "pages of other sites may not change or watch anything here"
            return _refuse(403, f"{problem}, unless [listen] origins has them")
        client = scope.get("client")
        address = client[0] if client else ""
        user, rights = "", self._anonymous
        if self._users is not None:
            is_login = scope["type"] == "http" and path == _LOGIN
            found = await self._find_user(
                self._users, headers, address, is_reading=is_reading, is_login=is_login
            )
            if isinstance(found, Response):
                return found
            user, rights = found
        rights = rights.for_client(user=user, client="")
        agent = _agent(headers.get("user-agent", ""))
        asker = Asker(user=user, address=address, agent=agent, rights=rights)
        if not rights.statistics and not path.startswith(f"{API}/"):
            return _refuse(403, f"{user or 'an anonymous client'} may not read statistics")
        scope[_ASKER] = asker
        return None

    def _is_welcome(self, headers: Headers) -> bool:
        """Whether the request is not cross-site, or comes from a configured origin."""
        origin = headers.get("origin")
        if origin is not None and is_named(origin, self._origins):
            return True
        return _is_own(headers)

    async def _find_user(
        self, users: Users, headers: Headers, address: str, *, is_reading: bool, is_login: bool
    ) -> tuple[str, Rights] | Response:
        """The user of Basic authentication, else of the session; with no rights to log in."""
        if "authorization" in headers:
            return await self._verified_user(headers, address)
        session = self._find_session(headers.get("cookie", ""))
        rights = None if session is None else users.rights_of(session.user)
        if session is not None and rights is not None:
            if not is_reading and not _is_own(headers):
                return _refuse(403, "only pages of this node may use the session of its user")
            return session.user, rights
        return ("", NO_RIGHTS) if is_login else _ask_for_login(headers)

    async def _verified_user(self, headers: Headers, address: str) -> tuple[str, Rights] | Response:
        given = _credentials(headers["authorization"])
        try:
            rights = None if given is None else await self._verify(*given, address)
        except RequestError as error:
            detail = f"{error}; {error.remedy}" if error.remedy else str(error)
            return _refuse(error.status, detail, {"Retry-After": str(error.retry_s)})
        if given is None or rights is None:
            return _ask_for_login(headers)
        return given[0], rights


def _ask_for_login(headers: Headers) -> Response:
    """Browsers show a dialog of their own for the challenge: not if a page asks, which has one."""
    is_page = headers.get("sec-fetch-mode", "navigate") != "navigate"
    challenge = {"WWW-Authenticate": 'Basic realm="accord", charset="UTF-8"'}
    problem = "expected the name and password of a user"
    return _refuse(401, problem, {} if is_page else challenge)


def _is_own(headers: Headers) -> bool:
    """Whether the request comes from a page of this node, or from no page."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or is_same_origin(origin, headers.get("host", ""))


def _credentials(header: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _MAX_CREDENTIALS:
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def _refuse(code: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    problem = Problem(status=code, title=HTTPStatus(code).phrase, detail=detail)
    return Response(
        msgspec.json.encode(problem),
        code,
        headers={"Cache-Control": "no-store", **(headers or {})},
        media_type=PROBLEM,
    )


def _agent(user_agent: str) -> str:
    """What a caller says that it is, as far as people want to know it."""
    if user_agent.startswith("accord"):
        return "accord command"
    return "browser" if user_agent.startswith("Mozilla/") else ""
