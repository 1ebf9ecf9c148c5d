"""What a channel needs of its routes."""

from __future__ import annotations

import msgspec


class Requirement(msgspec.Struct, frozen=True):
    """What a channel needs of its routes; 0 and 1 path mean: whatever is shortest.

    With `resiliency` above 0 as many paths as that takes, at most `paths`; else just `paths`.
    """

    max_delay_us: int = 0
    paths: int = 1
    resiliency: float = 0.0
    depth: int = 16
