"""One-time tokens with which a page in a browser connects over MQTT.

A page has no password: its session is in a cookie that scripts can't read. It asks for a token over
HTTP and presents it as the password of CONNECT. A token is good for one connection of one user,
within a minute and while the session lasts, under a client ID that begins with `console-`. Only its
hash is stored, and tokens are limited in number: in all, and for each user, so that nobody
displaces those of others.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from msgspec import Struct

from accord.core.monitoring.recent_changes import CONSOLE_PREFIX

CLIENT_PREFIX: Final = CONSOLE_PREFIX
TOKEN_TIMEOUT_S: Final = 60.0
MAX_TOKENS: Final = 4_096
MAX_TOKENS_PER_USER: Final = 32
TOKEN_LENGTH: Final = 43  # 256 bits in base64


class _IssuedToken(Struct, frozen=True):
    user: str
    until_s: float
    is_valid: Callable[[], bool]


class ConnectTokens:
    """Issued tokens that have not been redeemed, the oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens: dict[bytes, _IssuedToken] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def issue(self, user: str, is_valid: Callable[[], bool] = lambda: True) -> str:
        """A token for one connection of `user`, while `is_valid`: its session may end before."""
        now_s = self._clock()
        self._expire(now_s)
        own = [key for key, each in self._tokens.items() if each.user == user]
        if len(own) >= MAX_TOKENS_PER_USER:
            del self._tokens[own[0]]
        elif len(self._tokens) >= MAX_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        token = secrets.token_urlsafe(32)
        self._tokens[_key(token.encode())] = _IssuedToken(user, now_s + TOKEN_TIMEOUT_S, is_valid)
        return token

    def redeem(self, user: str, password: bytes | None, client: str) -> bool:
        """Whether `password` is a token for this connection; it is used up if so."""
        if not client.startswith(CLIENT_PREFIX) or password is None:
            return False
        if len(password) != TOKEN_LENGTH:
            return False
        key = _key(password)
        issued = self._tokens.get(key)
        if issued is None or issued.user != user:
            return False
        del self._tokens[key]
        return self._clock() < issued.until_s and issued.is_valid()

    def _expire(self, now_s: float) -> None:
        for key, each in list(self._tokens.items()):
            if now_s < each.until_s:
                return  # all have the same lifetime
            del self._tokens[key]


def _key(token: bytes) -> bytes:
    return sha256(token).digest()
