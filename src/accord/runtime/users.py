"""Users that may connect, and their rights.

Passwords are stored as argon2 hashes, slow to verify by design: about 30 ms and 19 MB each. So

- verification runs in a few threads, never on the event loop, with a bounded queue of which each
  address has its share (`password_queue`);
- credentials that were verified recently are recognised by a keyed hash of both, and clients that
  present the same ones at the same time are verified once: when a network recovers, all its
  clients reconnect;
- an unknown user costs as much as a wrong password, so that names can't be probed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Final

import argon2
from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.core.router.rights import EVERYTHING, NOTHING_DENIED, Allowed, Denied, Rights
from accord.runtime.addresses import network_of
from accord.runtime.connect_tokens import ConnectTokens
from accord.runtime.password_queue import PasswordQueue, VerificationLimits

MAX_MEMORY_KIB: Final = 1_048_576
_HASHER: Final = argon2.PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


class User(Struct, frozen=True):
    """A user that may connect."""

    name: str
    password: Annotated[
        str,
        Meta(
            description="The argon2 hash of the password, as made by `accord user hash`.",
            extra={"kind": "hash"},
        ),
    ]
    may: Annotated[
        Allowed,
        Meta(description="Where the user may publish and subscribe; everywhere if left out."),
    ] = EVERYTHING
    may_not: Annotated[
        Denied,
        Meta(description="Where it may not, whatever `may` says; nowhere if left out."),
    ] = NOTHING_DENIED
    groups: Annotated[
        tuple[str, ...],
        Meta(
            description="Groups the user belongs to, for policies to name.",
            extra={"kind": "names"},
        ),
    ] = ()
    clients: Annotated[
        tuple[str, ...],
        Meta(
            description="Client identifiers the user may connect with, `*` for any text in them; "
            "all if left out.",
            extra={"kind": "names"},
        ),
    ] = ()

    @property
    def rights(self) -> Rights:
        return Rights.combine(self.may, self.may_not)


def hash_password(password: str) -> str:
    return _HASHER.hash(password)


def problem_with_hash(text: str) -> str | None:
    """Why `text` can't be a stored password; None if it can."""
    try:
        parameters = argon2.extract_parameters(text)
    except argon2.exceptions.InvalidHashError:
        return "expected an argon2 hash, as `accord user hash` makes it"
    if parameters.memory_cost > MAX_MEMORY_KIB:
        return f"expected a hash that takes at most {MAX_MEMORY_KIB} KiB of memory to verify"
    return None


class Users:
    """All users. Without any, every client is anonymous."""

    def __init__(
        self,
        users: Iterable[User] = (),
        *,
        anonymous: Rights | None = None,
        limits: VerificationLimits = VerificationLimits(),  # noqa: B008 - a frozen value
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._users = {user.name: user for user in users}
        self._nobody = _nobody_like(self._users.values())
        self.anonymous = None if anonymous is None else _without_names(anonymous)
        self.tokens = ConnectTokens(clock)
        self._limits = limits
        self._queue = PasswordQueue(limits)
        self._recent: OrderedDict[bytes, float] = OrderedDict()
        self._clock = clock
        self._key = os.urandom(32)

    @property
    def are_configured(self) -> bool:
        return bool(self._users)

    def rights_of(self, name: str) -> Rights | None:
        """Rights of a user that was verified before, with placeholders; None if unknown."""
        user = self._users.get(name)
        return None if user is None else user.rights

    def groups_of(self, name: str) -> tuple[str, ...]:
        """Groups of a verified user; others have none."""
        user = self._users.get(name)
        return () if user is None else user.groups

    def denied_to(self, name: str, client: str) -> tuple[str, ...]:
        """Filters of the channels whose events a user's client never receives."""
        user = self._users.get(name)
        rights = self.anonymous if user is None else user.rights
        return (
            () if rights is None else rights.for_client(user=name, client=client).denied.subscribe
        )

    def may_connect_as(self, name: str, client: str) -> bool:
        """Whether a verified user may use this client ID."""
        user = self._users.get(name)
        if user is None or not user.clients:
            return True
        return any(fnmatchcase(client, _literal(pattern)) for pattern in user.clients)

    async def verify_client(
        self, name: str | None, password: bytes | None, client: str, address: str = ""
    ) -> Rights | None:
        """The rights of an MQTT client, which may present a token instead of the password."""
        if name is not None and self.tokens.redeem(name, password, client):
            return self.rights_of(name)
        return await self.verify(name, password, address)

    async def verify(
        self, name: str | None, password: bytes | None, address: str = ""
    ) -> Rights | None:
        """The rights for these credentials, or None if they are wrong.

        Placeholders in the rights are not substituted yet. Raises `BusyError` if the queue, or the
        share of this address, is full.
        """
        if name is None or not self._users:
            return self.anonymous
        user = self._users.get(name)
        given = password or b""
        key = self.digest(name, given)
        if not self._is_recent(key):
            stored = (user or self._nobody).password
            if not await self._is_right(key, stored, given, address):
                return None
        return None if user is None else user.rights

    def digest(self, name: str, password: bytes) -> bytes:
        """Identifies credentials without storing them."""
        encoded = name.encode("utf-8", "surrogatepass")
        size = len(encoded).to_bytes(4, "big")
        return hashlib.blake2b(size + encoded + password, key=self._key).digest()

    async def close(self) -> None:
        """Abandon queued verifications; running ones end by themselves."""
        self._queue.close()

    async def _is_right(self, key: bytes, stored: str, password: bytes, address: str) -> bool:
        result = self._queue.find(key)
        if result is None:
            work = partial(_matches, stored, password)
            result = self._queue.put(key, network_of(address), work)
            result.add_done_callback(partial(self._remember, key))
        # Other clients may wait for the same result when this one disconnects.
        return await asyncio.shield(result)

    def _remember(self, key: bytes, result: asyncio.Future[bool]) -> None:
        if result.cancelled() or result.exception() or not result.result():
            return
        self._recent[key] = self._clock() + self._limits.remembered_s
        self._recent.move_to_end(key)
        while len(self._recent) > self._limits.remembered:
            self._recent.popitem(last=False)

    def _is_recent(self, key: bytes) -> bool:
        until = self._recent.get(key)
        if until is not None and until <= self._clock():
            del self._recent[key]
            return False
        return until is not None


def _matches(stored: str, password: bytes) -> bool:
    try:
        return _HASHER.verify(stored, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def _nobody_like(users: Iterable[User]) -> User:
    """A user whose password cannot be known, as slow to verify as the slowest of `users`."""
    costs = [argon2.extract_parameters(user.password) for user in users]
    slowest = max(costs, key=lambda cost: cost.memory_cost * cost.time_cost, default=None)
    memory, passes, lanes, size = (
        (_HASHER.memory_cost, _HASHER.time_cost, _HASHER.parallelism, _HASHER.hash_len)
        if slowest is None
        else (slowest.memory_cost, slowest.time_cost, slowest.parallelism, slowest.hash_len)
    )
    salt, digest = (
        base64.b64encode(os.urandom(length)).decode().rstrip("=") for length in (16, size)
    )
    return User("", f"$argon2id$v=19$m={memory},t={passes},p={lanes}${salt}${digest}")


def _without_names(rights: Rights) -> Rights:
    """Rights without user placeholders: an anonymous client's name is not verified."""
    publish = tuple(pattern for pattern in rights.publish if "%u" not in pattern)
    subscribe = tuple(pattern for pattern in rights.subscribe if "%u" not in pattern)
    return replace(rights, publish=publish, subscribe=subscribe)


def _literal(pattern: str) -> str:
    """Escapes all special characters except `*`."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
