"""What waits in an outbox: a parcel is a run of whole events, queued, counted and shed as one."""

from __future__ import annotations

from typing import Final

# The due time of what has no deadline.
NEVER: Final = 1 << 60
ANY_NUMBER: Final = 1 << 60  # of events


class QueueEntry:
    """Something for one or more destinations, with what scheduling needs to know of it.

    `importance`, `bin` and `queued_ms` stay as they are while it is queued anywhere. `number` is
    that of its first event, 0 without. Nobody says which bin: it is light, as most are.
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
        """What its next step takes of the resource that is scheduled, if `wanted` is free."""
        return self.size

    def has(self, number: int) -> bool:
        """Whether it has the event of that number."""
        return 0 < self.number <= number < self.number + self.count

    def part(self, wanted: int, largest: int) -> int:  # noqa: ARG002
        """The size of its first events, about `wanted`; of more than `largest` one at most."""
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
        # Not by way of Parcel.__init__: a call is a good part of what a message may cost.
        self.size = len(frames)
        self.count = count
        self.importance = importance
        self.queued_ms = queued_ms
        self.expires_ms = expires_ms
        self.number = number
        self.bin = bin_ if bin_ >= 0 else 2 * importance + 1
        self.frames = frames

    def split(self, bytes_wanted: int, most: int) -> tuple[EventRun, EventRun] | None:  # noqa: ARG002
        """The first whole events, at least `bytes_wanted` bytes or `most` events, and the others.

        None where it must stay whole. It is not changed itself: other outboxes hold the same run.
        Who knows where frames end overrides this and `part`, and `cost` with `cost_in_parts`.
        """
        return None


def cost_in_parts(run: EventRun, wanted: int) -> int:
    """About what the next part of a run takes."""
    if run.count == 1 or run.size <= wanted:
        return run.size
    return max(wanted, run.size // run.count)


def due_ms(parcel: QueueEntry) -> int:
    """When it must have been sent.

    Not when its sending must begin: that would change with each estimate of the link, and on one
    link no order brings more in time than that by deadline, if all can be in time.
    """
    return parcel.expires_ms if parcel.expires_ms > 0 else NEVER
