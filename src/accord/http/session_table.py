"""Open sessions of users, and the limit on attempts to open one. Pure: the time is an argument.

The cookie holds 256 random bits; only their hash is stored, so that a copy of the memory opens
nothing. A session ends when it was not used for a while, and in any case after a day. Sessions are
limited in number: in all, and for each user, so that nobody displaces those of others.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import Final, TypeVar

from accord.core.admission.rate_enforcement import TokenBucket
from accord.core.model.bounded import LruMap
from accord.runtime.addresses import network_of

_K = TypeVar("_K")

ID_LENGTH: Final = 43  # 256 bits in base64
IDLE_S: Final = 8 * 3_600
LIFETIME_S: Final = 24 * 3_600
MAX_SESSIONS: Final = 1_000
MAX_SESSIONS_PER_USER: Final = 32

# Attempts to log in: a burst, and then one after another.
ATTEMPTS: Final = 10
ATTEMPTS_PER_ADDRESS: Final = 30
ATTEMPT_WINDOW_S: Final = 60
MAX_COUNTED: Final = 10_000  # addresses, and users


class UserSession:
    """A session: its user, and when it was opened and last used."""

    __slots__ = ("opened_s", "used_s", "user")

    def __init__(self, user: str, now_s: float) -> None:
        self.user = user
        self.opened_s = now_s
        self.used_s = now_s

    def left_s(self, now_s: float) -> float:
        """Time until the session ends, unless it is used before."""
        return min(self.opened_s + LIFETIME_S, self.used_s + IDLE_S) - now_s


class SessionTable:
    """All open sessions, those unused for longest first."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, UserSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session_id: str, user: str, *, now_s: float) -> UserSession:
        self._expire(now_s)
        own = [key for key, each in self._sessions.items() if each.user == user]
        if len(own) >= MAX_SESSIONS_PER_USER:
            del self._sessions[own[0]]
        elif len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = self._sessions[key_of(session_id)] = UserSession(user, now_s)
        return session

    def use(self, session_id: str, *, now_s: float) -> UserSession | None:
        """The session with this ID, which counts as a use; None if there is none, or it ended."""
        if len(session_id) != ID_LENGTH:
            return None
        key = key_of(session_id)
        session = self._sessions.pop(key, None)
        if session is None or session.left_s(now_s) <= 0:
            return None
        session.used_s = now_s
        self._sessions[key] = session
        return session

    def has(self, session_id: str, *, now_s: float) -> bool:
        """Whether there is a session with this ID; this is no use of it."""
        return self.has_key(key_of(session_id), now_s=now_s)

    def has_key(self, key: bytes, *, now_s: float) -> bool:
        """The same for the hash of an ID, by `key_of`."""
        session = self._sessions.get(key)
        return session is not None and session.left_s(now_s) > 0

    def close(self, session_id: str) -> UserSession | None:
        return self._sessions.pop(key_of(session_id), None)

    def _expire(self, now_s: float) -> None:
        ended = [key for key, each in self._sessions.items() if each.left_s(now_s) <= 0]
        for key in ended:
            del self._sessions[key]


class _RightLogin:
    """Credentials that were right at an address, and how many others may be tried there."""

    __slots__ = ("digest", "tries_left")

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.tries_left = ATTEMPTS


class LoginLimiter:
    """Limits attempts to log in, per address and per user; networks of IPv6 count as one.

    Credentials that were right at an address are free there, for clients that send them with each
    request. Not so after some others of the same user: who may try any number of passwords, and
    learns which one is free, has found the right one.
    """

    def __init__(self) -> None:
        self._addresses: LruMap[str, TokenBucket] = LruMap(MAX_COUNTED)
        self._users: LruMap[bytes, TokenBucket] = LruMap(MAX_COUNTED)
        self._right: LruMap[tuple[str, bytes], _RightLogin] = LruMap(MAX_COUNTED)

    def is_free(self, address: str, user: str, digest: bytes) -> bool:
        """Whether these credentials were right at this address; others count as a try."""
        found = self._right.get((network_of(address), key_of(user)))
        if found is None or not found.tries_left:
            return False
        if compare_digest(found.digest, digest):
            return True
        found.tries_left -= 1
        return False

    def accept(self, address: str, user: str, *, now_s: float) -> int:
        """0 if an attempt may be made now, otherwise the seconds to wait."""
        now_us = int(now_s * 1e6)
        by_address = self._by_address(address, now_us)
        if not by_address.take(now_us):
            return _pause_s(ATTEMPTS_PER_ADDRESS)
        if not _bucket(self._users, key_of(user), ATTEMPTS, now_us).take(now_us):
            return _pause_s(ATTEMPTS)
        return 0

    def succeeded(self, address: str, user: str, digest: bytes, *, now_s: float) -> None:
        """An accepted attempt was right: earlier ones were the user's own mistakes."""
        now_us = int(now_s * 1e6)
        self._by_address(address, now_us).give_back()
        self._users.put(key_of(user), _new_bucket(ATTEMPTS, now_us))
        self._right.put((network_of(address), key_of(user)), _RightLogin(digest))

    def _by_address(self, address: str, now_us: int) -> TokenBucket:
        return _bucket(self._addresses, network_of(address), ATTEMPTS_PER_ADDRESS, now_us)

    def __len__(self) -> int:
        return len(self._addresses) + len(self._users) + len(self._right)


def _bucket(buckets: LruMap[_K, TokenBucket], key: _K, most: int, now_us: int) -> TokenBucket:
    bucket = buckets.get(key)
    if bucket is None:
        bucket = _new_bucket(most, now_us)
        buckets.put(key, bucket)
    return bucket


def _new_bucket(most: int, now_us: int) -> TokenBucket:
    per_1000_s = -(-most * 1_000 // ATTEMPT_WINDOW_S)
    return TokenBucket(per_1000_s, ATTEMPT_WINDOW_S, now_us)


def _pause_s(most: int) -> int:
    return -(-ATTEMPT_WINDOW_S // most)


def key_of(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
