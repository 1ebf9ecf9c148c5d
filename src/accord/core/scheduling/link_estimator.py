"""Estimates what a connection's link carries from the speed of acknowledgements, as BBR does.

Bytes handed to the transport can't be reordered: an important event waits behind all of them. So no
more is handed over than keeps the link busy. This send window (`send_window`) is the
bandwidth-delay product with some slack (`_SLACK_US`, for the time until the next sample), plus two
segments, because receivers acknowledge only every second one.

The rate comes from samples of the outstanding bytes: handed over and not yet acknowledged. Only
periods in which the link was filled count: a sender with little to send reveals nothing about it.
Such a period is divided into measurement windows that begin and end with an acknowledgement. The
send window follows the fastest of the last three, so that a stall in one of them (a lost segment, a
receiver that stops reading) changes nothing, and a slower link is noticed a second later. The
reported rate is their median, once it no longer grows with the send window.

A send window that is too small shows: all bytes outstanding when sending paused are acknowledged at
the next sample (the link ran dry), or the rate grows with the send window. In either case it is
doubled, as in TCP slow start. A measurement window in which the link ran dry underestimates the
rate, so it counts only if it exceeds the known rate. If it does not, acknowledgements arrive in
bunches or samples are too rare, and the slack is increased until that ends. The initial send window
is ten segments, as TCP's: half a second of a 300 kbit/s link, and hundreds of kilobytes on
loopback, whose segments are large.

On a fast link all this costs one comparison and one subtraction per write, and one sample per send
window.
"""

from __future__ import annotations

from typing import Final

from accord.core.scheduling.pacing import Gate

_SLACK_US: Final = 25_000
# Maximum slack: enough for any link that a node can fill.
_SLACK_BYTES: Final = 1 << 20
_FIRST_SEGMENTS: Final = 10
_SEGMENTS: Final = 2
_SEGMENT: Final = 1_460
# Initial send window if the segment size is unknown: nothing that matters waits in the kernel.
_FIRST_BYTES: Final = 1 << 16
_WINDOW_US: Final = 100_000
_LONG_WINDOW_US: Final = 400_000
_WINDOW_SEGMENTS: Final = 8
_BURST_US: Final = 200_000
_CLEAN_WINDOWS: Final = 16
_MAX_MARGIN: Final = 8
# Sampling interval: minimum, maximum, and maximum while nothing is acknowledged.
_MIN_INTERVAL_US: Final = 1_000
_MAX_INTERVAL_US: Final = 40_000
_STALLED_INTERVAL_US: Final = 500_000
# A send window used up within this time was used up at once: there is more to send.
_AT_ONCE_US: Final = 5_000
# Outstanding bytes older than this may have been acknowledged.
_STALE_US: Final = 50_000


