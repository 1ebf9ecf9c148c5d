"""Where a node is on earth."""

from __future__ import annotations

from math import isfinite
from typing import Final

Location = tuple[float, float]
"""Latitude and longitude in degrees, north and east positive."""

LOCATION_EXPECTED: Final = (
    "latitude (-90 to 90) and longitude (-180 to 180) in degrees, such as [47.61, -122.33]"
)


def is_location(latitude: float, longitude: float) -> bool:
    return isfinite(latitude) and abs(latitude) <= 90 and abs(longitude) <= 180
