"""HTTP client for a node's view of the network, and its channels."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from accord.cli.http_client import NodeHttpClient
from accord.core.overlay.channel_directory import Channel, ChannelList, ChannelRequest
from accord.core.overlay.status import NetStatus
from accord.http.schemas import CHANNELS, JSON, NET, Deleted

_ADVICE: Final = {
    401: "give --user and ACCORD_PASSWORD",
    403: "ask for the right to statistics, and to policies for changes (may in accord.toml)",
    404: "check --url; a node without channels is too old for this command",
}


class NetClient:
    """One request per call. Raises NodeRejectedError, or UnreachableError if no node replies."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        self._node = NodeHttpClient(url, user, authority)

    def status(self) -> NetStatus:
        return self._node.read(self._node.request(NET), NetStatus, _ADVICE)

    def channels(self) -> tuple[Channel, ...]:
        return self._node.read(self._node.request(CHANNELS), ChannelList, _ADVICE).channels

    def define(self, name: str, wanted: ChannelRequest, *, replaces: bool) -> Channel:
        headers = {"Content-Type": JSON}
        if not replaces:
            headers["If-None-Match"] = "*"
        body = msgspec.json.encode(wanted)
        answer = self._node.request(_path(name), method="PUT", body=body, headers=headers)
        return self._node.read(answer, Channel, _ADVICE)

    def delete(self, name: str) -> Deleted:
        return self._node.read(self._node.request(_path(name), method="DELETE"), Deleted, _ADVICE)


def _path(name: str) -> str:
    return f"{CHANNELS}/{quote(name, safe='')}"
