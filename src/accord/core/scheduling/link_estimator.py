"""What a connection's link carries, learned from how fast the other side takes what it is sent.

Whatever is handed to the transport is beyond our ordering: an important event waits behind all of
it. So no more is handed over than keeps the link busy. That amount, the allowance, is what the link
carries during its round trip and a little longer (`_SLACK_US`, for the moments until we look
again), and two segments more, because receivers acknowledge every second one only.

The rate comes from looks at what is outstanding, that is handed over and not yet acknowledged. Only
times count during which the link was filled: a sender that has little to send says nothing about
it. Such a time is cut into windows that begin and end with an acknowledgement; the allowance
follows the fastest of the last three windows, so that a stall in one of them (a lost segment, a
receiver that stops reading) changes nothing and a slower link is known a second later. The rate
that others see is their median, once it does not grow with the allowance any more.

An allowance that is too small shows: all that was outstanding when we held back is acknowledged at
the next look (the link ran dry), or the rate grows with the allowance. Either way it is doubled, as
TCP does when it starts. What a window measures in which the link ran dry is less than it carries,
so it counts only if it is more than was known. If it is not, acknowledgements come in bunches or we
look too seldom, and the slack is raised until that is no more so. The allowance begins as TCP's
does, too, with ten segments: half a second of a 300 kbit/s link, and hundreds of kilobytes on
loopback, whose segments are large.

On a fast link all this is one comparison and one subtraction per write, and a look for each
allowance that went out.
"""

from __future__ import annotations

from typing import Final

from accord.core.scheduling.pacing import Gate

_SLACK_US: Final = 25_000
# So much slack at most: it is enough for any link that a node of ours can fill.
_SLACK_BYTES: Final = 1 << 20
_FIRST_SEGMENTS: Final = 10
_SEGMENTS: Final = 2
_SEGMENT: Final = 1_460
# Where the system does not say how large segments are: nothing that matters waits in the kernel.
_FIRST_BYTES: Final = 1 << 16
_WINDOW_US: Final = 100_000
_LONG_WINDOW_US: Final = 400_000
_WINDOW_SEGMENTS: Final = 8
_BURST_US: Final = 200_000
_CLEAN_WINDOWS: Final = 16
_MAX_MARGIN: Final = 8
# Looks: not before so long, nor after, and while nothing moves ever less often.
_SOON_US: Final = 1_000
_LATE_US: Final = 40_000
_LATEST_US: Final = 500_000
# Room that is used up so soon was used up at once: there is more to send.
_AT_ONCE_US: Final = 5_000
# After this, what was outstanding may not be any more.
_STALE_US: Final = 50_000


