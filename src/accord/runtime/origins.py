"""Origins of web pages that may use a node.

Browsers send the origin with each cross-site request: scheme, host and port of the page's site, or
`null` (some: `file://`) for a page without one.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from accord.runtime.addresses import SocketAddress

ANY: Final = "*"
_WITHOUT_SITE: Final = ("null", "file://")
_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_PORTS: Final = {"http": ":80", "https": ":443"}


def parse_origin(text: str) -> str | None:
    """The origin as browsers write it; None if invalid."""
    if text in (ANY, *_WITHOUT_SITE):
        return text
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        return None
    scheme, host, port = found.groups()
    return f"{scheme}://{host}{'' if port in (None, _PORTS.get(scheme)) else port}"


def is_named(origin: str, origins: tuple[str, ...]) -> bool:
    return ANY in origins or origin.lower() in origins


def is_of_this_machine(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        return False
    return host is not None and SocketAddress(host, 0).is_loopback
