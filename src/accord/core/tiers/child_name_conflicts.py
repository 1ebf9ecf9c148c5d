"""Detection of secondary nodes with the same name, from the state records of their parents.

A parent announces the incarnation of each child (`feedback_router`). A child with two parents is
announced twice with the same incarnation. Incarnations that differ for long mean two nodes; for a
moment they may be two incarnations of one node, if a parent has not noticed the restart. Events of
both are kept apart, so none are lost, but operators cannot distinguish the nodes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.model.errors import decode_or_none
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.state_store import StateStore
from accord.core.tiers.feedback_router import CHILD

SURE_US: Final = 20_000_000  # longer than a silent link is kept
_LOOK_US: Final = 1_000_000

_decoder: Final = msgspec.msgpack.Decoder(int)


class ChildNameConflicts:
    """The conflicts of one parent; `problems` has messages for operators by child."""

    def __init__(self, store: StateStore, map_: LinkStateMap) -> None:
        self.problems: dict[str, str] = {}
        self._store = store
        self._map = map_
        self._since_us: dict[str, int] = {}  # by child with a suspected conflict
        self._look_us = 0

    def update(self, children: dict[str, int], now_us: int) -> list[str]:
        """Check linked children, given with their incarnations; return new problems."""
        if now_us < self._look_us:
            return []
        self._look_us = now_us + _LOOK_US
        return self._look(children, now_us)

    def is_taken(self, name: str) -> bool:
        """Whether another node announces a child with that name."""
        return any(key == name for _, key, _ in self._others())

    def _look(self, children: dict[str, int], now_us: int) -> list[str]:
        found: dict[str, str] = {}
        for origin, child, value in self._others():
            own = children.get(child)
            if own is not None and own != decode_or_none(_decoder, value):
                found[child] = (
                    f"another secondary node {child!r} is linked with {origin!r}: one of the two "
                    "must be renamed"
                )
        reachable = self._map.distances(self._store.name).costs
        for child in children:
            if child in reachable:
                found[child] = (
                    f"a backbone node is called {child!r} as a secondary one that is linked here: "
                    "one of the two must be renamed"
                )
        self._since_us = {child: self._since_us.get(child, now_us) for child in found}
        before = self.problems
        self.problems = {
            child: problem
            for child, problem in found.items()
            if self._since_us[child] + SURE_US <= now_us
        }
        return [problem for child, problem in self.problems.items() if child not in before]

    def _others(self) -> list[tuple[str, str, bytes]]:
        """Child records of reachable nodes."""
        reachable = self._map.distances(self._store.name).costs
        return [
            each
            for each in self._store.all(CHILD)
            if each[0] != self._store.name and each[0] in reachable
        ]
