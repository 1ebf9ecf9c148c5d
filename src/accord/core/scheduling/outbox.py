"""The outbox: bounded priority queues in front of one destination.

The data path is pulled: entries for a destination wait here, and the driver of the connection takes
as much as it can carry, in the order of the node's strategy. A queue entry is a run of whole events
published together: it is queued, counted and shed as one. It is also sent as one, unless that
exceeds what is wanted: then it is split between two events, so that more important entries can be
sent in between.

Some entries require the receiver's acknowledgement (`tracked`). Only a window of those may be in
flight at a time, so they have a lane of their own and never hold up the others.

When the outbox is full, the least important entry is shed, and among equally important ones heavy
before light. Among equals an untracked newcomer evicts the oldest (fresh information is worth
more), while a tracked newcomer is itself refused (earlier promises are kept). Under laxity, among
untracked equals, entries without deadline are shed first, then the one due first. Under weighted
fair the bin with the most queued bytes for its weight sheds: otherwise the least important would
never get its share.

Several outboxes may hold the same entry. Only an entry in a single outbox may be resized.
"""

from __future__ import annotations

from accord.core.model.units import IMPORTANCES
from accord.core.scheduling.lanes import Bin, Lane
from accord.core.scheduling.pacing import Gate
from accord.core.scheduling.queue_entries import ANY_NUMBER, EventRun, QueueEntry, due_ms
from accord.core.scheduling.queues import Queues
from accord.core.scheduling.strategies import STRICT, WEIGHTED_FAIR, Discipline

__all__ = ["EventRun", "Outbox", "QueueEntry"]


