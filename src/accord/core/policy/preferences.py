"""Preferences for an event that cannot have everything: deadline, shaping, replacement.

Each preference is either set or left to other policies (None). `shaping` "none" and a deadline of 0
are set: later policies in the order cannot override them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

NO_SHAPING: Final = "none"
NO_DEADLINE: Final = 0


class Preferences(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`shaping` is a shaper's name, with its argument after a colon; the targets belong to it."""

    shaping: str | None = None
    max_bytes: int | None = None
    max_pixels: int | None = None
    deadline_ms: int | None = None
    replacement: bool | None = None

    @property
    def is_empty(self) -> bool:
        return self == NO_PREFERENCES


NO_PREFERENCES: Final = Preferences()

PRESETS: Final[Mapping[str, Preferences]] = MappingProxyType(
    {
        "Default": Preferences(shaping=NO_SHAPING, deadline_ms=NO_DEADLINE),
        "NoDrop": Preferences(deadline_ms=NO_DEADLINE),
        "FullImageDrop": Preferences(shaping=NO_SHAPING, deadline_ms=5_000),
        "GeneralSurv": Preferences(shaping="scaling", deadline_ms=5_000),
        "FullImageNoDrop": Preferences(shaping=NO_SHAPING, deadline_ms=NO_DEADLINE),
        "FullImage": Preferences(shaping=NO_SHAPING),
        "BFTrack": Preferences(deadline_ms=15_000),
    }
)
