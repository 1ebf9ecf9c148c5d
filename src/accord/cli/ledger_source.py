"""A node's ledger and its busiest parts over HTTP, as commands ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from accord.api.outcomes import EVENTS, LEDGER, TOP, EventOutcomes, Outcomes
from accord.api.policy_answers import Problem
from accord.cli.node_http import NodeHttp
from accord.core.errors import AccordError
from accord.core.monitoring.top import Top

PATIENCE_S: Final = 30.0  # a search of the whole journal takes a while

_ADVICE: Final = {
    401: "give --user and ACCORD_PASSWORD",
    403: "ask for the right to statistics",
    404: "check --url; a node without a ledger is too old for this command",
}

T = TypeVar("T", bound=msgspec.Struct)


class NotAnsweredError(AccordError):
    """What a node says to a question that it understood and can't answer."""


class LedgerSource:
    """Each call is a request. Raises NotAnsweredError, or UnreachableError where no node is."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        self._node = NodeHttp(url, user, authority)

    def event(self, event: str) -> EventOutcomes:
        return self._get(f"{EVENTS}/{quote(event, safe='')}", EventOutcomes)

    def recent(self, limit: int, **wanted: str | None) -> Outcomes:
        given = {name: value for name, value in wanted.items() if value is not None}
        return self._get(f"{LEDGER}?{urlencode({**given, 'limit': limit})}", Outcomes)

    def top(self, limit: int) -> Top:
        return self._get(f"{TOP}?limit={limit}", Top)

    def _get(self, path: str, type_: type[T]) -> T:
        answer = self._node.ask(path, patience_s=PATIENCE_S)
        try:
            if answer.code == 200:
                return msgspec.json.decode(answer.body, type=type_)
            problem = msgspec.json.decode(answer.body, type=Problem)
        except msgspec.DecodeError as error:
            if answer.code != 200:
                raise self._node.complaint(answer, _ADVICE) from None
            raise self._node.strange(error) from None
        raise NotAnsweredError(problem.error)