class LinkEstimator:
    """Estimator of one connection; times are of any monotonic clock, in microseconds."""

    __slots__ = (
        "_acked",
        "_clean",
        "_empty_at",
        "_empty_us",
        "_held_at",
        "_is_dry",
        "_margin",
        "_min_rtt_us",
        "_progress_us",
        "_rate_window",
        "_rates",
        "_sampled_at",
        "_segment",
        "_window_acked",
        "_window_us",
        "gate",
        "limit_bps",
        "rate_bps",
        "room",
        "rtt_ms",
        "sampled_us",
        "send_window",
        "sent_bytes",
        "wait_us",
    )

    def __init__(self) -> None:
        self.room = _FIRST_BYTES  # may be handed over before the next sample
        self.send_window = _FIRST_BYTES  # may be outstanding: the send window
        self.sent_bytes = 0  # bytes in total
        self.limit_bps = 0  # configured; 0: none
        self.gate: Gate | None = None  # the configured limits
        self.rate_bps = 0  # measured; 0: not yet
        self.rtt_ms = 0  # minimum, without queueing; 0: unknown
        self.sampled_us = 0  # time of the last sample
        self.wait_us = 0  # after a sample without room: time until the next
        self._segment = _SEGMENT
        self._min_rtt_us = 0
        self._acked = 0
        self._sampled_at = 0  # bytes handed over at the last sample
        self._progress_us = 0
        # Bytes handed over when the send window was used up, -1 while it is not.
        self._held_at = -1
        # When nothing was outstanding last, and the bytes handed over until then.
        self._empty_us = 0
        self._empty_at = 0
        self._rate_window = 0  # send window for the measured rate
        self._window_us = -1
        self._window_acked = 0
        self._is_dry = False
        self._margin = 1
        self._clean = 0  # measurement windows since the link last ran dry
        # Bytes per second, newest first; 0: not measured yet.
        self._rates = (0, 0, 0)

    @property
    def is_held(self) -> bool:
        """Whether the send window is used up."""
        return self._held_at >= 0

    @property
    def outstanding_bytes(self) -> int:
        """Bytes handed over and not acknowledged, as of the last sample."""
        return self.sent_bytes - self._acked

    def set_path(self, segment_bytes: int, min_rtt_us: int) -> None:
        """Set what the operating system knows of the path: segment size and minimum RTT."""
        if self.sent_bytes == 0:
            self.send_window = self.room = max(_FIRST_SEGMENTS * segment_bytes, 2 * _SEGMENT)
        self._segment = max(segment_bytes, 1)
        self._min_rtt_us = min_rtt_us
        self.rtt_ms = (min_rtt_us + 999) // 1000

    def sent(self, size: int) -> None:
        """Account for `size` bytes handed to the transport."""
        self.sent_bytes += size
        self.room -= size

    def can_send(self, size: int) -> bool:
        """Whether `size` bytes are sent at once: there is room, and no limit or measured rate."""
        return self.room > size and self.gate is None and not (self.rate_bps or self.limit_bps)

    def expire_sample(self, now_us: int) -> None:
        """Require a new sample before sending, if the last is too old to judge deadlines by."""
        if self.sent_bytes == self._acked:
            self._empty_us = now_us
            self._empty_at = self.sent_bytes
        elif now_us - self.sampled_us > _STALE_US:
            self.room = 0

    def sample(self, now_us: int, outstanding: int) -> int:
        """Sample the outstanding bytes; returns the room, or 0: sample again in `wait_us`."""
        acked = self.sent_bytes - outstanding
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
        self.sampled_us = now_us
        self._sampled_at = self.sent_bytes
        self._acked = acked
        self._held_at = -1
        if outstanding == 0:
            self._empty_us = now_us
            self._empty_at = acked
        room = self.send_window - self._ahead(now_us)
        if room < self._portion():
            self.hold(now_us)
            return 0
        self.room = room
        return room

    def hold(self, now_us: int) -> None:
        """The room returned by the last sample is used up."""
        self.room = 0
        self._held_at = self.sent_bytes
        excess = self._ahead(now_us) + self._portion() - self.send_window
        rate = self._rates[0]
        wait_us = excess * 1_000_000 // rate if rate else self._min_rtt_us // 2
        stalled_us = now_us - self._progress_us - 2 * self._min_rtt_us
        self.wait_us = max(
            min(max(wait_us, _MIN_INTERVAL_US), _MAX_INTERVAL_US),
            min(stalled_us // 4, _STALLED_INTERVAL_US),
        )

    def sending_ms(self, size: int) -> int:
        """Time until `size` more bytes would have left the link; 0 if the rate is unknown."""
        rate_bps = self.capacity_bps()
        if rate_bps == 0:
            return 0
        return (self.outstanding_bytes + size) * 8_000 // rate_bps

    def capacity_bps(self) -> int:
        """The smaller of the configured limit and the measured rate; 0 if neither is known."""
        if self.limit_bps and self.rate_bps:
            return min(self.limit_bps, self.rate_bps)
        return self.limit_bps or self.rate_bps

    def _portion(self) -> int:
        """Minimum room to send into: less is not worth a sample, nor a segment's headers."""
        return max(self._segment, self.send_window >> 3)

    def _ahead(self, now_us: int) -> int:
        """Bytes estimated to be still in flight, until the next acknowledgement."""
        rate = self._rates[0]
        likely = rate * (now_us - self._progress_us) // 1_000_000
        return self.sent_bytes - self._acked - min(likely, 2 * self._segment)

    def _was_filled(self, now_us: int, acked: int) -> bool:
        """Whether the link was busy since the last sample although there was room.

        It was if some bytes outstanding then still are, and more in total than can be in flight:
        some of them were queued all the time. (So it is for a destination that waits for its turn.)
        """
        elapsed_us = now_us - self.sampled_us
        if elapsed_us <= _AT_ONCE_US:
            return True
        under_way = (acked - self._acked) * self._min_rtt_us // elapsed_us
        waiting = self.sent_bytes - acked - 2 * (under_way + self._segment)
        return acked < self._sampled_at and waiting > 0

    def _ran_dry(self) -> None:
        """All bytes outstanding when sending paused are acknowledged: enlarge the send window."""
        self._is_dry = True
        ceiling = 4 * self._rate_window
        if ceiling == 0:
            # On a long path more than the slack may be in flight.
            ceiling = _SLACK_BYTES + 2 * self.send_window * self._min_rtt_us // _SLACK_US
        self.send_window = max(self.send_window, min(2 * self.send_window, ceiling))

    def _measure(self, now_us: int, acked: int) -> None:
        if self._window_us < 0:
            self._start_window(now_us, acked)
            return
        elapsed_us = now_us - self._window_us
        size = acked - self._window_acked
        is_full = size >= _WINDOW_SEGMENTS * self._segment
        if elapsed_us >= _LONG_WINDOW_US or (
            is_full and elapsed_us >= max(_WINDOW_US, self._min_rtt_us)
        ):
            self._adapt(max(size * 1_000_000 // elapsed_us, 1))
            self._start_window(now_us, acked)

    def _measure_burst(self, now_us: int, acked: int) -> None:
        """Measure the rate since the link was empty: what was acknowledged was also sent since.

        This detects that a link has become faster although it is no longer filled.
        """
        elapsed_us = max(now_us - self._empty_us, 1)
        rate = (acked - self._empty_at) * 1_000_000 // elapsed_us
        if elapsed_us <= _BURST_US and 0 < 5 * max(self._rates) < 4 * rate:
            self._adapt(rate)
            self._rates = (rate, rate, rate)
            if self.rate_bps:
                self.rate_bps = 8 * rate

    def _start_window(self, now_us: int, acked: int) -> None:
        self._window_us = now_us
        self._window_acked = acked
        self._is_dry = False

    def _adapt(self, rate: int) -> None:
        """End a measurement window: the link carries `rate`, or more if it ran dry."""
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
            # With one or two measurements the faster one: the others are 0.
            self.rate_bps = 8 * (ordered[1] if ordered[0] else ordered[2])
        rtt_us = self._min_rtt_us
        slack = self._margin * fastest * max(_SLACK_US, rtt_us // 4) // 1_000_000
        if is_growing:
            rtt_us *= 2
        self._rate_window = (
            fastest * rtt_us // 1_000_000 + min(slack, _SLACK_BYTES) + _SEGMENTS * self._segment
        )
        self.send_window = self._rate_window
