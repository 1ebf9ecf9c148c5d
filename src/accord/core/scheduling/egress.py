"""Schedules destinations of a node whose limit is below what they could take together.

Each destination that could send waits with the head of its own outbox. The node's strategy chooses
among priority bins as it does within an outbox. Destinations of one bin share it equally in bytes
(start-time fair queueing: each is tagged with the bytes it has had, and the smallest tag is next),
unless the strategy has an order of its own: under laxity the one due first is next, under FIFO the
oldest.

An outbox follows the strategy by itself. Under weighted fair a destination may therefore wait here
with something unimportant although it has important events too, having sent its share of those.
Where that would take long, because something large waits or was sent, it tries with a better bin.

None of this is used without a limit of the node.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from accord.core.scheduling.lanes import BINS, Bin
from accord.core.scheduling.pacing import Gate
from accord.core.scheduling.queue_entries import NEVER, QueueEntry, due_ms
from accord.core.scheduling.strategies import FIFO, LAXITY, Discipline

_FEW: Final = 64


class WaitingDestination:
    """A destination's turn; `owner` is for the driver."""

    __slots__ = (
        "bin",
        "cost",
        "due_ms",
        "number",
        "owner",
        "queued_ms",
        "served",
        "served_bin",
        "tag",
        "version",
    )

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.bin = -1  # -1 if not waiting
        self.tag = 0
        self.number = 0  # of its only valid heap entry
        # Start of its next tag, valid for this bin and version of the strategy.
        self.served = 0
        self.served_bin = -1
        self.version = 0
        self.cost = 0
        self.due_ms = 0
        self.queued_ms = 0


class _Waiting(Bin):
    """The destinations that wait in one bin."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.heap: list[tuple[int, int, WaitingDestination]] = []
        self.size = 0  # valid entries
        self.tag = 0

    def front(self) -> WaitingDestination | None:
        turns = self.heap
        while turns:
            _, number, turn = turns[0]
            if turn.number == number:
                return turn
            heappop(turns)
        return None

    def prune(self) -> None:
        """Remove invalid entries from the heap once they outnumber the valid ones."""
        if len(self.heap) > 2 * self.size + _FEW:
            self.heap = [each for each in self.heap if each[2].number == each[1]]
            heapify(self.heap)


class Egress:
    def __init__(self, discipline: Discipline) -> None:
        self.discipline = discipline
        self.waiting = 0
        self._bins = [_Waiting(number) for number in range(BINS)]
        self._number = 0
        self._version = discipline.version
        self._active: list[Bin] = []
        self._chosen: Bin | None = None

    def put(
        self,
        destination: WaitingDestination,
        head: QueueEntry,
        bytes_wanted: int,
        largest: int = NEVER,
    ) -> None:
        """Let `destination` wait with `head`;

        It keeps its tag if that is of the same bin as before.
        """
        if self._version != self.discipline.version:
            self._sort()
        number = head.bin if head.bin >= 0 else 2 * head.importance + 1
        destination.cost = head.part(bytes_wanted, largest)
        destination.due_ms = due_ms(head)
        destination.queued_ms = head.queued_ms
        if destination.bin == number and (
            not self._has_own_order()
            or destination.tag == self._tag(destination, self._bins[number])
        ):
            return
        self.remove(destination)
        self._enter(destination, self._bins[number])

    def take(self, gate: Gate | None = None) -> WaitingDestination | None:
        """The next destination; follow with `sent`, and with `put` if it has more.

        With a `gate`, None may also mean that it requires waiting for its `wait_us`.
        """
        if self._version != self.discipline.version:
            self._sort()
        active: list[Bin] = []
        for number in range(BINS - 1, -1, -1):
            each = self._bins[number]
            front = each.front() if each.size else None
            if front is None:
                each.deficit = 0
                continue
            each.cost = front.cost
            each.due_ms = front.due_ms
            each.queued_ms = front.queued_ms
            active.append(each)
        if not active:
            return None
        chosen: Bin | None
        if gate is not None:
            chosen = gate.choose(active, self.discipline, 0)
        else:
            chosen = active[0] if len(active) == 1 else self.discipline.current.choose(active)
        if chosen is None:
            return None
        self._active = active
        self._chosen = chosen
        assert isinstance(chosen, _Waiting)
        turn = chosen.front()
        assert turn is not None
        self.remove(turn)
        return turn

    def sent(self, destination: WaitingDestination, size: int) -> None:
        """Charge the destination taken last for the bytes sent."""
        chosen = self._chosen
        assert isinstance(chosen, _Waiting)
        if size > 0 and len(self._active) > 1:
            self.discipline.current.charge(self._active, chosen, size)
        else:
            chosen.deficit = 0
        if not self._has_own_order():
            chosen.tag = max(chosen.tag, destination.tag)
            destination.served = destination.tag + size
            destination.served_bin = chosen.bin
            destination.version = self._version
        self._chosen = None
        self._active = []

    def remove(self, destination: WaitingDestination) -> None:
        """Remove a destination that is blocked or has nothing to send."""
        if destination.bin >= 0:
            found = self._bins[destination.bin]
            found.size -= 1
            self.waiting -= 1
            destination.bin = -1
            destination.number = 0
            found.prune()

    def destinations(self) -> list[WaitingDestination]:
        """All waiting destinations."""
        return [
            turn for each in self._bins for _, number, turn in each.heap if turn.number == number
        ]

    def check_invariants(self) -> None:
        for each in self._bins:
            turns = [turn for _, number, turn in each.heap if turn.number == number]
            assert len(turns) == each.size
            assert all(turn.bin == each.bin for turn in turns)
        assert self.waiting == sum(each.size for each in self._bins)

    def _enter(self, destination: WaitingDestination, found: _Waiting) -> None:
        self._number += 1
        destination.bin = found.bin
        destination.number = self._number
        destination.tag = self._tag(destination, found)
        heappush(found.heap, (destination.tag, destination.number, destination))
        found.size += 1
        self.waiting += 1

    def _tag(self, destination: WaitingDestination, found: _Waiting) -> int:
        """The sort key of a destination; the smallest is next."""
        if self.discipline.strategy == LAXITY:
            return destination.due_ms
        if self.discipline.strategy == FIFO:
            return destination.queued_ms
        # A destination earns no credit while it has nothing to send.
        if destination.served_bin == found.bin and destination.version == self._version:
            return max(destination.served, found.tag)
        return found.tag

    def _has_own_order(self) -> bool:
        return self.discipline.strategy in (LAXITY, FIFO)

    def _sort(self) -> None:
        """Recompute all tags after a change of strategy."""
        self._version = self.discipline.version
        for each in self._bins:
            turns = [turn for _, number, turn in each.heap if turn.number == number]
            each.heap = []
            each.size = 0
            each.tag = 0
            each.deficit = 0
            for turn in turns:
                self.waiting -= 1
                self._enter(turn, each)
