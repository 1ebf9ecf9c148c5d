"""Facts that somebody else says in this node's name, and how to be heard in spite of them.

A node whose clock went back across a restart finds its former self ahead: one jump beyond it, and
all is well. If it happens again, another node has the same name, and the two push each other out of
the others' stores. That has to be put right by people; until then jumps become ever rarer, so that
it costs little.
"""

from __future__ import annotations

from typing import Final

from accord.core.overlay.state_messages import MAX_STAMP, NOTHING, OriginVersion

_FIRST_WAIT_US: Final = 1_000_000
_MAX_DOUBLINGS: Final = 6


class NameConflicts:
    def __init__(self, name: str) -> None:
        self.jumps = 0
        self.problem = ""  # what to tell people
        self._name = name
        self._claim = NOTHING
        self._neighbour = ""
        self._due_us = 0  # no jump before

    def claim(self, stamp: OriginVersion, neighbour: str) -> None:
        """By way of `neighbour` came facts in this node's name, newer than any it has said."""
        if stamp > self._claim and stamp[0] < MAX_STAMP:
            self._claim = stamp
            self._neighbour = neighbour

    def jump(self, own: OriginVersion, now_us: int) -> OriginVersion | None:
        """The stamp to go on with, if it is time for another."""
        if self._claim <= own or now_us < self._due_us:
            return None
        self._due_us = now_us + (_FIRST_WAIT_US << min(self.jumps, _MAX_DOUBLINGS))
        self.jumps += 1
        self.problem = (
            f"facts of {self._name!r} came through {self._neighbour!r}"
            f" that this node has not said ({self.jumps} times):"
            + (
                " another node has the same name, one of them must be renamed"
                if self.jumps > 1
                else " from before a restart with the clock set back, or from a namesake"
            )
        )
        return self._claim[0] + 1, own[1]

    def next_due_us(self, own: OriginVersion) -> int | None:
        return self._due_us if self._claim > own else None
