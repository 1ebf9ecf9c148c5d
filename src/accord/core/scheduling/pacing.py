"""Pacing to configured limits, which hold over any 30 s without delaying important events.

A pacer keeps a virtual clock, as GCRA does. Each send advances it by the time that takes at the
limit, and the next event is sent when the clock is due, so the average is exact for any sizes. Idle
time earns no credit beyond `_CREDIT_US`, which only compensates for late timers. An event can't be
interrupted, so a large one, of more than `_LARGE_US`, is sent whole and leaves a debt. Three rules
follow.

1. A large event waits until the last 30 s have room for all of it. It then stays within the limit
   together with what was sent before it; its debt covers what comes after it.
2. While a debt is being paid, a bin above the debtor's borrows: it sends at once, at the pace of
   the limit, as long as the last 30 s have room for it.
3. Neither may use the last 30 s completely. Each bin leaves room for those above it, a 256th of
   the whole per bin, which no debt of a lower bin can take from them.

Everything sent is therefore either small and on the clock, or checked against the last 30 s: any
30 s contain at most what the limit allows in 30.2 s. Of events larger than 7/8 of what 30 s carry,
one is sent at a time, beside at most an eighth of others, and is compensated afterwards.

While a large event waits for room, equal and lower bins wait with it, or it would starve. Higher
bins pass; under weighted fair, when it is the large event's turn, they pass only as many bytes as
leave it its room after 30 s at the latest. Under FIFO nothing passes and nothing borrows.

A portion is one segment, so that small events share one, and more only if the limit is so high that
more than one is sent per timer. Below 233 kbit/s it is less, so that no event waits long.
"""

from __future__ import annotations

from typing import Final

from accord.core.scheduling.lanes import BINS, Bin
from accord.core.scheduling.strategies import FIFO, Discipline

WINDOW_S: Final = 30

_CREDIT_US: Final = 10_000
_SEGMENT: Final = 1_460
_MAX_US: Final = 50_000
_LARGE_US: Final = 100_000
_MAX_OWED_US: Final = 100_000
_SLOT_US: Final = 125_000
# One more than 30 s need: a receiver measures arrival times some milliseconds apart.
_SLOTS: Final = WINDOW_S * 1_000_000 // _SLOT_US + 1
# In 256ths of the window: what the lowest bin may use, and the most any one event counts for.
_LOWEST_CAP: Final = 240
_ONE_EVENT: Final = 224


