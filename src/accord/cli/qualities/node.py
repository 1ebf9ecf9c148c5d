"""A node's negotiated quality over HTTP, as commands ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec

from accord.api.policy_answers import Problem
from accord.api.quality_answers import PROPERTIES, QUALITY, TEXT, Defined, PropertyList
from accord.cli.node_http import Answer, NodeHttp
from accord.core.errors import AccordError
from accord.edges.quality.status import PropertyStatus, QualityStatus

_ADVICE: Final = {
    401: "give --user and ACCORD_PASSWORD",
    403: "ask for the right to statistics, and to policies for definitions (may in accord.toml)",
    404: "check --url; a node without quality is too old for this command",
}

T = TypeVar("T", bound=msgspec.Struct)


class QualityNotTakenError(AccordError):
    """What a node says to something that it understood and does not do."""


class QualityNode:
    """Each call is a request. QualityNotTakenError, or UnreachableError where no node is."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        self._node = NodeHttp(url, user, authority)

    def status(self, channel: str) -> QualityStatus:
        answer = self._node.ask(f"{QUALITY}?{urlencode({'channel': channel})}")
        return self._read(answer, QualityStatus)

    def properties(self) -> tuple[PropertyStatus, ...]:
        return self._read(self._node.ask(PROPERTIES), PropertyList).properties

    def define(self, text: str) -> tuple[str, ...]:
        headers = {"Content-Type": TEXT}
        answer = self._node.ask(PROPERTIES, method="POST", body=text.encode(), headers=headers)
        return self._read(answer, Defined).properties

    def _read(self, answer: Answer, type_: type[T]) -> T:
        try:
            if answer.code == 200:
                return msgspec.json.decode(answer.body, type=type_)
            problem = msgspec.json.decode(answer.body, type=Problem)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if answer.code != 200:
                raise self._node.complaint(answer, _ADVICE) from None
            raise self._node.strange(error) from None
        raise QualityNotTakenError(": ".join(filter(None, (problem.place, problem.error))))
