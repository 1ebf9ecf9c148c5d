"""HTTP client for a node's API: one request at a time, with errors that suggest a remedy."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from accord.cli.connection import (
    CHECK,
    UnreachableError,
    read_authority,
    read_credentials,
    unreachable,
)
from accord.cli.errors import InputError
from accord.client.errors import not_spoken
from accord.core.model.errors import AccordError
from accord.http.schemas import Problem

PATIENCE_S: Final = 5.0
MAX_ANSWER: Final = 16_000_000

_PORTS: Final = {"http": 80, "https": 443}

T = TypeVar("T", bound=msgspec.Struct)


class NodeRejectedError(AccordError):
    """A node understood a request and refused it."""


class HttpReply(NamedTuple):
    code: int
    body: bytes
    headers: Mapping[str, str]  # names in lower case


class NodeHttpClient:
    """A node's HTTP address, and the credentials."""

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
        self._base = parts.path.rstrip("/")
        self.place = f"{parts.scheme}://{host}:{self._port}{self._base}"
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

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patience_s: float | None = None,
    ) -> HttpReply:
        """Send a request and return any reply; UnreachableError if there is none."""
        patience_s = PATIENCE_S if patience_s is None else patience_s
        connection: HTTPConnection
        if self._tls is None:
            connection = HTTPConnection(self.host, self._port, timeout=patience_s)
        else:
            connection = HTTPSConnection(
                self.host, self._port, timeout=patience_s, context=self._tls
            )
        try:
            connection.request(
                method, self._base + path, body, headers={**self._headers, **(headers or {})}
            )
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return HttpReply(answer.status, answer.read(MAX_ANSWER), fields)
        except (OSError, HTTPException) as error:
            is_other = isinstance(error, HTTPException | ConnectionResetError)
            if is_other and self._tls is None:
                raise UnreachableError(not_spoken(self.place, "HTTP")) from None
            raise unreachable(error, self.place, self.host) from None
        finally:
            connection.close()

    def read(self, answer: HttpReply, type_: type[T], advice: Mapping[int, str]) -> T:
        """Decode a reply; NodeRejectedError if the node refused. `advice` by status code."""
        try:
            if answer.code == 200:
                return msgspec.json.decode(answer.body, type=type_)
            problem = msgspec.json.decode(answer.body, type=Problem)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if answer.code != 200:
                raise self.complaint(answer, advice) from None
            raise self.strange(error) from None
        raise NodeRejectedError(": ".join(filter(None, (problem.place, problem.error))))

    def complaint(self, answer: HttpReply, advice: Mapping[int, str]) -> UnreachableError:
        """The error for a reply that is not a node's; `advice` by status code."""
        words = answer.body[:200].decode(errors="replace").strip()
        problem = f"{self.place} answers {answer.code}" + (f" ({words})" if words else "")
        return UnreachableError(f"{problem}; {advice.get(answer.code, CHECK)}")

    def strange(self, error: Exception) -> UnreachableError:
        """The error for a reply that can't be decoded."""
        return UnreachableError(f"{self.place} does not answer like a node: {error}; {CHECK}")
