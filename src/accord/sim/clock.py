"""Virtual clock and seeded randomness of a simulation.

The clock is a queue of actions ordered by due time, then by order of scheduling. Time jumps from
one action to the next, so idle hours cost nothing. An entry is a function with its argument, not a
closure: a long run creates millions of them.

Each use of randomness has a stream of its own, derived from one seed, named after its purpose. So
an extra message on one link changes nothing on the others, and two variants of a scenario meet the
same faults and loads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from accord.sim.trace import SimulationError

Action = Callable[[int, Any], None]


class Clock:
    """Microseconds since the start of the simulation."""

    __slots__ = ("_entries", "_order", "happened", "is_stopped", "most", "now_us")

    def __init__(self, most: int = 1 << 60) -> None:
        self.now_us = 0
        self.happened = 0
        self.most = most  # actions after which a run is aborted
        self.is_stopped = False
        self._entries: list[tuple[int, int, Action, Any]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._entries)

    def at(self, at_us: int, action: Action, argument: Any = None) -> None:
        """Schedule `action(now_us, argument)` at `at_us`, or now if that has passed."""
        self._order += 1
        due_us = self.now_us if at_us < self.now_us else at_us  # faster than max()
        heappush(self._entries, (due_us, self._order, action, argument))

    def next_us(self) -> int | None:
        return self._entries[0][0] if self._entries else None

    def stop(self) -> None:
        """End the run after the current action."""
        self.is_stopped = True

    def run(self, until_us: int) -> None:
        """Run everything that is due until then."""
        entries = self._entries
        happened = self.happened
        try:
            while entries and entries[0][0] <= until_us and not self.is_stopped:
                now_us, _, action, argument = heappop(entries)
                self.now_us = now_us
                happened += 1
                action(now_us, argument)
                if happened > self.most:
                    raise SimulationError(
                        f"more than {self.most} happenings by {now_us} µs of virtual time"
                    )
        finally:
            self.happened = happened
        if not self.is_stopped:
            self.now_us = max(self.now_us, until_us)


def derive(seed: int, *names: object) -> int:
    """The seed of the stream named by `names`, the same in every process."""
    text = "\0".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def stream(seed: int, *names: object) -> Random:
    return Random(derive(seed, *names))  # noqa: S311 (to be replayed, not to be secret)
