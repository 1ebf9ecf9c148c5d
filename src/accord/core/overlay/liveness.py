"""Neighbour liveness: failure detection by pings, round-trip time, loss and availability.

Pings are sent every `ping_us`, each up to a tenth earlier so that nodes do not synchronise, never
later. A ping is missed when its pong takes longer than the mean round trip plus four deviations (as
TCP's retransmission timeout). Three missed in a row mean that the neighbour is down, so a link
failure is detected after three intervals and a round trip at most. A longer timeout would only
delay that: a late pong marks the neighbour up like any other, so a slow neighbour that replies
within two intervals is never considered down. Late pongs also count for the mean. But when several
late pongs arrive together, the link was blocked and is free again: all of them adjust the timeout,
but only the newest the round-trip time.

A node that was itself suspended sends one ping afterwards, not all the overdue ones: it cannot
mistake its own pause for the silence of others.

Availability is the share of the last day during which the neighbour was up, since it was up first.
A prior with the weight of one hour stands in for unknown time. A day hides what happens now, so the
failure probability is that of the day, or of the last minutes if that is higher: the share of them
that the neighbour was down, weighted exponentially. A minute without failure is added to them, so
that a single lost connection does not make a new link look bad.

`HelloScheduler` paces the pings (`set_interval`) where their bandwidth is limited. While the
allowance suffices, every neighbour is pinged at the full rate, that of `ping_us`. Otherwise rates
are weighted: a neighbour that routes in use pass, or that events are sent to, has eight times the
weight of another, and one of the nearer half twice that of the rest (near neighbours are likely to
be used next). Rates are proportional to weight, between the full rate and a minimum at which a
failure is detected before unacknowledged events time out. The minimum rate holds even if the
allowance is too small for it.

A neighbour that misses a ping is pinged at the full rate until it replies or is down, so a rarely
pinged one is not uncertain for longer than others.

`RttEstimator` is TCP's smoothed mean and deviation (RFC 6298), with a filter of outliers. A lasting
change of the round-trip time must be adopted after a few samples, and a single delayed sample must
not look like one. So an outlier is held back until the next sample. If that is an outlier in the
same direction, the nearer of the two becomes the mean at once, and the next may move it further;
otherwise the outlier is clipped to the usual range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, exp
from typing import Final

import msgspec

_MEAN_SHARE: Final = 1 / 8
_DEVIATION_SHARE: Final = 1 / 4
_DEVIATIONS: Final = 4
_LATENESS_US: Final = 10_000  # delay that a timer, an event loop or a kernel may always add


class RttEstimator:
    """Mean and deviation of the round-trip time; `mean_us` is 0 before the first sample."""

    __slots__ = ("_outlier_us", "deviation_us", "is_measured", "mean_us")

    def __init__(self) -> None:
        self.mean_us = 0.0
        self.deviation_us = 0.0
        self.is_measured = False
        self._outlier_us: int | None = None  # the last sample, if it was an outlier

    def copy(self) -> RttEstimator:
        copied = RttEstimator()
        copied.mean_us = self.mean_us
        copied.deviation_us = self.deviation_us
        copied.is_measured = self.is_measured
        copied._outlier_us = self._outlier_us
        return copied

    def reset(self) -> None:
        """The network path may have changed: the next sample replaces the old values."""
        self.is_measured = False
        self._outlier_us = None

    def upper_bound_us(self) -> float:
        """Upper limit of the usual range."""
        return self.mean_us + self._spread_us()

    def measure(self, took_us: int) -> None:
        if not self.is_measured:
            self.is_measured = True
            self.mean_us = float(took_us)
            self.deviation_us = took_us / 2
            return
        doubted_us, self._outlier_us = self._outlier_us, None
        side = self._outlier_side(took_us)
        if doubted_us is not None and side and self._outlier_side(doubted_us) == side:
            self.mean_us = float((min if side > 0 else max)(took_us, doubted_us))
            # The nearer one may have been sent when only one direction had changed.
            self._outlier_us = took_us
            return
        if doubted_us is not None:
            self._smooth(doubted_us)
        if side:
            self._outlier_us = took_us
        else:
            self._smooth(took_us)

    def _smooth(self, took_us: int) -> None:
        spread_us = self._spread_us()
        off_us = min(max(took_us - self.mean_us, -spread_us), spread_us)
        self.deviation_us += (abs(off_us) - self.deviation_us) * _DEVIATION_SHARE
        self.mean_us += off_us * _MEAN_SHARE

    def _outlier_side(self, took_us: int) -> int:
        """Side of the mean of an outlier: 1 or -1; 0 if it is none."""
        off_us = took_us - self.mean_us
        return 0 if abs(off_us) <= self._spread_us() else 1 if off_us > 0 else -1

    def _spread_us(self) -> float:
        """Half-width of the usual range around the mean."""
        return max(_DEVIATIONS * self.deviation_us, _LATENESS_US)


MIN_PING_US: Final = 10_000
_LOSS_SHARE: Final = 1 / 16
_JITTER: Final = 0.1
_FIRST_WAIT_US: Final = 1_000_000  # timeout of the first ping
# A later pong is ignored.
_MAX_PONG_US: Final = 10_000_000
_HOUR_US: Final = 3_600_000_000
_HOURS: Final = 24
_RECENT_US: Final = 600_000_000  # time constant of the recent past
_STEADY_US: Final = 60_000_000


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    """Liveness probe; the receiver replies at once. `sent_us` is opaque: the sender's clock."""

    number: int
    sent_us: int


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    """Reply to a `Ping`, with its fields."""

    number: int
    sent_us: int


