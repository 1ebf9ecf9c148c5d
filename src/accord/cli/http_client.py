"""The HTTP client of commands: errors that suggest a remedy in their options."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from accord.cli.connection import (
    CHECK,
    UnreachableError,
    read_authority,
    read_credentials,
    unreachable,
)
from accord.client.http import HttpClient, HttpReply, NodeRejectedError
from accord.core.model.errors import AccordError, InputError
from accord.operations.operation import Request

T = TypeVar("T")

_OTHER_S: Final = 20.0  # another node may be asked for so long

_ADVICE: Final = {
    401: "give --user and ACCORD_PASSWORD",
    403: "ask for the right to statistics, and to policies for changes (may in accord.toml)",
    404: "check --url; the node may be too old for this command",
}


class NodeHttpClient(HttpClient):
    """A node's HTTP address, and the credentials."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        tls = read_authority(authority) if url.startswith("https:") else None
        try:
            super().__init__(url, partial(read_credentials, user), tls)
        except ValueError as error:
            raise InputError("--url", str(error)) from None

    def failure(self, text: str, error: Exception | None) -> AccordError:
        if error is None:
            return UnreachableError(text)
        return unreachable(error, self.url, self.host)

    def refusal(self, reply: HttpReply) -> AccordError:
        found = super().refusal(reply)
        if isinstance(found, UnreachableError):
            return UnreachableError(f"{found}; {_ADVICE.get(reply.code, CHECK)}")
        return NodeRejectedError(f"{found}; {_ADVICE[401]}") if reply.code == 401 else found

    def decode_error(self, error: Exception) -> AccordError:
        return UnreachableError(f"{super().decode_error(error)}; {CHECK}")


class AnyNodeHttpClient(NodeHttpClient):
    """Asks `other`, another node of the network, through this one; this one if empty."""

    def __init__(self, url: str, user: str | None, authority: Path | None, other: str) -> None:
        super().__init__(url, user, authority)
        self._other = other

    def call(self, request: Request[T], timeout_s: float | None = None) -> T:
        if not self._other:
            return super().call(request, timeout_s)
        return super().call(replace(request, node=self._other), timeout_s or _OTHER_S)
