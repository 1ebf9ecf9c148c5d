"""Enhanced authentication: what a method such as SCRAM has to do."""

from __future__ import annotations

from accord.core.router.rights import Rights


class AuthExchange:
    """One authentication under way: subclass it for a method."""

    def step(self, data: bytes) -> AuthStep:
        """Answer what the client sent; ProtocolError where it is wrong."""
        raise NotImplementedError


class AuthStep:
    """The next move of an exchange; with `rights` the client is in."""

    def __init__(self, data: bytes, rights: Rights | None = None, user: str = "") -> None:
        self.data = data
        self.rights = rights
        self.user = user