class LinkEstimator:
    """One connection's; times are those of any clock that does not jump, in microseconds."""

    __slots__ = (
        "_acked",
        "_clean",
        "_empty_at",
        "_empty_us",
        "_enough",
        "_held_at",
        "_is_dry",
        "_looked_at",
        "_margin",
        "_min_rtt_us",
        "_progress_us",
        "_rates",
        "_segment",
        "_window_acked",
        "_window_us",
        "allowance",
        "gate",
        "handed",
        "limit_bps",
        "looked_us",
        "rate_bps",
        "room",
        "rtt_ms",
        "wait_us",
    )

    def __init__(self) -> None:
        self.room = _FIRST_BYTES  # may be handed over before the next look
        self.allowance = _FIRST_BYTES  # may be outstanding
        self.handed = 0  # bytes since the beginning
        self.limit_bps = 0  # configured; 0: none
        self.gate: Gate | None = None  # the configured limits
        self.rate_bps = 0  # measured; 0: not yet
        self.rtt_ms = 0  # without what waits on the way; 0: not known
        self.looked_us = 0  # when the last look was
        self.wait_us = 0  # after a look without room: until the next
        self._segment = _SEGMENT
        self._min_rtt_us = 0
        self._acked = 0
        self._looked_at = 0  # what had been handed over at the last look
        self._progress_us = 0
        # What had been handed over when the allowance was used up, -1 while it is not.
        self._held_at = -1
        # When nothing was outstanding for the last time, and what had been handed over until then.
        self._empty_us = 0
        self._empty_at = 0
        self._enough = 0  # allowance for the measured rate
        self._window_us = -1
        self._window_acked = 0
        self._is_dry = False
        self._margin = 1
        self._clean = 0  # windows since the link last ran dry
        # Bytes per second, the newest first; 0: not yet measured.
        self._rates = (0, 0, 0)

    @property
    def is_held(self) -> bool:
        """Whether the allowance is used up."""
        return self._held_at >= 0

    @property
    def outstanding_bytes(self) -> int:
        """Handed over and not acknowledged, as of the last look."""
        return self.handed - self._acked

    def route(self, segment_bytes: int, min_rtt_us: int) -> None:
        """What the system knows of the way to the other side."""
        if self.handed == 0:
            self.allowance = self.room = max(_FIRST_SEGMENTS * segment_bytes, 2 * _SEGMENT)
        self._segment = max(segment_bytes, 1)
        self._min_rtt_us = min_rtt_us
        self.rtt_ms = (min_rtt_us + 999) // 1000

    def sent(self, size: int) -> None:
        """`size` bytes were handed to the transport."""
        self.handed += size
        self.room -= size

    def takes(self, size: int) -> bool:
        """Whether so much is sent at once, as on links that nothing is known to hold up."""
        return self.room > size and self.gate is None and not (self.rate_bps or self.limit_bps)

    def renew(self, now_us: int) -> None:
        """Before anything is sent where deadlines depend on it: an old look won't do."""
        if self.handed == self._acked:
            self._empty_us = now_us
            self._empty_at = self.handed
        elif now_us - self.looked_us > _STALE_US:
            self.room = 0

    def look(self, now_us: int, outstanding: int) -> int:
        """Learn from what is outstanding now; gives the room, or 0: look again in `wait_us`."""
        acked = self.handed - outstanding
        if self._held_at < 0:
            if not self._was_filled(now_us, acked):
                self._window_us = -1
            elif acked > self._acked:
                self._measure(now_us, acked)
        else:
            if acked >= self._held_at:
                self._ran_dry()
            if acked > self._acked:
                self._measure(now_us, acked)
                self._measure_burst(now_us, acked)
        if acked > self._acked or self._held_at < 0:
            self._progress_us = now_us
        self.looked_us = now_us
        self._looked_at = self.handed
        self._acked = acked
        self._held_at = -1
        if outstanding == 0:
            self._empty_us = now_us
            self._empty_at = acked
        room = self.allowance - self._ahead(now_us)
        if room < self._portion():
            self.hold(now_us)
            return 0
        self.room = room
        return room

    def hold(self, now_us: int) -> None:
        """The room that a look has just given is used up."""
        self.room = 0
        self._held_at = self.handed
        excess = self._ahead(now_us) + self._portion() - self.allowance
        rate = self._rates[0]
        wait_us = excess * 1_000_000 // rate if rate else self._min_rtt_us // 2
        stalled_us = now_us - self._progress_us - 2 * self._min_rtt_us
        self.wait_us = max(
            min(max(wait_us, _SOON_US), _LATE_US),
            min(stalled_us // 4, _LATEST_US),
        )

    def sending_ms(self, size: int) -> int:
        """How long until `size` more bytes would have left; 0 while nothing is known."""
        rate_bps = self.carries_bps()
        if rate_bps == 0:
            return 0
        return (self.outstanding_bytes + size) * 8_000 // rate_bps

    def carries_bps(self) -> int:
        """The least of the limit and what was measured; 0 while nothing is known."""
        if self.limit_bps and self.rate_bps:
            return min(self.limit_bps, self.rate_bps)
        return self.limit_bps or self.rate_bps

    def _portion(self) -> int:
        """Less is not worth a look, nor the headers of a segment."""
        return max(self._segment, self.allowance >> 3)

    def _ahead(self, now_us: int) -> int:
        """What is still on its way, as far as can be told before the next acknowledgement."""
        rate = self._rates[0]
        likely = rate * (now_us - self._progress_us) // 1_000_000
        return self.handed - self._acked - min(likely, 2 * self._segment)

    def _was_filled(self, now_us: int, acked: int) -> bool:
        """Whether the link was busy since the last look although there was room.

        It was if some of what was outstanding then still is, and all in all more than can be under
        way: then some of it waited all the time. (So it is for who waits for a turn.)
        """
        elapsed_us = now_us - self.looked_us
        if elapsed_us <= _AT_ONCE_US:
            return True
        under_way = (acked - self._acked) * self._min_rtt_us // elapsed_us
        waiting = self.handed - acked - 2 * (under_way + self._segment)
        return acked < self._looked_at and waiting > 0

    def _ran_dry(self) -> None:
        """Nothing is outstanding any more of what was when we held back."""
        self._is_dry = True
        ceiling = 4 * self._enough
        if ceiling == 0:
            # Far away more than the slack may be under way.
            ceiling = _SLACK_BYTES + 2 * self.allowance * self._min_rtt_us // _SLACK_US
        self.allowance = max(self.allowance, min(2 * self.allowance, ceiling))

    def _measure(self, now_us: int, acked: int) -> None:
        if self._window_us < 0:
            self._begin(now_us, acked)
            return
        elapsed_us = now_us - self._window_us
        size = acked - self._window_acked
        is_full = size >= _WINDOW_SEGMENTS * self._segment
        if elapsed_us >= _LONG_WINDOW_US or (
            is_full and elapsed_us >= max(_WINDOW_US, self._min_rtt_us)
        ):
            self._adapt(max(size * 1_000_000 // elapsed_us, 1))
            self._begin(now_us, acked)

    def _measure_burst(self, now_us: int, acked: int) -> None:
        """What was acknowledged since the link was empty was sent since then, too.

        That is how a link shows to be faster by now that is not filled any more.
        """
        elapsed_us = max(now_us - self._empty_us, 1)
        rate = (acked - self._empty_at) * 1_000_000 // elapsed_us
        if elapsed_us <= _BURST_US and 0 < 5 * max(self._rates) < 4 * rate:
            self._adapt(rate)
            self._rates = (rate, rate, rate)
            if self.rate_bps:
                self.rate_bps = 8 * rate

    def _begin(self, now_us: int, acked: int) -> None:
        self._window_us = now_us
        self._window_acked = acked
        self._is_dry = False

    def _adapt(self, rate: int) -> None:
        """A window has ended: the link carries `rate`, or more if it ran dry."""
        rates = self._rates
        fastest = max(rates)
        is_growing = 4 * rate > 5 * fastest
        if self._is_dry and (fastest == 0 or rate <= fastest):
            self._clean = 0
            self._margin = min(2 * self._margin, _MAX_MARGIN)
        else:
            self._clean += 1
            if self._clean == _CLEAN_WINDOWS:
                self._clean = 0
                self._margin = max(self._margin // 2, 1)
            rates = self._rates = (rate, rates[0], rates[1])
            fastest = max(rates)
        if fastest == 0:
            return
        ordered = sorted(rates)
        if self.rate_bps or not is_growing:
            # Of one or two windows the faster: the others are 0.
            self.rate_bps = 8 * (ordered[1] if ordered[0] else ordered[2])
        rtt_us = self._min_rtt_us
        slack = self._margin * fastest * max(_SLACK_US, rtt_us // 4) // 1_000_000
        if is_growing:
            rtt_us *= 2
        self._enough = (
            fastest * rtt_us // 1_000_000 + min(slack, _SLACK_BYTES) + _SEGMENTS * self._segment
        )
        self.allowance = self._enough
