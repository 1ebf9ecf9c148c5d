"""Who may ask over HTTP.

Where users are configured, requests carry the name and password of one (Basic authentication),
except for `/health`, which monitors of processes ask. A node that listens on this machine only has
another enemy: a web page in a browser here, whose own name can be made to lead to this machine. So
such a node answers only where it is addressed by one of the machine's own names.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from accord.live.addresses import Address, parse_address
from accord.live.users import BusyError, Users

OPEN: Final = frozenset({"/health"})
_LONGEST: Final = 4_096


class Guard:
    """Passes on what may be asked, and answers the rest itself."""

    def __init__(self, app: ASGIApp, *, users: Users | None, is_loopback: bool) -> None:
        self._app = app
        self._users = users if users is not None and users.are_configured else None
        self._is_loopback = is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._is_loopback and not _is_local(headers.get("host", "")):
            return _refuse(421, "expected to be addressed as localhost, 127.0.0.1 or [::1]")
        if self._users is None or scope["path"] in OPEN:
            return None
        return await self._check_user(self._users, headers.get("authorization", ""))

    async def _check_user(self, users: Users, header: str) -> Response | None:
        given = _credentials(header)
        try:
            rights = None if given is None else await users.verify(*given)
        except BusyError as error:
            return _refuse(503, str(error), {"Retry-After": "1"})
        if rights is None:
            challenge = {"WWW-Authenticate": 'Basic realm="accord", charset="UTF-8"'}
            return _refuse(401, "expected the name and password of a user", challenge)
        if not rights.statistics:
            return _refuse(403, "this user may not read statistics")
        return None


def _is_local(host: str) -> bool:
    address = parse_address(host) or parse_address(f"{host}:80")
    return address is not None and Address(address.host.lower(), 80).is_loopback


def _credentials(header: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _LONGEST:
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def _refuse(status: int, problem: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{problem}\n", status, headers)
