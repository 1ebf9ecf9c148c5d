"""The outbox: bounded queues in front of one destination, one per importance.

Nothing pushes to a destination. What is meant for it waits here, and whoever drives the connection
takes as much as it can carry, the most important first. A parcel is a run of whole events that were
published together: it is queued, counted, shed and sent as one.

Some parcels wait for the receiver's acknowledgement (`is_tracked`); only so many of those may be on
their way at a time, so they wait in a lane of their own and never hold up the others.

Full means: the least important gives way. Among equals an untracked newcomer pushes out the oldest
(fresh information is worth more), while a tracked newcomer is the one that is refused (what was
promised first is kept).
"""

from __future__ import annotations

from typing import Final

from accord.core.model.importance import IMPORTANCES

# A list with a moving head is faster than a deque when compiled, and an idle one costs nothing.
_COMPACT_AFTER: Final = 64


class Parcel:
    """Something for one or more destinations, with what scheduling needs to know of it."""

    __slots__ = ("count", "expires_ms", "importance", "queued_ms", "size")

    def __init__(
        self, size: int, count: int, importance: int, queued_ms: int, expires_ms: int
    ) -> None:
        self.size = size
        self.count = count
        self.importance = importance
        self.queued_ms = queued_ms
        self.expires_ms = expires_ms


class Run(Parcel):
    """Events published together to one channel, as frames ready to send."""

    __slots__ = ("frames",)

    def __init__(self, frames: bytes, count: int, importance: int, queued_ms: int) -> None:
        # Not by way of Parcel.__init__: a call is a good part of what a message may cost.
        self.size = len(frames)
        self.count = count
        self.importance = importance
        self.queued_ms = queued_ms
        self.expires_ms = 0
        self.frames = frames


class _Lane:
    """Parcels in order of arrival."""

    def __init__(self) -> None:
        self.items: list[Parcel] = []
        self.head = 0

    def pop_first(self) -> Parcel:
        parcel = self.items[self.head]
        self.head += 1
        self._compact()
        return parcel

    def move(self, bytes_wanted: int, most: int, taken: list[Parcel]) -> int:
        """Add the first parcels to `taken` until they have enough bytes; gives how many bytes."""
        got = 0
        head = self.head
        items = self.items
        end = min(len(items), head + most)
        while got < bytes_wanted and head < end:
            parcel = items[head]
            head += 1
            got += parcel.size
            taken.append(parcel)
        self.head = head
        self._compact()
        return got

    def pop_last(self) -> Parcel:
        parcel = self.items.pop()
        if self.head == len(self.items):
            self.items = []
            self.head = 0
        return parcel

    def is_empty(self) -> bool:
        return self.head == len(self.items)

    def _compact(self) -> None:
        if self.head == len(self.items):
            self.items = []
            self.head = 0
        elif self.head >= _COMPACT_AFTER and self.head * 2 >= len(self.items):
            del self.items[: self.head]
            self.head = 0