class Pacer:
    """One limit; times are of any monotonic clock, in microseconds."""

    def __init__(self, limit_bps: int) -> None:
        self.free_us = 0
        self.limit_bps = 1
        self.portion = 1
        self.large = 1  # bytes; a larger event waits for room
        # Remainder from rounding times, in bits times 10^6.
        self._rest = 0
        self._now_us = 0
        self._debtor = -1  # the bin that advanced the clock; -1 when it is due, and for replies
        self._borrowed_us = 0  # the clock without large events
        self._is_large_next = False
        # Bytes of the last 30 s, in a ring of slots that ends with the current one.
        self._window = 1
        self._used = 0
        self._slots: list[int] | None = None  # None while nothing was sent
        self._slot = 0
        # Room kept for a large event: since when, its bin, and the bytes that may still pass it.
        self._kept_us = 0
        self._kept_bin = -1
        self._may_pass = 0
        self.set_limit(limit_bps, 0)

    def set_limit(self, limit_bps: int, now_us: int) -> None:
        """Change the limit; an outstanding debt is paid at the new limit."""
        limit_bps = max(limit_bps, 1)
        if self.free_us > now_us:
            self.free_us = now_us + (self.free_us - now_us) * self.limit_bps // limit_bps
        self.limit_bps = limit_bps
        self._rest = 0
        self._borrowed_us = 0
        self._kept_bin = -1
        self._window = max(self._bytes_in(WINDOW_S * 1_000_000), 1)
        self.portion = max(self._bytes_in(_CREDIT_US), min(_SEGMENT, self._bytes_in(_MAX_US)), 1)
        self.large = max(self._bytes_in(_LARGE_US), self.portion)

    def advance(self, now_us: int) -> None:
        """Set the time; called before any query or send."""
        if now_us >= self.free_us:
            self._debtor = -1
        self._roll(now_us)

    def is_idle(self, now_us: int) -> bool:
        """Whether the state equals that of a new pacer."""
        return now_us > max(self.free_us, self._now_us + (_SLOTS + 1) * _SLOT_US)

    def wait_us(self, bin_: int, size: int, ahead: int) -> int:
        """Time until an event may be sent after `ahead` bytes that are sent now; 0: now."""
        wait_us = max(self.free_us - self._now_us, 0)
        is_borrowing = wait_us > 0 and 0 <= self._debtor < bin_
        if size <= self.large:
            if not is_borrowing:
                return wait_us
            return min(
                wait_us,
                max(self._borrowed_us - self._now_us, self._until_room_us(bin_, size + ahead), 0),
            )
        room_us = self._until_room_us(bin_, size + ahead)
        return room_us if is_borrowing else max(wait_us, room_us)

    def reserve_room(self, bin_: int, size: int) -> None:
        """Keep room for a large event that waits: others pass it only within bounds."""
        if self._kept_bin < 0 or self._now_us - self._kept_us > (_SLOTS + 1) * _SLOT_US:
            self._kept_bin = bin_
            self._kept_us = self._now_us
            self._may_pass = self._cap(bin_) - self._counted(size)

    def lets_pass(self, bin_: int, size: int) -> bool:
        """Whether an event may be sent before the one that room is kept for."""
        left_to_others = self._window * (BINS - 1 - bin_) // 256
        return self._kept_bin < 0 or size <= self._may_pass - left_to_others

    def begin(self, bin_: int, size: int) -> None:
        """Account for the start of one event; `sent` then takes the bytes of all sent together."""
        self._is_large_next = size > self.large
        if self._now_us >= self.free_us:
            self._debtor = max(self._debtor, bin_)
        if bin_ > self._kept_bin and size <= max(self._may_pass, self.large):
            self._may_pass -= size
        else:
            self._kept_bin = -1  # the large event was sent: the next one reserves room again

    def sent(self, size: int, now_us: int) -> None:
        """Account for `size` bytes sent now; an excess is paid for later."""
        self._roll(now_us)
        slots = self._slots
        if slots is None:
            slots = self._slots = [0] * (_SLOTS + 1)
        counted = self._counted(size)
        slots[self._slot % len(slots)] += counted
        self._used += counted
        start_us = max(self.free_us, now_us - _CREDIT_US)
        self._rest += size * 8_000_000
        took_us = self._rest // self.limit_bps
        self._rest -= took_us * self.limit_bps
        self.free_us = start_us + took_us
        if not self._is_large_next:
            self._borrowed_us = max(self._borrowed_us, now_us - _CREDIT_US) + took_us
        self._is_large_next = False

    def sent_reply(self, size: int, now_us: int) -> None:
        """As `sent`, for replies, which are not scheduled: their debt to events is bounded.

        They do not cancel debts of events either: otherwise a client could evade its limit with
        pings.
        """
        free_us = self.free_us
        borrowed_us = self._borrowed_us
        self.sent(size, now_us)
        self.free_us = max(free_us, min(self.free_us, now_us + _MAX_OWED_US))
        self._borrowed_us = max(borrowed_us, min(self._borrowed_us, now_us + _MAX_OWED_US))

    def _roll(self, now_us: int) -> None:
        """Expire what is more than 30 s old."""
        self._now_us = now_us
        slot = now_us // _SLOT_US
        slots = self._slots
        if slot - self._slot > _SLOTS:
            slots = self._slots = None
            self._used = 0
        if slots is not None:
            for passed in range(self._slot + 1, slot + 1):
                position = passed % len(slots)
                self._used -= slots[position]
                slots[position] = 0
        self._slot = slot

    def _counted(self, size: int) -> int:
        """What an event of `size` bytes counts for in the last 30 s."""
        return min(size, self._window * _ONE_EVENT // 256)

    def _cap(self, bin_: int) -> int:
        """Maximum for the last 30 s including an event of this bin."""
        return self._window * (_LOWEST_CAP + bin_) // 256

    def _until_room_us(self, bin_: int, size: int) -> int:
        """Time until the last 30 s have room for an event."""
        excess = self._used + self._counted(size) - self._cap(bin_)
        slots = self._slots
        if excess <= 0 or slots is None:
            return 0
        slot = self._slot - _SLOTS
        while excess > 0 and slot <= self._slot:
            excess -= slots[slot % len(slots)]
            slot += 1
        return (slot + _SLOTS) * _SLOT_US - self._now_us

    def _bytes_in(self, duration_us: int) -> int:
        return self.limit_bps * duration_us // 8_000_000


class Gate:
    """The limits of one destination: its own, that of its node, or both."""

    def __init__(self, pacers: list[Pacer]) -> None:
        self.pacers = pacers
        self.wait_us = 0  # until more may be sent, if `choose` returned None
        # Lowest bin that may send; raised while lower ones have to wait for the node's limit.
        self.lowest_bin = 0

    def advance(self, now_us: int) -> None:
        for pacer in self.pacers:
            pacer.advance(now_us)

    def portion(self) -> int:
        return min([pacer.portion for pacer in self.pacers])

    def large(self) -> int:
        return min([pacer.large for pacer in self.pacers])

    def choose(self, active: list[Bin], discipline: Discipline, ahead: int) -> Bin | None:
        """The next bin, or a higher one that passes while it waits; None if all have to wait."""
        self.wait_us = 0
        if self.lowest_bin > 0:
            active = [each for each in active if each.bin >= self.lowest_bin]
        is_plain = discipline.strategy == FIFO
        is_bounded = False
        while active:
            found = active[0] if len(active) == 1 else discipline.current.choose(active)
            wait_us = self._until_us(0 if is_plain else found.bin, found.cost, ahead)
            if wait_us == 0 and (not is_bounded or self._lets_pass(found)):
                return found
            if wait_us and (self.wait_us == 0 or wait_us < self.wait_us):
                self.wait_us = wait_us
            if ahead or is_plain:
                return None  # checked again once the bytes ahead have been sent
            if found.cost > self.large():
                is_bounded = True
            active = [each for each in active if each.bin > found.bin]
        return None

    def begin(self, bin_: int, size: int) -> None:
        for pacer in self.pacers:
            pacer.begin(bin_, size)

    def sent(self, size: int, now_us: int) -> None:
        for pacer in self.pacers:
            pacer.sent(size, now_us)

    def sent_reply(self, size: int, now_us: int) -> None:
        for pacer in self.pacers:
            pacer.sent_reply(size, now_us)

    def _until_us(self, bin_: int, size: int, ahead: int) -> int:
        longest_us = 0
        for pacer in self.pacers:
            if ahead and size > pacer.large:
                return 1  # sent alone, so that its debt is charged to no other
            wait_us = pacer.wait_us(bin_, size, ahead)
            if wait_us > 0 and size > pacer.large:
                pacer.reserve_room(bin_, size)
            longest_us = max(longest_us, wait_us)
        return longest_us

    def _lets_pass(self, found: Bin) -> bool:
        return all(pacer.lets_pass(found.bin, found.cost) for pacer in self.pacers)
