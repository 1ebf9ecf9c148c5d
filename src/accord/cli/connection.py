"""Connection options and set-up shared by all commands that are clients."""

# Imports stand in the functions: help and completion must not wait for a client.
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import typer

from accord.core.model.errors import AccordError, InputError, file_problem

if TYPE_CHECKING:
    import ssl

    from accord.client.address import Address
    from accord.client.session import Session

DEFAULT_URL: Final = "mqtt://127.0.0.1:1883"
DEFAULT_HTTP_URL: Final = "http://127.0.0.1:8080"
PANEL: Final = "Connection"
CHECK: Final = "check --url"
AUTHORITY: Final = "--ca FILE"
PASSWORD: Final = "ACCORD_PASSWORD"  # noqa: S105 - the name of a variable

Notify = Callable[[str], None]
T = TypeVar("T")


class UnreachableError(AccordError):
    """No node replies: gives address, reason and remedy."""


@dataclass(frozen=True, slots=True)
class ConnectionTarget:
    """A node to connect to, and the credentials."""

    url: str
    address: Address
    username: str | None
    password: str | None
    tls: ssl.SSLContext | None
    client: str | None = None


def read_target(
    url: str, user: str | None, authority: Path | None, client: str | None = None
) -> ConnectionTarget:
    from accord.client.address import parse_address

    try:
        address = parse_address(url)
    except ValueError as error:
        raise InputError("--url", str(error)) from None
    username, password = read_credentials(user, address.username, address.password)
    return ConnectionTarget(url, address, username, password, read_authority(authority), client)


def read_credentials(
    user: str | None, url_user: str | None, url_password: str | None
) -> tuple[str | None, str | None]:
    """Name and password from an option, a URL and the environment."""
    name = user or url_user
    if name is None:
        return None, None
    password = url_password if name == url_user else None
    if password is None:
        password = os.environ.get(PASSWORD)
    if password is None and sys.stdin.isatty() and "_ACCORD_COMPLETE" not in os.environ:
        password = typer.prompt(f"Password of {name}", hide_input=True, err=True)
    return name, password


def read_authority(authority: Path | None) -> ssl.SSLContext | None:
    if authority is None:
        return None
    import ssl

    try:
        return ssl.create_default_context(cafile=authority)
    except ssl.SSLError:
        raise InputError(str(authority), "expected certificates in PEM form") from None
    except OSError as error:
        raise InputError(str(authority), file_problem(error)) from None


def run_client(work: Coroutine[None, None, T]) -> T:
    """Run a command's client; KeyboardInterrupt after a signal, once it has disconnected."""

    async def run() -> T:
        task = asyncio.create_task(work)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@asynccontextmanager
async def open_session(target: ConnectionTarget, notify: Notify) -> AsyncIterator[Session]:
    """Open a session; `notify` is called when the connection breaks and when it is restored.

    The session expires with its connection: a command never resumes it.
    """
    from accord.client.errors import ConnectionFailedError, RefusedError
    from accord.client.session import connect
    from accord.core.mqtt.codes import Reason

    connecting = connect(
        target.url,
        client_id=target.client or "",
        username=target.username,
        password=target.password,
        session_expiry_s=0,
        tls=target.tls,
    )
    async with AsyncExitStack() as stack:
        try:
            session = await stack.enter_async_context(connecting)
        except ConnectionFailedError as error:
            raise _unreachable(error, target.address) from None
        except RefusedError as error:
            if error.reason not in (Reason.BAD_USER_NAME_OR_PASSWORD, Reason.NOT_AUTHORIZED):
                raise
            raise UnreachableError(f"{error}; check --user and {PASSWORD}") from None
        session.on_connection(
            lambda is_up: notify(
                "the server is back" if is_up else "the connection broke, trying to get it back …"
            )
        )
        yield session


def _unreachable(error: Exception, address: Address) -> UnreachableError:
    cause = error.__cause__
    if not isinstance(cause, OSError):
        return UnreachableError(str(error))
    return unreachable(cause, address.url, address.host)


def unreachable(error: Exception, place: str, host: str) -> UnreachableError:
    """The error for an unreachable node, in terms of the command's options."""
    from accord.client.errors import error_number, explain

    if error_number(error) != errno.ECONNREFUSED:
        return UnreachableError(explain(place, error, authority=AUTHORITY))
    is_here = host in ("127.0.0.1", "::1", "localhost")
    advice = "start a node with `accord up`, or name another with --url" if is_here else CHECK
    return UnreachableError(f"no node answers at {place} (connection refused); {advice}")
