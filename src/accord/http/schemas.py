"""Paths and schemas of the HTTP API. Light: commands import it too.

The port through which the HTTP API sees a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct

from accord.core.monitoring.statistics import ClientStatus, Statistics
from accord.core.quality.status import PropertyStatus
from accord.runtime.policy_store import Version

NET: Final = "/api/v1/net"
CHANNELS: Final = "/api/v1/channels"


class Deleted(Struct, frozen=True, kw_only=True):
    """The channel that is defined no more; or only until the node is started again."""

    name: str
    comes_back: bool = False


POLICIES: Final = "/api/v1/policies"
JSON: Final = "application/json"
TOML: Final = "application/toml"


class Problem(Struct, frozen=True):
    """Why something was refused, and where in what was sent."""

    error: str
    place: str = ""


class Changed(Struct, frozen=True):
    """The version that is current now."""

    version: int


class History(Struct, frozen=True):
    """Versions that can be had back, newest first."""

    history: tuple[Version, ...]


QUALITY: Final = "/api/v1/quality"
PROPERTIES: Final = "/api/v1/quality/properties"
TEXT: Final = "text/plain"


class PropertyList(Struct, frozen=True, kw_only=True):
    """All properties of information that are defined."""

    properties: tuple[PropertyStatus, ...]


class Defined(Struct, frozen=True, kw_only=True):
    """Those that were defined just now."""

    properties: tuple[str, ...]


ADMISSION: Final = "/api/v1/admission"
NEED: Final = "/api/v1/admission/need"


class NodeView(Protocol):
    """A running node, seen from outside. Called on its event loop, so it may access anything."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def is_ready(self) -> bool:
        """Whether clients are served: stored state is recovered, and the node is not draining."""

    def statistics(self) -> Statistics: ...

    def clients(self) -> Iterable[ClientStatus]:
        """Sessions in a stable order; consumed lazily, only as many as needed."""


class NodeSummary(Struct, frozen=True, kw_only=True):
    """The node at a glance."""

    name: str
    version: str
    build: str  # with the native extension, or without where there was no C compiler
    is_ready: bool
    statistics: Statistics


class ClientPage(Struct, frozen=True, kw_only=True):
    """A page of sessions: `total` counts all of them."""

    total: int
    offset: int
    clients: tuple[ClientStatus, ...]
