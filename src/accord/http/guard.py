"""Authentication and authorisation of HTTP requests.

If users are configured, requests carry the name and password of one (Basic authentication), except
for `/health`, which process monitors use. A node that listens on this machine only has another
threat: DNS rebinding, by a web page in a local browser whose own host name resolves to this
machine. Such a node replies only if it is addressed by one of the machine's own names.

Cross-site requests must not change anything either, because browsers attach the user's credentials
to them. Browsers also send the origin of a page, so a request that changes something is refused if
its origin is neither this node nor a configured site (`origins`). Other clients send no origin, and
need not.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from accord.core.queries.journal_http import JOURNAL
from accord.core.router.rights import EVERYTHING, Rights
from accord.http.event_schemas import QUERY
from accord.http.schemas import CHANNELS, POLICIES, PROPERTIES
from accord.runtime.addresses import SocketAddress, parse_address
from accord.runtime.users import BusyError, Users
from accord.runtime.websocket import is_named

OPEN: Final = frozenset({"/health"})
_CALLER: Final = "accord.asker"
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_CREDENTIALS: Final = 4_096


class Caller(Struct, frozen=True):
    """The authenticated user; `name` is empty if no user was verified."""

    name: str
    rights: Rights


def caller_of(scope: Scope) -> Caller:
    """The caller of a request that passed the guard."""
    asker: Caller = scope[_CALLER]
    return asker


class Guard:
    """ASGI middleware that passes permitted requests on, and refuses the rest."""

    def __init__(
        self, app: ASGIApp, *, users: Users | None, is_loopback: bool, origins: tuple[str, ...] = ()
    ) -> None:
        self._app = app
        self._origins = origins
        self._users = users if users is not None and users.are_configured else None
        anonymous = EVERYTHING if users is None else users.anonymous
        self._nobody = Caller("", anonymous or Rights())
        self._is_loopback = is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._is_loopback and not _is_local(headers.get("host", "")):
            return _refuse(421, "expected to be addressed as localhost, 127.0.0.1 or [::1]")
        if scope["path"] in OPEN:
            return None
        if scope["method"] not in _READING and not self._is_welcome(headers):
            problem = "pages of other sites may not change anything here"
            return _refuse(403, f"{problem}, unless [listen] origins has them")
        asker = self._nobody
        if self._users is not None:
            found = await self._find_user(self._users, headers.get("authorization", ""))
            if isinstance(found, Response):
                return found
            asker = found
        if not asker.rights.statistics and _is_about_statistics(scope):
            return _refuse(403, f"{asker.name or 'an anonymous client'} may not read statistics")
        if not asker.rights.policies and _is_about_policies(scope):
            what = "define channels" if _defines_channels(scope) else "see or change policies"
            if _defines_properties(scope):
                what = "define properties"
            return _refuse(403, f"{asker.name or 'an anonymous client'} may not {what}")
        scope[_CALLER] = asker
        return None

    def _is_welcome(self, headers: Headers) -> bool:
        """Whether the request is not cross-site, or comes from a configured origin."""
        origin = headers.get("origin")
        if origin is not None and is_named(origin, self._origins):
            return True
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        return origin is None or origin.partition("://")[2] == headers.get("host")

    @staticmethod
    async def _find_user(users: Users, header: str) -> Caller | Response:
        given = _credentials(header)
        try:
            rights = None if given is None else await users.verify(*given)
        except BusyError as error:
            return _refuse(503, str(error), {"Retry-After": "1"})
        if given is None or rights is None:
            challenge = {"WWW-Authenticate": 'Basic realm="accord", charset="UTF-8"'}
            return _refuse(401, "expected the name and password of a user", challenge)
        return Caller(given[0], rights)


def _is_about_policies(scope: Scope) -> bool:
    path: str = scope["path"]
    if _defines_channels(scope) or _defines_properties(scope):
        return True
    return path == POLICIES or path.startswith(f"{POLICIES}/")


def _defines_properties(scope: Scope) -> bool:
    return scope["path"] == PROPERTIES and scope["method"] not in _READING


def _defines_channels(scope: Scope) -> bool:
    """Whether the request changes channels; reading them takes only the right to statistics."""
    path: str = scope["path"]
    is_about_channels = path == CHANNELS or path.startswith(f"{CHANNELS}/")
    return is_about_channels and scope["method"] not in _READING


def _is_about_statistics(scope: Scope) -> bool:
    """Whether the request needs only statistics rights: all but policies and kept events."""
    path: str = scope["path"]
    is_kept = path in (QUERY, JOURNAL) or path.startswith(f"{JOURNAL}/")
    return not is_kept and not _is_about_policies(scope)


def _is_local(host: str) -> bool:
    address = parse_address(host) or parse_address(f"{host}:80")
    return address is not None and SocketAddress(address.host.lower(), 80).is_loopback


def _credentials(header: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _MAX_CREDENTIALS:
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def _refuse(status: int, problem: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{problem}\n", status, headers)
