"""A node's view of all others, and its channels, over HTTP, as commands ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from accord.api.net_answers import CHANNELS, NET, Channel, ChannelList, Deleted, WantedChannel
from accord.api.policy_answers import JSON, Problem
from accord.cli.node_http import Answer, NodeHttp
from accord.core.errors import AccordError
from accord.core.overlay.status import NetStatus

_ADVICE: Final = {
    401: "give --user and ACCORD_PASSWORD",
    403: "ask for the right to statistics, and to policies for changes (may in accord.toml)",
    404: "check --url; a node without channels is too old for this command",
}

T = TypeVar("T", bound=msgspec.Struct)


class NetRefusedError(AccordError):
    """What a node says to something that it understood and does not do."""


class NetNode:
    """Each call is a request. Raises NetRefusedError, or UnreachableError where no node is."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        self._node = NodeHttp(url, user, authority)

    def status(self) -> NetStatus:
        return self._read(self._node.ask(NET), NetStatus)

    def channels(self) -> tuple[Channel, ...]:
        return self._read(self._node.ask(CHANNELS), ChannelList).channels

    def define(self, name: str, wanted: WantedChannel, *, replaces: bool) -> Channel:
        headers = {"Content-Type": JSON}
        if not replaces:
            headers["If-None-Match"] = "*"
        body = msgspec.json.encode(wanted)
        answer = self._node.ask(_path(name), method="PUT", body=body, headers=headers)
        return self._read(answer, Channel)

    def delete(self, name: str) -> None:
        self._read(self._node.ask(_path(name), method="DELETE"), Deleted)

    def _read(self, answer: Answer, type_: type[T]) -> T:
        try:
            if answer.code == 200:
                return msgspec.json.decode(answer.body, type=type_)
            problem = msgspec.json.decode(answer.body, type=Problem)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if answer.code != 200:
                raise self._node.complaint(answer, _ADVICE) from None
            raise self._node.strange(error) from None
        raise NetRefusedError(": ".join(filter(None, (problem.place, problem.error))))


def _path(name: str) -> str:
    return f"{CHANNELS}/{quote(name, safe='')}"
