"""Queue entries: runs of whole events, each queued, counted and shed as one."""

from __future__ import annotations

from typing import Final

# The due time of an entry without deadline.
NEVER: Final = 1 << 60
ANY_NUMBER: Final = 1 << 60  # of events


class QueueEntry:
    """An entry for one or more destinations, with what scheduling needs to know of it.

    `importance`, `bin` and `queued_ms` do not change while it is queued. `number` is its first
    event's, 0 without one. The default bin is that of light entries, as most are.
    """

    __slots__ = ("bin", "count", "expires_ms", "importance", "number", "queued_ms", "size")

    def __init__(
        self,
        size: int,
        count: int,
        importance: int,
        queued_ms: int,
        expires_ms: int = 0,
        number: int = 0,
        bin_: int = -1,
    ) -> None:
        self.size = size
        self.count = count
        self.importance = importance
        self.queued_ms = queued_ms
        self.expires_ms = expires_ms
        self.number = number
        self.bin = bin_ if bin_ >= 0 else 2 * importance + 1

    def cost(self, wanted: int) -> int:  # noqa: ARG002
        """The cost of its next step if `wanted` is free."""
        return self.size

    def has(self, number: int) -> bool:
        """Whether it has the event of that number."""
        return 0 < self.number <= number < self.number + self.count

    def part(self, wanted: int, largest: int) -> int:  # noqa: ARG002
        """Size of its first events, about `wanted`; at most one event if that exceeds `largest`."""
        return self.size


class EventRun(QueueEntry):
    """Events published together to one channel, as frames ready to send."""

    __slots__ = ("frames",)

    def __init__(
        self,
        frames: bytes,
        count: int,
        importance: int,
        queued_ms: int,
        expires_ms: int = 0,
        number: int = 0,
        bin_: int = -1,
    ) -> None:
        # Without a call of QueueEntry.__init__, which is a good part of the cost of a message.
        self.size = len(frames)
        self.count = count
        self.importance = importance
        self.queued_ms = queued_ms
        self.expires_ms = expires_ms
        self.number = number
        self.bin = bin_ if bin_ >= 0 else 2 * importance + 1
        self.frames = frames

    def split(self, bytes_wanted: int, most: int) -> tuple[EventRun, EventRun] | None:  # noqa: ARG002
        """The first whole events, at least `bytes_wanted` bytes or `most` events, and the rest.

        None if it can't be split. The run itself is unchanged, as other outboxes hold it too. A
        subclass that knows where frames end overrides this and `part`, and `cost` with
        `cost_in_parts`.
        """
        return None


def cost_in_parts(run: EventRun, wanted: int) -> int:
    """Approximate cost of the next part of a run."""
    if run.count == 1 or run.size <= wanted:
        return run.size
    return max(wanted, run.size // run.count)


def due_ms(entry: QueueEntry) -> int:
    """When an entry must have been sent.

    Not when sending must begin: that would change with each estimate of the link, and on one link
    earliest deadline first is optimal if all deadlines can be met.
    """
    return entry.expires_ms if entry.expires_ms > 0 else NEVER