@dataclass(frozen=True)
class LivenessOptions:
    """Ping interval, missed pings until a neighbour is down, and prior availability."""

    ping_us: int = 1_000_000
    misses: int = 3
    availability: float = 0.99

    def __post_init__(self) -> None:
        if self.ping_us < MIN_PING_US:
            raise ValueError(f"ping_us: expected at least {MIN_PING_US:,}, got {self.ping_us:,}")
        if self.misses < 1:
            raise ValueError(f"misses: expected at least 1, got {self.misses}")
        if not 0 <= self.availability <= 1:
            raise ValueError(f"availability: expected 0 to 1, got {self.availability}")


class Availability:
    """Share of time up, over the hours of the last day, and of time down in the last minutes."""

    def __init__(self, prior: float, now_us: int) -> None:
        self._prior = prior
        self._is_up = False
        self._was_up = False
        self._recent_us = 0.0  # weighted time, and
        self._recent_down_us = 0.0  # the part of it that it was down
        self._since_us = now_us
        self._up_us = [0] * _HOURS
        self._known_us = [0] * _HOURS
        self._all_up_us = 0  # running sums of both: read far more often than hours end
        self._all_known_us = 0
        self._hour = now_us // _HOUR_US

    def record(self, is_up: bool, now_us: int) -> None:
        """Record that the neighbour is up or down from now on."""
        if self._was_up:
            self._advance(now_us)
        else:  # there was nothing to see yet
            self._since_us = now_us
            self._hour = now_us // _HOUR_US
        self._is_up = is_up
        self._was_up = self._was_up or is_up

    def failure(self, now_us: int, measured: float | None = None) -> float:
        """Probability of being down at a random moment; `measured` counts instead of the day."""
        usual = 1 - self.share(now_us) if measured is None else measured
        down_us = self._recent_down_us
        if not down_us and self._is_up:
            return usual
        spent_us = max(now_us - self._since_us, 0)
        kept = exp(-spent_us / _RECENT_US)
        all_us = self._recent_us * kept + _RECENT_US * (1 - kept)
        down_us = down_us * kept + (0 if self._is_up else _RECENT_US * (1 - kept))
        return max(usual, down_us / (all_us + _STEADY_US))

    def share(self, now_us: int) -> float:
        if not self._was_up:
            return self._prior
        if now_us >= (self._hour + 1) * _HOUR_US:
            self._advance(now_us)
        since_us = now_us - self._since_us if now_us > self._since_us else 0  # quicker than max()
        up_us = self._all_up_us + (since_us if self._is_up else 0)
        return (up_us + self._prior * _HOUR_US) / (self._all_known_us + since_us + _HOUR_US)

    def check_invariants(self) -> None:
        for up_us, known_us in zip(self._up_us, self._known_us, strict=True):
            assert 0 <= up_us <= known_us <= _HOUR_US
        assert 0 <= self._recent_down_us <= self._recent_us + 1
        assert self._all_up_us == sum(self._up_us)
        assert self._all_known_us == sum(self._known_us)

    def _advance(self, now_us: int) -> None:
        kept = exp(-max(now_us - self._since_us, 0) / _RECENT_US)
        self._recent_us = self._recent_us * kept + _RECENT_US * (1 - kept)
        self._recent_down_us *= kept
        if not self._is_up:
            self._recent_down_us += _RECENT_US * (1 - kept)
        # Time older than a day falls into no hour that is still kept.
        since_us = max(self._since_us, now_us - _HOURS * _HOUR_US)
        while since_us < now_us:
            hour = since_us // _HOUR_US
            until_us = min((hour + 1) * _HOUR_US, now_us)
            place = hour % _HOURS
            if hour != self._hour:
                self._hour = hour
                self._all_up_us -= self._up_us[place]
                self._all_known_us -= self._known_us[place]
                self._up_us[place] = self._known_us[place] = 0
            self._known_us[place] += until_us - since_us
            self._all_known_us += until_us - since_us
            if self._is_up:
                self._up_us[place] += until_us - since_us
                self._all_up_us += until_us - since_us
            since_us = until_us
        self._since_us = max(self._since_us, now_us)


