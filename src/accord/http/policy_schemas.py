"""Schemas of requests and replies about policies. Light: commands import it too."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from accord.runtime.policy_store import Version

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