class Outbox(Queues):
    """Queue entries for one destination."""

    __slots__ = (
        "bytes",
        "bytes_limit",
        "tracked",
        "tracked_bytes",
        "tracked_bytes_limit",
        "tracked_limit",
    )

    def __init__(
        self,
        *,
        bytes_limit: int,
        tracked_limit: int,
        tracked_bytes_limit: int,
        discipline: Discipline | None = None,
    ) -> None:
        super().__init__(discipline)
        self.bytes_limit = bytes_limit
        self.tracked_limit = tracked_limit
        self.tracked_bytes_limit = tracked_bytes_limit
        self.bytes = 0
        self.tracked = 0
        self.tracked_bytes = 0

    def is_empty(self) -> bool:
        return self.bytes == 0 and self.tracked == 0

    def put(self, entry: QueueEntry) -> list[QueueEntry] | None:
        """Queue an entry; returns what was shed for it, possibly the entry itself."""
        size = entry.size
        if size > self.bytes_limit:
            # Nothing is evicted for an entry that could not be queued anyway.
            return [entry]
        found = self._last
        if found is None or found.bin != entry.bin:
            found = self._bin(entry)
        if self._by_due:
            found.untracked.insert(entry)
        else:
            found.untracked.items.append(entry)
        found.bytes += size
        self.bytes += size
        if self.bytes <= self.bytes_limit:
            return None
        return self._shed_untracked()

    def put_tracked(
        self, entry: QueueEntry, *, is_promised: bool = False
    ) -> list[QueueEntry] | None:
        """Queue an entry for acknowledged delivery; returns what was refused for it.

        An entry promised before is queued regardless of the limits. Of a run, the first events may
        be queued and the others refused.
        """
        refused: list[QueueEntry] | None = None
        if not is_promised:
            # Making room for the newcomer suffices: promised entries may exceed the limits.
            count = min(self.tracked + entry.count - self.tracked_limit, entry.count)
            size = self.tracked_bytes + entry.size - self.tracked_bytes_limit
            if count > 0 or size > 0:
                refused = self._refuse_tracked(entry, count, min(size, entry.size))
                if refused[0] is entry:
                    return self._put_first(entry)
        found = self._last
        if found is None or found.bin != entry.bin:
            found = self._bin(entry)
        if self._by_due:
            found.tracked.insert(entry)
        else:
            found.tracked.items.append(entry)
        found.tracked_bytes += entry.size
        self.tracked += entry.count
        self.tracked_bytes += entry.size
        return refused

    def _put_first(self, entry: QueueEntry) -> list[QueueEntry]:
        """Queue as many events of a run as fit; returns the others."""
        room = self.tracked_limit - self.tracked
        room_bytes = self.tracked_bytes_limit - self.tracked_bytes
        if entry.count > 1 and room > 0 and isinstance(entry, EventRun):
            fitting = room_bytes * entry.count // entry.size  # assuming similar sizes
            parts = entry.split(entry.size, min(room, fitting)) if fitting > 0 else None
            if parts is not None and parts[0].size <= room_bytes:
                self.put_tracked(parts[0])
                return [parts[1]]
        return [entry]

    def take(self, bytes_wanted: int, window: int) -> list[QueueEntry]:
        """The next entries in the strategy's order, at least `bytes_wanted` if there are as many.

        The excess is at most one event; at most `window` of the events are tracked.
        """
        taken: list[QueueEntry] = []
        if self._version != self.discipline.version:
            self._adapt()
        only: Bin | None = None
        for each in self._bins:
            if not each.is_empty():
                if only is not None:
                    self._take_by_strategy(bytes_wanted, window, taken)
                    return taken
                only = each
        if only is not None:
            self._move(only, bytes_wanted, window, taken)
            only.deficit = 0  # a bin that has been emptied keeps no deficit
        return taken

    def take_single(self, bytes_wanted: int, window: int) -> QueueEntry | None:
        """The only entry, in the common case; None if there are others, or it is too large."""
        size = self.bytes + self.tracked_bytes
        last = self._last
        if last is None or size > bytes_wanted:
            return None
        lane = last.untracked if self.bytes else last.tracked
        items = lane.items
        if len(items) != 1 or items[0].size != size or self.tracked > window:
            return None
        if self.bytes:
            last.bytes = self.bytes = 0
        else:
            last.tracked_bytes = self.tracked_bytes = self.tracked = 0
        last.deficit = 0
        return items.pop()

    def take_admitted(self, bytes_wanted: int, window: int, gate: Gate) -> list[QueueEntry]:
        """As `take`, within the limits of `gate`; empty if the gate requires waiting."""
        taken: list[QueueEntry] = []
        got = 0
        self._adapt()
        while got < bytes_wanted:
            active = self._parts(window, bytes_wanted - got, gate)
            chosen = gate.choose(active, self.discipline, got)
            if chosen is None:
                break
            gate.begin(chosen.bin, chosen.cost)
            lane = chosen.open_lane(window, self._by_due)
            assert lane is not None
            entry = self._pop(chosen, lane, chosen.cost, window)
            if len(active) > 1:
                self.discipline.current.charge(active, chosen, entry.size)
                chosen.clear_deficit()
            else:
                chosen.deficit = 0
            taken.append(entry)
            got += entry.size
            if lane is chosen.tracked:
                window -= entry.count
        return taken

    def peek(
        self, window: int, bytes_wanted: int = 1, gate: Gate | None = None
    ) -> QueueEntry | None:
        """The entry `take`, or with a gate `take_admitted`, would start with; it stays queued."""
        if gate is None:
            found = self._next_bin(window, bytes_wanted)
        else:
            self._adapt()
            active = self._parts(window, bytes_wanted, gate)
            found = gate.choose(active, self.discipline, 0)
        if found is None:
            return None
        lane = found.open_lane(window, self._by_due)
        return None if lane is None else lane.first()

    def remove(self, entry: QueueEntry, is_tracked: bool) -> None:
        """Remove a queued entry, in constant time."""
        found = self._bin(entry)
        if is_tracked:
            found.tracked.remove(entry)
            found.tracked_bytes -= entry.size
            self.tracked -= entry.count
            self.tracked_bytes -= entry.size
        else:
            found.untracked.remove(entry)
            found.bytes -= entry.size
            self.bytes -= entry.size
        found.clear_deficit()

    def resize(
        self, entry: QueueEntry, size: int, is_tracked: bool, expires_ms: int = -1
    ) -> list[QueueEntry] | None:
        """Change the size of a queued entry, which keeps its position.

        `expires_ms` is given if that changes too. Returns what was shed for it, possibly the entry
        itself, like `put` and `put_tracked`.
        """
        assert size > 0
        growth = size - entry.size
        was_due_ms = due_ms(entry)
        found = self._bin(entry)
        entry.size = size
        if expires_ms >= 0:
            entry.expires_ms = expires_ms
        if self._by_due and due_ms(entry) != was_due_ms:
            (found.tracked if is_tracked else found.untracked).relocate(entry, was_due_ms)
        if not is_tracked:
            found.bytes += growth
            self.bytes += growth
            if self.bytes <= self.bytes_limit:
                return None
            if size <= self.bytes_limit:
                return self._shed_untracked()
            self.remove(entry, False)
            return [entry]
        found.tracked_bytes += growth
        self.tracked_bytes += growth
        excess = min(self.tracked_bytes - self.tracked_bytes_limit, growth)
        if excess <= 0:
            return None
        refused = self._refuse_tracked(entry, 0, excess)
        if refused[0] is entry:
            self.remove(entry, True)
        return refused

    def expire(self, now_ms: int) -> list[QueueEntry]:
        """Remove expired entries; linear in the queue."""
        expired: list[QueueEntry] = []
        for each in self._bins:
            for entry in each.untracked.expire(now_ms):
                each.bytes -= entry.size
                self.bytes -= entry.size
                expired.append(entry)
            for entry in each.tracked.expire(now_ms):
                each.tracked_bytes -= entry.size
                self.tracked -= entry.count
                self.tracked_bytes -= entry.size
                expired.append(entry)
            each.clear_deficit()
        return expired

    def drop_tracked(self) -> list[QueueEntry]:
        """Remove tracked entries, which the session has too."""
        dropped: list[QueueEntry] = []
        for each in self._bins:
            dropped += each.tracked.clear()
            each.tracked_bytes = 0
            each.clear_deficit()
        self.tracked = 0
        self.tracked_bytes = 0
        return dropped

    def tracked_entries(self) -> list[QueueEntry]:
        return [entry for each in self._bins for entry in each.tracked.waiting()]

    def drop_untracked(self) -> list[QueueEntry]:
        """Remove untracked entries, which are never retransmitted."""
        dropped: list[QueueEntry] = []
        for each in reversed(self._bins):
            dropped += each.untracked.clear()
            each.bytes = 0
            each.clear_deficit()
        self.bytes = 0
        return dropped

    def bytes_waiting(self) -> list[int]:
        waiting = [0] * IMPORTANCES
        for each in self._bins:
            waiting[each.importance] += each.bytes + each.tracked_bytes
        return waiting

    def depth(self) -> list[int]:
        """As in `Queues`; for a long queue, extrapolated from its head."""
        depth = [0] * IMPORTANCES
        for each in self._bins:
            depth[each.importance] += each.untracked.events(each.bytes)
            depth[each.importance] += each.tracked.events(each.tracked_bytes)
        return depth

    def check_invariants(self) -> None:
        self._check_bins()
        untracked = [each for one in self._bins for each in one.untracked.waiting()]
        tracked = [each for one in self._bins for each in one.tracked.waiting()]
        assert self.bytes == sum(each.size for each in untracked) <= self.bytes_limit
        assert self.tracked == sum(each.count for each in tracked)
        assert self.tracked_bytes == sum(each.size for each in tracked)
        for one in self._bins:
            assert one.bytes == sum(each.size for each in one.untracked.waiting())
            assert one.tracked_bytes == sum(each.size for each in one.tracked.waiting())

    def _parts(self, window: int, wanted: int, gate: Gate) -> list[Bin]:
        """As `_active`, with the exact size of the next part as cost."""
        active = self._active(window, wanted)
        largest = gate.large()
        for each in active:
            lane = each.open_lane(window, self._by_due)
            assert lane is not None
            each.cost = lane.first().part(wanted, largest)
        return active

    def _take_by_strategy(self, bytes_wanted: int, window: int, taken: list[QueueEntry]) -> None:
        strategy = self.discipline.current
        is_strict = self.discipline.strategy == STRICT
        active = self._active(window, bytes_wanted)
        while bytes_wanted > 0 and active:
            if len(active) == 1:
                self._move(active[0], bytes_wanted, window, taken)
                active[0].deficit = 0  # a bin that has been emptied keeps no deficit
                return
            tracked = self.tracked
            if is_strict:
                bytes_wanted -= self._move(active[0], bytes_wanted, window, taken)
                window -= tracked - self.tracked
                active = self._active(window, bytes_wanted)
                continue
            chosen = strategy.choose(active)
            lane = chosen.open_lane(window, self._by_due)
            assert lane is not None
            entry = self._pop(chosen, lane, bytes_wanted, window)
            strategy.charge(active, chosen, entry.size)
            taken.append(entry)
            bytes_wanted -= entry.size
            window -= tracked - self.tracked
            # Other bins are unchanged, unless the window has closed for them.
            is_open = chosen.refresh(window, self._by_due, bytes_wanted)
            if not is_open:
                chosen.clear_deficit()
            if not is_open or (window == 0 and self.tracked < tracked):
                active = self._active(window, bytes_wanted)

    def _move(self, chosen: Bin, bytes_wanted: int, window: int, taken: list[QueueEntry]) -> int:
        """Take as much from one bin as is wanted; returns the bytes."""
        wanted = bytes_wanted
        untracked = chosen.untracked
        tracked = chosen.tracked
        while wanted > 0 and window > 0 and not tracked.is_empty() and not untracked.is_empty():
            lane = chosen.open_lane(window, self._by_due)
            assert lane is not None
            entry = self._pop(chosen, lane, wanted, window)
            taken.append(entry)
            wanted -= entry.size
            if lane is tracked:
                window -= entry.count
        # From here on at most one lane may be taken from.
        if wanted > 0 and not untracked.is_empty():
            got, _ = untracked.move(wanted, ANY_NUMBER, taken)
            chosen.bytes -= got
            self.bytes -= got
            wanted -= got
        elif wanted > 0 and window > 0 and not tracked.is_empty():
            got, events = tracked.move(wanted, window, taken)
            chosen.tracked_bytes -= got
            self.tracked -= events
            self.tracked_bytes -= got
            wanted -= got
        if chosen.deficit != 0:
            chosen.clear_deficit()
        return bytes_wanted - wanted

    def _pop(self, chosen: Bin, lane: Lane, bytes_wanted: int, window: int) -> QueueEntry:
        if lane is chosen.tracked:
            entry = lane.pop(bytes_wanted, window)
            chosen.tracked_bytes -= entry.size
            self.tracked -= entry.count
            self.tracked_bytes -= entry.size
        else:
            entry = lane.pop(bytes_wanted)
            chosen.bytes -= entry.size
            self.bytes -= entry.size
        return entry

    def _refuse_tracked(self, newcomer: QueueEntry, count: int, size: int) -> list[QueueEntry]:
        """Refuse the newest of less important entries or, if that is not enough, the newcomer.

        Under weighted fair instead: entries of bins with more than their share of queued bytes.
        """
        refused: list[QueueEntry] = []
        is_fair = self.discipline.strategy == WEIGHTED_FAIR
        for each in reversed(self._bins):
            if is_fair:
                if not self._has_more(each, newcomer):
                    continue
            elif each.importance >= newcomer.importance:
                break
            for entry in reversed(each.tracked.waiting()):
                if count <= 0 and size <= 0:
                    break
                refused.append(entry)
                count -= entry.count
                size -= entry.size
        if count > 0 or size > 0:
            return [newcomer]
        for entry in refused:
            self.remove(entry, True)
        return refused

    def _has_more(self, each: Bin, newcomer: QueueEntry) -> bool:
        """Whether `each` has more queued for its weight than `newcomer`'s bin would have."""
        weights = self.discipline.weights
        own = newcomer.size
        for found in self._bins:
            if found.importance == newcomer.importance:
                own += found.tracked_bytes
        return (
            each.importance != newcomer.importance
            and each.tracked_bytes * weights[newcomer.importance] > own * weights[each.importance]
        )

    def _shed_fairly(self) -> list[QueueEntry]:
        """Shed from the bin with the most for its weight: unimportant bins keep their share."""
        shed: list[QueueEntry] = []
        weights = self.discipline.weights
        while self.bytes > self.bytes_limit:
            chosen: Bin | None = None
            for each in reversed(self._bins):
                if each.bytes and (
                    chosen is None
                    or each.bytes * weights[chosen.importance]
                    > chosen.bytes * weights[each.importance]
                ):
                    chosen = each
            assert chosen is not None
            entry = chosen.untracked.shed(self._by_due)
            chosen.bytes -= entry.size
            self.bytes -= entry.size
            shed.append(entry)
            chosen.clear_deficit()
        return shed

    def _shed_untracked(self) -> list[QueueEntry]:
        if self.discipline.strategy == WEIGHTED_FAIR:
            return self._shed_fairly()
        shed: list[QueueEntry] = []
        for each in reversed(self._bins):
            lane = each.untracked
            while self.bytes > self.bytes_limit and not lane.is_empty():
                entry = lane.shed(self._by_due)
                each.bytes -= entry.size
                self.bytes -= entry.size
                shed.append(entry)
            each.clear_deficit()
            if self.bytes <= self.bytes_limit:
                break
        return shed