def pong_for(ping: Ping) -> Pong:
    return Pong(ping.number, ping.sent_us)


class NeighbourLiveness:
    """Liveness of one neighbour; `sends` collects the pings to send.

    The driver passes on all received messages before `advance`: otherwise pongs that have already
    arrived count as missed.
    """

    def __init__(
        self, neighbour: str, options: LivenessOptions, random: Callable[[], float], now_us: int
    ) -> None:
        self.neighbour = neighbour
        self.options = options
        self.is_up = False
        self.loss = 0.0  # smoothed share of missed pings
        self.interval_us = options.ping_us  # between pings, while none is missed
        self.sends: list[Ping] = []
        self._random = random
        self.availability = Availability(options.availability, now_us)
        self._is_connected = False
        self._ping_due_us = now_us
        self._pinged_us = now_us
        self._number = 0
        self._missed = 0  # in a row
        self._received_us = now_us  # when any message last arrived
        # Send times of pings by number: outstanding, and missed but perhaps late.
        self._awaited: dict[int, int] = {}
        self._late: dict[int, int] = {}
        self._rtt = RttEstimator()
        self._timeout_rtt = RttEstimator()  # for the timeout: includes pongs that were held up
        self._before_late = RttEstimator()  # `_rtt` before the last late pong,
        self._late_us = now_us - options.ping_us  # and when that arrived
        self.ping_timeout_us = _FIRST_WAIT_US  # ping timeout

    @property
    def rtt_us(self) -> int:
        """Smoothed round-trip time; 0 while unknown."""
        return round(self._rtt.mean_us)

    @property
    def deviation_us(self) -> int:
        """Deviation of the round-trip time."""
        return round(self._rtt.deviation_us)

    @property
    def latency_us(self) -> int:
        """One way: half the round trip."""
        return round(self._rtt.mean_us / 2)

    def link_up(self, now_us: int) -> None:
        """A transport is connected, perhaps over a different network path than before."""
        self._is_connected = True
        self._rtt.reset()
        self._timeout_rtt.reset()
        self.ping_timeout_us = _FIRST_WAIT_US
        self._late_us = now_us - self.options.ping_us
        self._ping_due_us = now_us
        self._reset()

    def link_down(self, now_us: int) -> bool:
        """The transport is disconnected; returns whether the neighbour was up until now."""
        self._is_connected = False
        self._reset()
        return self._set_state(False, now_us)

    def set_interval(self, interval_us: int) -> None:
        """Set the ping interval, at least `ping_us`."""
        self.interval_us = max(interval_us, self.options.ping_us)
        self._ping_within(self.interval_us)

    def on_message(self, now_us: int) -> None:
        """A message arrived: the neighbour is alive, even if its pongs are queued behind data.

        This end does not check that its own messages arrive there; the other end does: a link is
        used only if both ends report it up.
        """
        self._received_us = now_us

    def on_pong(self, pong: Pong, now_us: int) -> bool:
        """Returns whether the pong brings the neighbour up; an unknown pong is ignored."""
        sent_us = self._awaited.pop(pong.number, -1)
        is_late = sent_us < 0
        if is_late:
            sent_us = self._late.pop(pong.number, -1)
            if sent_us < 0:
                return False
        self._measure(max(now_us - sent_us, 0), now_us, is_late=is_late)
        self._missed = 0
        if self.is_up and not is_late:
            self.loss -= self.loss * _LOSS_SHARE
        return self._set_state(True, now_us)

    def advance(self, now_us: int) -> bool:
        """Count missed pings and send one if due; returns whether the neighbour went down."""
        if not self._is_connected:
            return False
        has_died = False
        if self._awaited:
            for number in _sent_until(self._awaited, now_us - self.ping_timeout_us):
                sent_us = self._late[number] = self._awaited.pop(number)
                has_died = self._miss(sent_us, now_us) or has_died
        if self._late:
            for number in _sent_until(self._late, now_us - _MAX_PONG_US):
                del self._late[number]
        if now_us >= self._ping_due_us:
            self._ping(now_us)
        return has_died

    def next_due_us(self) -> int | None:
        """Time of the next ping or timeout; None while there is no transport."""
        if not self._is_connected:
            return None
        for sent_us in self._awaited.values():
            missed_us = sent_us + self.ping_timeout_us
            return missed_us if missed_us < self._ping_due_us else self._ping_due_us
        return self._ping_due_us

    def check_invariants(self) -> None:
        assert self._is_connected or not (self.is_up or self._awaited or self._late)
        assert not self.is_up or self._missed < self.options.misses
        assert 0 <= self.loss <= 1
        sent = [*self._late.values(), *self._awaited.values()]
        assert sent == sorted(sent)
        assert len(sent) <= 2 * _MAX_PONG_US // MIN_PING_US
        self.availability.check_invariants()

    def _ping(self, now_us: int) -> None:
        self._number += 1
        self._awaited[self._number] = now_us
        self.sends.append(Ping(self._number, now_us))
        self._pinged_us = now_us
        is_suspect = 0 < self._missed < self.options.misses
        interval_us = self.options.ping_us if is_suspect else self.interval_us
        share = 1 - _JITTER * self._random()
        self._ping_due_us = now_us + max(round(interval_us * share), 1)

    def _ping_within(self, interval_us: int) -> None:
        """Send the next ping at most `interval_us` after the last one."""
        self._ping_due_us = min(self._ping_due_us, self._pinged_us + interval_us)

    def _miss(self, sent_us: int, now_us: int) -> bool:
        # A message sent before the ping may arrive after it, so allow for the latency.
        self._missed = 0 if self._received_us > sent_us + self.latency_us else self._missed + 1
        if 0 < self._missed < self.options.misses:
            self._ping_within(self.options.ping_us)
        if not self.is_up:
            return False  # loss is not measured on a link that is down
        self.loss += (1 - self.loss) * _LOSS_SHARE
        return self._missed >= self.options.misses and self._set_state(False, now_us)

    def _measure(self, took_us: int, now_us: int, *, is_late: bool) -> None:
        self._timeout_rtt.measure(took_us)
        self.ping_timeout_us = min(round(self._timeout_rtt.upper_bound_us()), _MAX_PONG_US)
        if now_us < self._late_us + self.options.ping_us // 2:
            self._rtt = self._before_late  # discard the previous pong: it was held up
        if is_late:
            self._late_us = now_us
            self._before_late = self._rtt.copy()
        self._rtt.measure(took_us)

    def _set_state(self, is_up: bool, now_us: int) -> bool:
        if self.is_up == is_up:
            return False
        self.is_up = is_up
        self.availability.record(is_up, now_us)
        return True

    def _reset(self) -> None:
        self._missed = 0
        self._awaited.clear()
        self._late.clear()
        self.sends.clear()


