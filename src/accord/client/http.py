"""HTTP client for a node's API: every operation as a call that blocks."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Mapping
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from accord.client.errors import ConnectionFailedError, explain, wrong_protocol
from accord.core.model.errors import AccordError
from accord.operations.http_form import http_form
from accord.operations.operation import JSON, Problem, Request, operation_of

TIMEOUT_S: Final = 5.0
CHANGE_S: Final = 60.0  # a change of many policies takes a while
MAX_REPLY: Final = 16_000_000

_PORTS: Final = {"http": 80, "https": 443}

T = TypeVar("T")
NamePassword = tuple[str | None, str | None]


class NodeRejectedError(AccordError):
    """A node understood a request and refused it; `status` is that of the problem details."""

    def __init__(self, sentence: str, status: int) -> None:
        self.status = status
        super().__init__(sentence)


class HttpReply(NamedTuple):
    code: int
    body: bytes
    headers: Mapping[str, str]  # names in lower case


class HttpClient:
    """A node's HTTP address; `credentials` may replace name and password of the URL.

    `failure`, `refusal` and `decode_error` make the errors.
    """

    def __init__(
        self,
        url: str,
        credentials: Callable[[str | None, str | None], NamePassword] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"expected http://HOST:PORT: {error}") from None
        if parts.scheme not in _PORTS or not parts.hostname:
            shown = url.rpartition("@")[2][:80]
            raise ValueError(f"expected http:// or https:// and a host, got {shown!r}")
        self.host = parts.hostname
        self._port = _PORTS[parts.scheme] if port is None else port
        host = f"[{self.host}]" if ":" in self.host else self.host
        self._base = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{host}:{self._port}{self._base}"
        self._tls = None
        if parts.scheme == "https":
            self._tls = tls or ssl.create_default_context()
        self._credentials = credentials
        self._given = parts

    @cached_property
    def _headers(self) -> dict[str, str]:
        """Made for the first request, so that nobody is asked for a password without need."""
        name, password = (
            None if each is None else unquote(each)
            for each in (self._given.username, self._given.password)
        )
        if self._credentials is not None:
            name, password = self._credentials(name, password)
        headers = {"Accept": JSON, "User-Agent": "accord"}
        if name is not None:
            pair = base64.b64encode(f"{name}:{password or ''}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        return headers

    def request(
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> HttpReply:
        """Send a request and return any reply; ConnectionFailedError if there is none."""
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
                raise self.failure(wrong_protocol(self.url, "HTTP"), None) from None
            raise self.failure(explain(self.url, error), error) from None
        finally:
            connection.close()

    def call(self, request: Request[T], timeout_s: float | None = None) -> T:
        """Perform an operation. NodeRejectedError if it is refused, ConnectionFailedError
        if there is no node."""
        operation = operation_of(type(request))
        form = http_form(request)
        if timeout_s is None and operation.changes:
            timeout_s = CHANGE_S
        reply = self.request(
            form.path,
            method=form.method,
            body=form.body,
            headers=form.headers,
            timeout_s=timeout_s,
        )
        if reply.code != 200:
            raise self.refusal(reply)
        try:
            if operation.entity in operation.answer.__struct_fields__:
                found = {
                    operation.entity: msgspec.json.decode(reply.body),
                    "version": int(reply.headers.get("etag", "").strip('"') or 0),
                }
                answer: T = msgspec.convert(found, operation.answer)
            else:
                answer = msgspec.json.decode(reply.body, type=operation.answer)
        except (msgspec.DecodeError, ValueError) as error:
            raise self.decode_error(error) from None
        return answer

    def failure(self, text: str, error: Exception | None) -> AccordError:  # noqa: ARG002
        """The error if no node answers as expected; `text` explains it."""
        return ConnectionFailedError(text)

    def refusal(self, reply: HttpReply) -> AccordError:
        """The error for a reply other than 200."""
        try:
            problem = msgspec.json.decode(reply.body, type=Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            words = reply.body[:200].decode(errors="replace").strip()
            text = f"{self.url} answers {reply.code}" + (f" ({words})" if words else "")
            return self.failure(text, None)
        return NodeRejectedError(problem.sentence, reply.code)

    def decode_error(self, error: Exception) -> AccordError:
        """The error for a reply that can't be decoded."""
        return self.failure(f"{self.url} does not answer like a node: {error}", None)
