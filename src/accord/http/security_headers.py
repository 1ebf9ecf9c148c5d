"""Headers of all answers that limit what a browser does with them."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY: Final = {
    "default-src": "'self'",
    "img-src": "'self' blob: data:",
    "style-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "object-src": "'none'",
}


def content_policy(style: str = "") -> str:
    """The Content-Security-Policy of an answer; `style` is the text of a style sheet in it."""
    policy = dict(_POLICY)
    if style:
        digest = b64encode(sha256(style.encode()).digest()).decode()
        policy["style-src"] += f" 'sha256-{digest}'"
    return "; ".join(f"{name} {sources}" for name, sources in policy.items())


HEADERS: Final = {
    "Content-Security-Policy": content_policy(),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


_RAW: Final = tuple((name.lower().encode(), value.encode()) for name, value in HEADERS.items())


class SecurityHeaders:
    """ASGI middleware that adds them where an answer does not have them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message["headers"]
                names = {name for name, _ in given}
                message["headers"] = [*given, *(each for each in _RAW if each[0] not in names)]
            await send(message)

        is_answered = scope["type"] == "http"
        await self._app(scope, receive, send_with_headers if is_answered else send)
