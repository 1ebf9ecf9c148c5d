"""What a node says about itself over HTTP, and rates from two such answers."""

from __future__ import annotations

import base64
import socket
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from accord.api.view import Status
from accord.cli.connection import (
    CHECK,
    UnreachableError,
    read_authority,
    read_credentials,
    refused,
)
from accord.cli.errors import InputError
from accord.core.monitoring.statistics import Statistics

PATH: Final = "/api/v1/status"
PATIENCE_S: Final = 5.0
MAX_ANSWER: Final = 16_000_000

_PORTS: Final = {"http": 80, "https": 443}
_ADVICE: Final = {401: "give --user and ACCORD_PASSWORD", 403: "ask for the right to statistics"}


class StatusSource:
    """A node's status, to be asked for again and again."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InputError("--url", f"expected http://HOST:PORT: {error}") from None
        if parts.scheme not in _PORTS or not parts.hostname:
            shown = url.rpartition("@")[2][:80]
            raise InputError("--url", f"expected http:// or https:// and a host, got {shown!r}")
        self.host = parts.hostname
        self._port = _PORTS[parts.scheme] if port is None else port
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.place = f"{parts.scheme}://{host}:{self._port}{parts.path.rstrip('/')}"
        self._path = parts.path.rstrip("/") + PATH
        self._tls = None
        if parts.scheme == "https":
            self._tls = read_authority(authority) or ssl.create_default_context()
        name, password = read_credentials(
            user,
            None if parts.username is None else unquote(parts.username),
            None if parts.password is None else unquote(parts.password),
        )
        self._headers = {"Accept": "application/json"}
        if name is not None:
            pair = base64.b64encode(f"{name}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"

    def fetch(self) -> Status:
        """Raises UnreachableError where there is no answer, or not that of a node."""
        try:
            code, body = self._get()
        except ConnectionRefusedError:
            raise refused(self.place, self.host) from None
        except (OSError, HTTPException) as error:
            raise UnreachableError(
                f"no node answers at {self.place} ({_why(error)}); {CHECK}"
            ) from None
        if code != 200:
            words = body[:200].decode(errors="replace").strip()
            problem = f"{self.place} answers {code}" + (f" ({words})" if words else "")
            raise UnreachableError(f"{problem}; {_ADVICE.get(code, CHECK)}")
        try:
            return msgspec.json.decode(body, type=Status)
        except msgspec.DecodeError as error:
            problem = f"{self.place} does not answer like a node: {error}"
            raise UnreachableError(f"{problem}; {CHECK}") from None

    def _get(self) -> tuple[int, bytes]:
        connection: HTTPConnection
        if self._tls is None:
            connection = HTTPConnection(self.host, self._port, timeout=PATIENCE_S)
        else:
            connection = HTTPSConnection(
                self.host, self._port, timeout=PATIENCE_S, context=self._tls
            )
        try:
            connection.request("GET", self._path, headers=self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read(MAX_ANSWER)
        finally:
            connection.close()


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, HTTPException | ConnectionResetError):
        return "what answers does not speak HTTP"
    if isinstance(error, socket.gaierror):
        return "unknown host"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Per second, over the last `seconds`."""

    seconds: float
    received_events: float
    sent_events: float
    received_bytes: float
    sent_bytes: float
    shed_events: float

    @classmethod
    def between(cls, before: Statistics | None, after: Statistics) -> Rates:
        """Since the start, if there is no `before` or the node was started since."""
        if before is not None and after.uptime_ms <= before.uptime_ms:
            before = None
        seconds = max(after.uptime_ms - (before.uptime_ms if before else 0), 1) / 1000

        def rate(now: int, then: int) -> float:
            return round(max(now - then, 0) / seconds, 3)

        received, sent = after.received, after.sent
        return cls(
            seconds=seconds,
            received_events=rate(
                received.publishes.total, before.received.publishes.total if before else 0
            ),
            sent_events=rate(sent.publishes.total, before.sent.publishes.total if before else 0),
            received_bytes=rate(received.bytes, before.received.bytes if before else 0),
            sent_bytes=rate(sent.bytes, before.sent.bytes if before else 0),
            shed_events=rate(after.shed.total, before.shed.total if before else 0),
        )


def to_fields(status: Status, rates: Rates) -> dict[str, Any]:
    """What the API says, and rates."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return {**fields, "rates": msgspec.to_builtins(rates)}
