"""By which ways the events of a subscription come: one from each node with publishers of them.

Events go the shortest way from there, and a subscription is asked for along the same, backwards.
A way that is known stays while its links work and it is not much longer than the shortest, so that
promises are not moved whenever a latency is measured anew.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from accord.core.overlay.k_shortest_paths import shortest_paths
from accord.core.overlay.link_state import LinkStateMap

DETOUR_FACTOR: Final = 1.5

Path = tuple[str, ...]


class SourcePath(NamedTuple):
    """From the subscriber's node to one with publishers, and what is advertised there."""

    path: Path
    rate: int  # in thousandths of a hertz


def path_from(map_: LinkStateMap, source: str, to: str, known: Path | None) -> Path | None:
    """The path by which events come from `source`, read from its end; None if there is none."""
    shortest = shortest_paths(map_, source, to, 1)
    if not shortest:
        return None
    if known is not None:
        delay_us = map_.delay_us(known[::-1])
        if delay_us is not None and delay_us <= shortest[0].delay_us * DETOUR_FACTOR:
            return known
    return shortest[0].nodes[::-1]
