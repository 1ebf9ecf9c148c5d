"""Importance: how much something matters to the mission, as a number that only policies grant."""

from __future__ import annotations

from typing import Final

IMPORTANCES: Final = 8  # from 0, the least, to 7
DEFAULT_IMPORTANCE: Final = 3
