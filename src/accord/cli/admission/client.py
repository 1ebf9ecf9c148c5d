"""HTTP client for a node's admission control."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from accord.cli.http_client import NodeHttpClient
from accord.core.admission.status import AdmissionStatus, DemandStatus
from accord.http.schemas import ADMISSION, NEED

_TIMEOUT_S: Final = 15.0  # the node may have to ask others
_ADVICE: Final = {
    401: "give --user and ACCORD_PASSWORD",
    403: "ask for the right to statistics (may in accord.toml)",
    404: "check --url; a node without admission is too old for this command",
}


class AdmissionClient:
    """One request per call. Raises NodeRejectedError, or UnreachableError if no node replies."""

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        self._node = NodeHttpClient(url, user, authority)

    def status(self) -> AdmissionStatus:
        return self._node.read(self._node.request(ADMISSION), AdmissionStatus, _ADVICE)

    def demand(self, channel: str, where: str, client: str) -> DemandStatus:
        asked = urlencode({"channel": channel, "where": where, "client": client})
        answer = self._node.request(f"{NEED}?{asked}", timeout_s=_TIMEOUT_S)
        return self._node.read(answer, DemandStatus, _ADVICE)
