"""Schemas of replies about quality. Light: commands import it too."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from accord.core.quality.status import PropertyStatus

QUALITY: Final = "/api/v1/quality"
PROPERTIES: Final = "/api/v1/quality/properties"
TEXT: Final = "text/plain"


class PropertyList(Struct, frozen=True, kw_only=True):
    """All properties of information that are defined."""

    properties: tuple[PropertyStatus, ...]


class Defined(Struct, frozen=True, kw_only=True):
    """Those that were defined just now."""

    properties: tuple[str, ...]
