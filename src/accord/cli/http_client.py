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
from accord.client.errors import wrong_protocol
from accord.core.model.errors import AccordError
from accord.http.schemas import Problem

TIMEOUT_S: Final = 5.0
MAX_REPLY: Final = 16_000_000

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
        self.url = f"{parts.scheme}://{host}:{self._port}{self._base}"
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

    def request(
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> HttpReply:
        """Send a request and return any reply; UnreachableError if there is none."""
        timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        connection: HTTPConnection
        if self._tls is None:
            connection = HTTPConnection(self.host, self._port, timeout=timeout_s)
        else:
            connection = HTTPSConnection(
                self.host, self._port, timeout=timeout_s, context=self._tls
            )
        try:
            connection.request(
                method, self._base + path, body, headers={**self._headers, **(headers or {})}
            )
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return HttpReply(answer.status, answer.read(MAX_REPLY), fields)
        except (OSError, HTTPException) as error:
            is_other = isinstance(error, HTTPException | ConnectionResetError)
            if is_other and self._tls is None:
                raise UnreachableError(wrong_protocol(self.url, "HTTP")) from None
            raise unreachable(error, self.url, self.host) from None
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
                raise self.status_error(answer, advice) from None
            raise self.decode_error(error) from None
        raise NodeRejectedError(": ".join(filter(None, (problem.place, problem.error))))

    def status_error(self, answer: HttpReply, advice: Mapping[int, str]) -> UnreachableError:
        """The error for a reply that is not a node's; `advice` by status code."""
        words = answer.body[:200].decode(errors="replace").strip()
        problem = f"{self.url} answers {answer.code}" + (f" ({words})" if words else "")
        return UnreachableError(f"{problem}; {advice.get(answer.code, CHECK)}")

    def decode_error(self, error: Exception) -> UnreachableError:
        """The error for a reply that can't be decoded."""
        return UnreachableError(f"{self.url} does not answer like a node: {error}; {CHECK}")
