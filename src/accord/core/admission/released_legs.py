"""Legs of requests that were released, remembered so that late messages do not revive them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from accord.core.admission.messages import ReservationId

_REMEMBERED: Final = 50_000

Leg = tuple[ReservationId, int]


class ReleasedLegs:
    """Bounded set of the most recently released legs."""

    def __init__(self) -> None:
        self._legs: OrderedDict[Leg, None] = OrderedDict()

    def __contains__(self, leg: Leg) -> bool:
        return leg in self._legs

    def add(self, leg: Leg) -> None:
        self._legs[leg] = None
        self._legs.move_to_end(leg)
        if len(self._legs) > _REMEMBERED:
            self._legs.popitem(last=False)
