"""End-to-end acknowledgement and retransmission between a source and one destination.

Selective repeat with cumulative and selective acks, as in TCP with SACK. A failure may hit all
routes of a flow at once, with the loss of all events in transit. So the source numbers the events
for each destination, buffers them until acknowledged, and retransmits them over the routes that
exist then, until they are acknowledged or abandoned by age. The destination acknowledges all
numbers up to one, and those above as a bitmap. Each event carries the lowest number that the source
may still send (`window_base`), so neither side waits for abandoned events, nor for those that a
restarted destination has forgotten.

At most one window of numbers is unacknowledged on the network, as many as an ack can describe; the
rest waits at the source, up to a byte limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from accord.core.overlay.signalling import Acknowledge, DeliverySequence, TransitEvent

NOT_ACKNOWLEDGED: Final = "not acknowledged"
NO_ROOM: Final = "too many not acknowledged"
WINDOW: Final = 4_096  # sequence numbers from the first missing one on
_FIRST_US: Final = 250_000
_MIN_US: Final = 50_000  # destinations delay acks, to acknowledge many at once
_MAX_US: Final = 4_000_000


class UnackedEvent:
    """An event that its destination has not acknowledged."""

    __slots__ = ("carried", "expires_us", "retransmit_us", "sent_us", "size", "tries")

    def __init__(self, carried: TransitEvent, expires_us: int) -> None:
        self.carried = carried
        self.size = len(carried.payload) + len(carried.block) + 100
        self.expires_us = expires_us
        self.sent_us = 0
        self.retransmit_us = 0
        self.tries = 0


class RetransmissionBuffer:
    """Unacknowledged events for one destination."""

    def __init__(self, destination: str, *, bytes_limit: int) -> None:
        self.destination = destination
        self.bytes_limit = bytes_limit
        self.bytes = 0
        self.unacked: dict[int, UnackedEvent] = {}  # by sequence number, in order
        self.window_base = 1  # the lowest number that may still be sent
        self.retransmitted = 0
        self.round_trip_us = 0  # smoothed
        self._number = 0
        self._released = 0  # highest number that has been within the window
        self._due_us = 0

    def has_room(self, size: int) -> bool:
        return self.bytes + size <= self.bytes_limit

    def add(self, event: UnackedEvent) -> int:
        """Append an event; returns its sequence number."""
        self._number += 1
        self.unacked[self._number] = event
        self.bytes += event.size
        return self._number

    def release(self) -> Iterator[tuple[int, UnackedEvent]]:
        """Events that enter the window and may be sent for the first time."""
        while self._released < min(self._number, self.window_base + WINDOW - 1):
            self._released += 1
            event = self.unacked.get(self._released)
            if event is not None:
                yield self._released, event

    def postpone(self, event: UnackedEvent, now_us: int) -> None:
        """The event could not be sent, as there is no route: retry later."""
        self._set_due(event, now_us + _FIRST_US)

    def on_sent(self, event: UnackedEvent, now_us: int) -> None:
        """The event was sent or retransmitted: set its timeout, which doubles with each try."""
        patience_us = min(_MAX_US, max(_FIRST_US, 3 * self.round_trip_us) << event.tries)
        event.sent_us = now_us
        event.tries += 1
        self._set_due(event, now_us + patience_us)

    def shorten_timeouts(self, now_us: int) -> None:
        """A new route exists: shorten the timeouts to about two round trips, without backoff."""
        usual_us = max(_MIN_US, 2 * self.round_trip_us) if self.round_trip_us else _FIRST_US
        for number, event in self.unacked.items():
            if number > self._released:
                break
            again_us = max(now_us, event.sent_us + usual_us) if event.tries else now_us
            self._set_due(event, min(event.retransmit_us, again_us))

    def acknowledge(self, signal: Acknowledge, now_us: int) -> list[int]:
        """Remove acknowledged events; returns their sequence numbers."""
        done: list[int] = []
        beyond = int.from_bytes(signal.bitmap[: WINDOW // 8], "little")
        for number in list(self.unacked):
            above = number - signal.acked_through - 1
            if above >= 0 and not (above < WINDOW and beyond >> above & 1):
                if above >= WINDOW:
                    break
                continue
            event = self.unacked.pop(number)
            done.append(number)
            self.bytes -= event.size
            if event.tries == 1:
                took_us = now_us - event.sent_us
                self.round_trip_us += (took_us - self.round_trip_us) // (
                    8 if self.round_trip_us else 1
                )
        self._advance_window()
        return done

    def due(self, now_us: int) -> Iterator[tuple[int, UnackedEvent]]:
        """Events to retransmit now; the caller reports each with `on_sent` or `postpone`."""
        if not self._due_us or now_us < self._due_us:
            return
        self._due_us = 0
        for number, event in list(self.unacked.items()):
            if number > self._released:
                break
            if event.retransmit_us <= now_us:
                yield number, event
            if number in self.unacked and (not self._due_us or event.retransmit_us < self._due_us):
                self._due_us = event.retransmit_us

    def abandon(self, number: int) -> None:
        self.bytes -= self.unacked.pop(number).size
        self._advance_window()

    def next_due_us(self) -> int | None:
        return self._due_us or None

    def check_invariants(self) -> None:
        assert self.bytes == sum(each.size for each in self.unacked.values()) <= self.bytes_limit
        assert list(self.unacked) == sorted(self.unacked)
        assert self.window_base == next(iter(self.unacked), self._number + 1)
        assert self._released <= self._number
        assert self._released < self.window_base + WINDOW

    def _set_due(self, event: UnackedEvent, retransmit_us: int) -> None:
        event.retransmit_us = retransmit_us
        if not self._due_us or retransmit_us < self._due_us:
            self._due_us = retransmit_us

    def _advance_window(self) -> None:
        self.window_base = next(iter(self.unacked), self._number + 1)


class ReceiveWindow:
    """Sequence numbers received from one source that expects acks."""

    def __init__(self) -> None:
        self.received_through = 0  # all up to this number have arrived or were abandoned
        self.bitmap = 0  # bitmap of the numbers above
        self.ack_due_us = 0  # when to send an ack; 0 if there is nothing new

    def is_new(self, receipt: DeliverySequence) -> bool:
        """Record an event; False if it is a duplicate or outside the window."""
        if receipt.window_base - 1 > self.received_through:
            self._skip_to(receipt.window_base - 1)
        above = receipt.number - self.received_through - 1
        if above < 0 or above >= WINDOW or self.bitmap >> above & 1:
            return False
        self.bitmap |= 1 << above
        self._slide()
        return True

    def bits(self) -> bytes:
        return self.bitmap.to_bytes((self.bitmap.bit_length() + 7) // 8, "little")

    def check_invariants(self) -> None:
        assert not self.bitmap & 1
        assert self.bitmap.bit_length() <= WINDOW

    def _skip_to(self, number: int) -> None:
        self.bitmap >>= min(number - self.received_through, WINDOW)
        self.received_through = number
        self._slide()

    def _slide(self) -> None:
        while self.bitmap & 1:
            self.bitmap >>= 1
            self.received_through += 1
