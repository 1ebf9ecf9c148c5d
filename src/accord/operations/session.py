"""Sessions of people who use a node with a browser. HTTP only: MQTT clients have their connection.

These are no operations, because they read and set the cookie of the session, and are answered
without one. `ROUTES` lists them for the HTTP interface and for the documents.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from accord.core.router.rights import Rights

SESSION_PATH: Final = "/session"
MAX_PASSWORD: Final = 4_096


class SessionRights(Struct, frozen=True, kw_only=True):
    """What the user may do: filters of channels, as configured, and rights."""

    statistics: bool = False
    policies: bool = False
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()

    @classmethod
    def of(cls, rights: Rights) -> SessionRights:
        return cls(
            statistics=rights.statistics,
            policies=rights.policies,
            publish=rights.publish,
            subscribe=rights.subscribe,
        )


class SessionStatus(Struct, frozen=True, kw_only=True):
    """The asker's session: user, rights, and when it ends; without a login it has no rights."""

    user: str = ""
    needs_login: bool = False
    groups: tuple[str, ...] = ()
    rights: SessionRights = SessionRights()
    expires_ms: int | None = None
    node: str = ""
    version: str = ""


class Login(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Name and password of a user."""

    user: Annotated[str, Meta(max_length=65_535, examples=["ann"])]
    password: Annotated[str, Meta(max_length=MAX_PASSWORD)]


class ConnectToken(Struct, frozen=True, kw_only=True):
    """User name and password for one MQTT connection at `/mqtt`, empty if the node has no users.

    The client ID must begin with `client_prefix`.
    """

    username: str
    password: str
    client_prefix: str
    expires_ms: int


class SessionRoute(Struct, frozen=True, kw_only=True):
    """A route of sessions: its name is that of the method that answers it."""

    name: str
    method: str
    path: str
    description: str
    body: Any = None  # type of the body
    answer: Any
    takes: str
    is_open: bool = True  # to everybody


ROUTES: Final = (
    SessionRoute(
        name="get",
        method="GET",
        path=SESSION_PATH,
        description="Who asks, and what they may do. Answered without a login, too.",
        answer=SessionStatus,
        takes="nothing",
    ),
    SessionRoute(
        name="open",
        method="POST",
        path=SESSION_PATH,
        description="Log in: sets the cookie `accord_session`. Attempts are limited in rate, per "
        "address and per user: status 429 with `Retry-After`.",
        body=Login,
        answer=SessionStatus,
        takes="a user's password",
    ),
    SessionRoute(
        name="close",
        method="DELETE",
        path=SESSION_PATH,
        description="Log out: ends the session of the cookie.",
        answer=SessionStatus,
        takes="nothing",
    ),
    SessionRoute(
        name="issue_token",
        method="POST",
        path=f"{SESSION_PATH}/token",
        description="A token for one MQTT connection of the same user over WebSocket at `/mqtt`, "
        "within 60 s.",
        answer=ConnectToken,
        takes="a login, where the node has users",
        is_open=False,
    ),
)