class Outbox:
    """What waits for one destination."""

    def __init__(self, *, bytes_limit: int, tracked_limit: int, tracked_bytes_limit: int) -> None:
        self.bytes_limit = bytes_limit
        self.tracked_limit = tracked_limit
        self.tracked_bytes_limit = tracked_bytes_limit
        self.bytes = 0
        self.tracked = 0
        self.tracked_bytes = 0
        self._untracked: list[_Lane | None] = []
        self._tracked: list[_Lane | None] = []

    def is_empty(self) -> bool:
        return self.bytes == 0 and self.tracked == 0

    def put(self, parcel: Parcel) -> list[Parcel] | None:
        """Queue `parcel`; gives what had to be shed for it, possibly the parcel itself."""
        if not self._untracked:
            self._untracked = [None] * IMPORTANCES
        lane = self._untracked[parcel.importance]
        if lane is None:
            lane = self._untracked[parcel.importance] = _Lane()
        lane.items.append(parcel)
        self.bytes += parcel.size
        if self.bytes <= self.bytes_limit:
            return None
        if parcel.size > self.bytes_limit:
            # Nobody gives way to what could not be queued anyway.
            self.bytes -= lane.pop_last().size
            return [parcel]
        return self._shed_untracked()

    def put_tracked(self, parcel: Parcel, *, is_promised: bool = False) -> list[Parcel] | None:
        """Queue `parcel` for acknowledged delivery; gives what was refused for it.

        What was promised before is queued whatever the limits.
        """
        if not self._tracked:
            self._tracked = [None] * IMPORTANCES
        lane = self._tracked[parcel.importance]
        if lane is None:
            lane = self._tracked[parcel.importance] = _Lane()
        lane.items.append(parcel)
        self.tracked += 1
        self.tracked_bytes += parcel.size
        if is_promised or (
            self.tracked <= self.tracked_limit and self.tracked_bytes <= self.tracked_bytes_limit
        ):
            return None
        return self._refuse_tracked(parcel)

    def take(self, bytes_wanted: int, window: int) -> list[Parcel]:
        """What to send next: at least `bytes_wanted` if there is so much, the important first.

        At most `window` tracked parcels are among it.
        """
        taken: list[Parcel] = []
        for importance in range(IMPORTANCES - 1, -1, -1):
            if self.tracked > 0:
                lane = self._tracked[importance]
                if lane is not None and not lane.is_empty():
                    before = len(taken)
                    got = lane.move(bytes_wanted, window, taken)
                    self.tracked -= len(taken) - before
                    self.tracked_bytes -= got
                    bytes_wanted -= got
                    window -= len(taken) - before
            if self.bytes > 0:
                lane = self._untracked[importance]
                if lane is not None and not lane.is_empty():
                    got = lane.move(bytes_wanted, len(lane.items), taken)
                    self.bytes -= got
                    bytes_wanted -= got
            if bytes_wanted <= 0:
                break
        return taken

    def depth(self) -> list[int]:
        """The number of events waiting, by importance."""
        depth = [0] * IMPORTANCES
        for lanes in (self._untracked, self._tracked):
            for importance, lane in enumerate(lanes):
                if lane is not None:
                    for position in range(lane.head, len(lane.items)):
                        depth[importance] += lane.items[position].count
        return depth

    def bytes_waiting(self) -> list[int]:
        """The bytes waiting, by importance."""
        waiting = [0] * IMPORTANCES
        for lanes in (self._untracked, self._tracked):
            for importance, lane in enumerate(lanes):
                if lane is not None:
                    for position in range(lane.head, len(lane.items)):
                        waiting[importance] += lane.items[position].size
        return waiting

    def drop_tracked(self) -> None:
        """Forget what waits for acknowledged delivery: its owner has it too."""
        self._tracked = []
        self.tracked = 0
        self.tracked_bytes = 0

    def drop_untracked(self) -> list[Parcel]:
        """Forget what nobody will ask for again."""
        dropped: list[Parcel] = []
        for lane in self._untracked:
            if lane is not None:
                dropped += lane.items[lane.head :]
        self._untracked = []
        self.bytes = 0
        return dropped

    def _refuse_tracked(self, newcomer: Parcel) -> list[Parcel]:
        """The newest of what is less important gives way, or if that is not enough the newcomer."""
        # Room for the newcomer will do: what was promised may be beyond the limits.
        count = min(self.tracked - self.tracked_limit, 1)
        size = min(self.tracked_bytes - self.tracked_bytes_limit, newcomer.size)
        refused: list[Parcel] = []
        for lane in self._tracked[: newcomer.importance]:
            position = 0 if lane is None else len(lane.items)
            while lane is not None and position > lane.head and (count > 0 or size > 0):
                position -= 1
                refused.append(lane.items[position])
                count -= 1
                size -= lane.items[position].size
        if count > 0 or size > 0:
            refused = [newcomer]
        for parcel in refused:
            lane = self._tracked[parcel.importance]
            assert lane is not None
            lane.pop_last()
            self.tracked -= 1
            self.tracked_bytes -= parcel.size
        return refused

    def _shed_untracked(self) -> list[Parcel]:
        shed: list[Parcel] = []
        for lane in self._untracked:
            while lane is not None and not lane.is_empty() and self.bytes > self.bytes_limit:
                parcel = lane.pop_first()
                self.bytes -= parcel.size
                shed.append(parcel)
        return shed