def _sent_until(pings: dict[int, int], until_us: int) -> list[int]:
    """Numbers of the pings sent until then; `pings` is in order of sending."""
    found: list[int] = []
    for number, sent_us in pings.items():
        if sent_us > until_us:
            break
        found.append(number)
    return found


# Approximate size of a ping and its pong with TCP and IP headers.
PING_BYTES: Final = 160
_CRITICAL: Final = 8
_NEAR: Final = 2
_PLAN_US: Final = 1_000_000
_ROUNDS: Final = 48  # bisection steps until the rates are exact enough
_S: Final = 1_000_000


class HelloScheduler:
    """Plans ping intervals; `bytes_per_s` is the allowance, 0 for unlimited."""

    def __init__(
        self, *, ping_us: int, misses: int, delivery_timeout_us: int, bytes_per_s: int
    ) -> None:
        if bytes_per_s < 0:
            raise ValueError(f"bytes_per_s: expected 0 or more, got {bytes_per_s}")
        self.ping_us = ping_us
        self.max_interval_us = max(ping_us, delivery_timeout_us // (misses + 1))
        self.bytes_per_s = bytes_per_s
        self._plan_us = 0

    def is_due(self, now_us: int) -> bool:
        """Whether to plan again; never without an allowance."""
        return self.bytes_per_s > 0 and now_us >= self._plan_us

    def next_due_us(self) -> int | None:
        return self._plan_us if self.bytes_per_s else None

    def plan(self, latencies_us: Mapping[str, int], critical: Mapping[str, None], now_us: int) -> (
        dict[str, int]
    ):  # fmt: skip
        """Ping interval of each neighbour in `latencies_us`."""
        self._plan_us = now_us + _PLAN_US
        weights = _weights(latencies_us, critical)
        return intervals(
            weights,
            ping_us=self.ping_us,
            max_interval_us=self.max_interval_us,
            pings_per_s=self.bytes_per_s / PING_BYTES,
        )


def intervals(
    weights: Mapping[str, int], *, ping_us: int, max_interval_us: int, pings_per_s: float
) -> dict[str, int]:
    """Intervals by weight, within `pings_per_s` in total as far as the bounds allow."""
    most, least = _S / ping_us, _S / max_interval_us
    if len(weights) * most <= pings_per_s:
        return dict.fromkeys(weights, ping_us)
    if len(weights) * least >= pings_per_s:
        return dict.fromkeys(weights, max_interval_us)
    low, high = 0.0, most  # of the rate for a weight of 1
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        total = sum(min(max(middle * weight, least), most) for weight in weights.values())
        if total > pings_per_s:
            high = middle
        else:
            low = middle
    return {
        name: min(ceil(round(_S / min(max(low * weight, least), most), 3)), max_interval_us)
        for name, weight in weights.items()
    }


def _weights(latencies_us: Mapping[str, int], critical: Mapping[str, None]) -> dict[str, int]:
    ordered = sorted(latencies_us.values())
    near_us = ordered[(len(ordered) - 1) // 2] if ordered else 0
    return {
        name: (_CRITICAL if name in critical else 1) * (_NEAR if latency_us <= near_us else 1)
        for name, latency_us in latencies_us.items()
    }
