"""HTTP client for a node's status, and rates from two samples of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from accord.cli.http_client import NodeHttpClient
from accord.core.monitoring.statistics import Statistics
from accord.http.schemas import NodeSummary

PATH: Final = "/api/v1/status"

_ADVICE: Final = {401: "give --user and ACCORD_PASSWORD", 403: "ask for the right to statistics"}


class StatusClient:
    """Polls a node's status."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        self._node = NodeHttpClient(url, user, authority)

    def fetch(self) -> NodeSummary:
        """Raise UnreachableError if there is no reply, or not that of a node."""
        answer = self._node.request(PATH)
        if answer.code != 200:
            raise self._node.status_error(answer, _ADVICE)
        try:
            return msgspec.json.decode(answer.body, type=NodeSummary)
        except msgspec.DecodeError as error:
            raise self._node.decode_error(error) from None


class ClientRates(msgspec.Struct, frozen=True, kw_only=True):
    """Per second, over the last `seconds`."""

    seconds: float
    received_events: float
    sent_events: float
    received_bytes: float
    sent_bytes: float
    shed_events: float

    @classmethod
    def between(cls, before: Statistics | None, after: Statistics) -> ClientRates:
        """Rates since `before`; since the start if there is none or the node was restarted."""
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


def to_fields(status: NodeSummary, rates: ClientRates) -> dict[str, Any]:
    """The API's fields, and rates."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return {**fields, "rates": msgspec.to_builtins(rates)}
