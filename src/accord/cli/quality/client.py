"""HTTP client for a node's negotiated quality."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from accord.cli.http_client import NodeHttpClient
from accord.core.quality.status import PropertyStatus, QualityStatus
from accord.http.schemas import PROPERTIES, QUALITY, TEXT, Defined, PropertyList

_ADVICE: Final = {
    401: "give --user and ACCORD_PASSWORD",
    403: "ask for the right to statistics, and to policies for definitions (may in accord.toml)",
    404: "check --url; a node without quality is too old for this command",
}


class QualityClient:
    """One request per call. NodeRejectedError, or UnreachableError if no node replies."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        self._node = NodeHttpClient(url, user, authority)

    def status(self, channel: str) -> QualityStatus:
        answer = self._node.request(f"{QUALITY}?{urlencode({'channel': channel})}")
        return self._node.read(answer, QualityStatus, _ADVICE)

    def properties(self) -> tuple[PropertyStatus, ...]:
        return self._node.read(self._node.request(PROPERTIES), PropertyList, _ADVICE).properties

    def define(self, text: str) -> tuple[str, ...]:
        headers = {"Content-Type": TEXT}
        answer = self._node.request(PROPERTIES, method="POST", body=text.encode(), headers=headers)
        return self._node.read(answer, Defined, _ADVICE).properties
