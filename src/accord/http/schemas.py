"""Paths and schemas of the HTTP API. Light: commands import it too."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

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
