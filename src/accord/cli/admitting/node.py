"""Admission at a node, over HTTP, as commands ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec

from accord.api.admission_answers import ADMISSION, NEED
from accord.api.policy_answers import Problem
from accord.cli.node_http import Answer, NodeHttp
from accord.core.admission.status import AdmissionStatus, NeedStatus
from accord.core.errors import AccordError

_PATIENCE_S: Final = 15.0  # other nodes may be asked
_ADVICE: Final = {
    401: "give --user and ACCORD_PASSWORD",
    403: "ask for the right to statistics (may in accord.toml)",
    404: "check --url; a node without admission is too old for this command",
}

T = TypeVar("T", bound=msgspec.Struct)


class AskedBadlyError(AccordError):
    """What a node says to something that is no subscription."""


class AdmissionNode:
    """Each call is a request. Raises AskedBadlyError, or UnreachableError where no node is."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        self._node = NodeHttp(url, user, authority)

    def status(self) -> AdmissionStatus:
        return self._read(self._node.ask(ADMISSION), AdmissionStatus)

    def need(self, channel: str, where: str, client: str) -> NeedStatus:
        asked = urlencode({"channel": channel, "where": where, "client": client})
        answer = self._node.ask(f"{NEED}?{asked}", patience_s=_PATIENCE_S)
        return self._read(answer, NeedStatus)

    def _read(self, answer: Answer, type_: type[T]) -> T:
        try:
            if answer.code == 200:
                return msgspec.json.decode(answer.body, type=type_)
            problem = msgspec.json.decode(answer.body, type=Problem)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if answer.code != 200:
                raise self._node.complaint(answer, _ADVICE) from None
            raise self._node.strange(error) from None
        raise AskedBadlyError(": ".join(filter(None, (problem.place, problem.error))))
