"""Paths by which the events of a subscription arrive: one from each node with publishers of them.

Events take the shortest path from there, and reservations are requested along it in reverse. A
known path is kept while its links are up and it is not much longer than the shortest, so that
reservations do not move whenever a latency is measured.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from accord.core.overlay.k_shortest_paths import shortest_paths
from accord.core.overlay.link_state import LinkStateMap

DETOUR_FACTOR: Final = 1.5

Path = tuple[str, ...]


class SourcePath(NamedTuple):
    """A path from the subscriber's node to one with publishers, and the rate advertised there."""

    path: Path
    rate: int  # in thousandths of a hertz


def path_from(map_: LinkStateMap, source: str, to: str, known: Path | None) -> Path | None:
    """Return the path by which events of `source` arrive, in reverse; None if there is none."""
    shortest = shortest_paths(map_, source, to, 1)
    if not shortest:
        return None
    if known is not None:
        delay_us = map_.delay_us(known[::-1])
        if delay_us is not None and delay_us <= shortest[0].delay_us * DETOUR_FACTOR:
            return known
    return shortest[0].nodes[::-1]
