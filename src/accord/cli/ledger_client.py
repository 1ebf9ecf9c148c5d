"""HTTP client for a node's ledger, top lists and reports."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from accord.cli.http_client import NodeHttpClient
from accord.core.model.errors import AccordError
from accord.core.monitoring.top import Top
from accord.core.queries.report import Report
from accord.http.event_schemas import REPORT
from accord.http.ledger_schemas import EVENTS, LEDGER, TOP, DeliveryOutcomes, EventOutcomes
from accord.http.schemas import Problem

PATIENCE_S: Final = 30.0  # a search of the whole journal takes a while
REPORT_PATIENCE_S: Final = 120.0  # so does starting a pipeline

_ADVICE: Final = {
    401: "give --user and ACCORD_PASSWORD",
    403: "ask for the right to statistics",
    404: "check --url; a node without a ledger is too old for this command",
}

T = TypeVar("T", bound=msgspec.Struct)


class LedgerUnavailableError(AccordError):
    """A node understood a request and can't serve it."""


class LedgerClient:
    """One request per call; LedgerUnavailableError, or UnreachableError if no node replies."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        self._node = NodeHttpClient(url, user, authority)

    def event(self, event: str) -> EventOutcomes:
        return self._get(f"{EVENTS}/{quote(event, safe='')}", EventOutcomes)

    def recent(self, limit: int, **wanted: str | None) -> DeliveryOutcomes:
        given = {name: value for name, value in wanted.items() if value is not None}
        return self._get(f"{LEDGER}?{urlencode({**given, 'limit': limit})}", DeliveryOutcomes)

    def top(self, limit: int) -> Top:
        return self._get(f"{TOP}?limit={limit}", Top)

    def report(self, **wanted: str | None) -> Report:
        given = {name: value for name, value in wanted.items() if value is not None}
        return self._get(f"{REPORT}?{urlencode(given)}", Report, REPORT_PATIENCE_S)

    def _get(self, path: str, type_: type[T], timeout_s: float = PATIENCE_S) -> T:
        answer = self._node.request(path, timeout_s=timeout_s)
        try:
            if answer.code == 200:
                return msgspec.json.decode(answer.body, type=type_)
            problem = msgspec.json.decode(answer.body, type=Problem)
        except msgspec.DecodeError as error:
            if answer.code != 200:
                raise self._node.status_error(answer, _ADVICE) from None
            raise self._node.decode_error(error) from None
        raise LedgerUnavailableError(
            f"{problem.place}: {problem.error}" if problem.place else problem.error
        )
