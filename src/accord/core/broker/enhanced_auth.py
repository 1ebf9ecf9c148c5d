"""Enhanced authentication: the interface of methods such as SCRAM."""

from __future__ import annotations

from accord.core.router.rights import Rights


class AuthExchange:
    """One authentication in progress; each method is a subclass."""

    def step(self, data: bytes) -> AuthStep:
        """Process the client's data; raises ProtocolError if it is wrong."""
        raise NotImplementedError


class AuthStep:
    """The next step of an exchange; with `rights` the client is authenticated."""

    def __init__(self, data: bytes, rights: Rights | None = None, user: str = "") -> None:
        self.data = data
        self.rights = rights
        self.user = user
