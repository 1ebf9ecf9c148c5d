"""Name conflicts: state records under this node's name that it did not write.

A node whose clock went back across a restart finds records of its earlier incarnation that are
newer; it raises its incarnation beyond theirs once, which resolves the conflict. If that recurs,
another node has the same name, and the two replace each other's records everywhere. An operator has
to rename one; until then the incarnation is raised with exponential backoff, so that it costs
little.
"""

from __future__ import annotations

from typing import Final

from accord.core.overlay.state_messages import MAX_STAMP, NOTHING, OriginVersion

_FIRST_WAIT_US: Final = 1_000_000
_MAX_DOUBLINGS: Final = 6


class NameConflicts:
    """Detects conflicts and computes the incarnations that override them."""

    def __init__(self, name: str) -> None:
        self.jumps = 0
        self.problem = ""  # description for operators
        self._name = name
        self._conflicting = NOTHING
        self._neighbour = ""
        self._due_us = 0  # earliest time of the next jump

    def on_conflict(self, stamp: OriginVersion, neighbour: str) -> None:
        """`neighbour` has records under this node's name, newer than its own."""
        if stamp > self._conflicting and stamp[0] < MAX_STAMP:
            self._conflicting = stamp
            self._neighbour = neighbour

    def next_version(self, own: OriginVersion, now_us: int) -> OriginVersion | None:
        """The version to continue with, if a jump is needed and due."""
        if self._conflicting <= own or now_us < self._due_us:
            return None
        self._due_us = now_us + (_FIRST_WAIT_US << min(self.jumps, _MAX_DOUBLINGS))
        self.jumps += 1
        self.problem = (
            f"state records of {self._name!r} came through {self._neighbour!r}"
            f" that this node did not write ({self.jumps} times):"
            + (
                " another node has the same name, one of them must be renamed"
                if self.jumps > 1
                else " from before a restart with the clock set back, or another node has the name"
            )
        )
        return self._conflicting[0] + 1, own[1]

    def next_due_us(self, own: OriginVersion) -> int | None:
        return self._due_us if self._conflicting > own else None
