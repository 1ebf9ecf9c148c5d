"""Connection options and set-up shared by all commands that are clients."""

# Imports stand in the functions: help and completion must not wait for a client.
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from accord.cli.errors import InputError
from accord.core.model.errors import AccordError, file_problem

if TYPE_CHECKING:
    import ssl

    from accord.client.address import Address
    from accord.client.session import Session
    from accord.client.transport import Stream, Transport

DEFAULT_URL: Final = "mqtt://127.0.0.1:1883"
DEFAULT_HTTP_URL: Final = "http://127.0.0.1:8080"
PANEL: Final = "Connection"
CHECK: Final = "check --url"
AUTHORITY: Final = "--ca FILE"
PASSWORD: Final = "ACCORD_PASSWORD"  # noqa: S105 - the name of a variable

Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="ACCORD_URL",
        help="Address of the node: mqtt://HOST:PORT; or mqtts, ws, wss.",
        rich_help_panel=PANEL,
    ),
]
HttpUrl = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="ACCORD_HTTP_URL",
        help="HTTP address of the node.",
        rich_help_panel=PANEL,
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="NAME",
        envvar="ACCORD_USER",
        show_envvar=False,
        help=f"User name; the password comes from {PASSWORD} or a prompt.",
        rich_help_panel=PANEL,
    ),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="Certificates (PEM) of authorities to trust.",
        rich_help_panel=PANEL,
    ),
]

Notify = Callable[[str], None]
T = TypeVar("T")

Client = Annotated[
    str | None,
    typer.Option(
        "--client", metavar="NAME", help="Client identifier; default: chosen by the node."
    ),
]


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
    if password is None and sys.stdin.isatty():
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
    from accord.client.transport import transport_with
    from accord.core.mqtt.codes import Reason

    watch = _Watch(transport_with(target.tls), notify)
    connecting = connect(
        target.url,
        client_id=target.client or "",
        username=target.username,
        password=target.password,
        session_expiry_s=0,
        transport=watch.open,
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
        with watch.reporting():  # only here: refusals and disconnects are not failures
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


class _Watch:
    """A transport that reports when the connection breaks and when the server replies again."""

    def __init__(self, transport: Transport, tell: Notify) -> None:
        self._transport = transport
        self._notify = tell
        self._is_reporting = False
        self._is_up: bool | None = None  # None: never connected

    async def open(self, address: Address) -> Stream:
        self.on_broken()
        return _WatchedStream(await self._transport(address), self)

    def on_data(self) -> None:
        if self._is_up is False:
            self._report("the server is back")
        self._is_up = True

    def on_broken(self) -> None:
        if self._is_up:
            self._report("the connection broke, trying to get it back …")
            self._is_up = False

    @contextmanager
    def reporting(self) -> Iterator[None]:
        self._is_reporting = True
        try:
            yield
        finally:
            self._is_reporting = False

    def _report(self, text: str) -> None:
        if self._is_reporting:
            self._notify(text)


class _WatchedStream:
    def __init__(self, stream: Stream, watch: _Watch) -> None:
        self._stream = stream
        self._watch = watch

    async def read(self) -> bytes:
        try:
            data = await self._stream.read()
        except OSError:
            self._watch.on_broken()
            raise
        if data:
            self._watch.on_data()
        else:
            self._watch.on_broken()
        return data

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)

    async def close(self) -> None:
        await self._stream.close()
