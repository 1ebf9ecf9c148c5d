"""Shaping decision: whether an event is shaped for one destination, and to which target.

There are two reasons: preferences that name a target, and a link that can't carry the whole event
before its deadline. What the link can carry is what leaves it in the remaining time, with a margin
because rates are estimates, after what is queued ahead.

A target derived from a link is rounded down to a step of a coarse scale. Ten receivers with similar
links then need the same shape, and the event is converted once for all of them.

Below a floor nothing is shaped for the sake of a link: the result would be useless, and the event
expires at its deadline instead.

`ImportanceRates` measures the rate of each importance on a link, and what that leaves to the
others.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.units import IMPORTANCES
from accord.core.scheduling.strategies import FIFO, WEIGHTED_FAIR, Discipline

MIN_BYTES: Final = 4_096
_SMALLEST_SHARE: Final = 8  # minimum fraction of a payload: an eighth
MIN_PIXELS: Final = 64 * 64

_MARGIN_PERCENT: Final = 80  # of the remaining time; the rest covers estimation errors
_UNTOUCHED: Final = ("", "none")
# Half steps of powers of two: rounding down costs at most 30 %.
_STEPS: Final[list[int]] = [MIN_BYTES * 2**power for power in range(17)] + [
    int(MIN_BYTES * 2**power * 2**0.5) for power in range(16)
]
_STEPS.sort()


class ShapingTarget:
    """The target of a conversion: 0 for no target, "" for no argument.

    `argument` is what a shaper needs besides targets, such as the attributes to keep.
    """

    __slots__ = ("_hash", "argument", "max_bytes", "max_pixels", "shaper")

    def __init__(
        self, shaper: str, max_bytes: int = 0, max_pixels: int = 0, argument: str = ""
    ) -> None:
        self.shaper = shaper
        self.max_bytes = max_bytes
        self.max_pixels = max_pixels
        self.argument = argument
        self._hash = hash((shaper, max_bytes, max_pixels, argument))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, ShapingTarget)
            and self.max_bytes == other.max_bytes
            and self.max_pixels == other.max_pixels
            and self.shaper == other.shaper
            and self.argument == other.argument
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        targets = f"max_bytes={self.max_bytes}, max_pixels={self.max_pixels}"
        return f"Shape({self.shaper!r}, {targets}, argument={self.argument!r})"

    def text(self) -> str:
        """A description for the ledger: `scaling to 16384 bytes`."""
        targets: list[str] = []
        if self.max_bytes:
            targets.append(f"{self.max_bytes} bytes")
        if self.max_pixels:
            targets.append(f"{self.max_pixels} pixels")
        if self.argument:
            targets.append(self.argument)
        return f"{self.shaper} to {', '.join(targets)}" if targets else self.shaper


def choose_shape(
    shaping: str,
    max_bytes: int,
    max_pixels: int,
    payload_bytes: int,
    deadline_ms: int,
    rate_bps: int,
    queued_ahead_bytes: int,
    payload_pixels: int = 0,
) -> ShapingTarget | None:
    """The target to shape an event to; None if it is to be sent unchanged.

    `shaping` is a shaper's name, optionally with a colon and its argument. `deadline_ms` is the
    remaining time, 0 without deadline; `rate_bps` and `payload_pixels` are 0 while unknown. If the
    number of pixels is unknown, only the shaper can determine whether it is too large.
    """
    name, _, argument = shaping.partition(":")
    name = name.strip()
    if name in _UNTOUCHED:
        return None
    target_bytes = max_bytes if 0 < max_bytes < payload_bytes else 0
    if deadline_ms > 0 and rate_bps > 0:
        carried = bytes_in_time(deadline_ms, rate_bps, queued_ahead_bytes)
        if carried < (target_bytes or payload_bytes):
            # The minimum is made even if it is too large: the queue ahead may have drained by then,
            # and later events have a chance.
            least = max(payload_bytes // _SMALLEST_SHARE, MIN_BYTES)
            if least < (target_bytes or payload_bytes):
                target_bytes = step_below(max(carried, least))
    is_too_large = max_pixels > 0 and (payload_pixels == 0 or payload_pixels > max_pixels)
    target_pixels = max(max_pixels, MIN_PIXELS) if is_too_large else 0
    argument = argument.strip()
    if not (target_bytes or target_pixels or argument):
        return None
    return ShapingTarget(name, target_bytes, target_pixels, argument)


def bytes_in_time(deadline_ms: int, rate_bps: int, queued_ahead_bytes: int) -> int:
    """How large an event may be to leave a link in time, after what is queued ahead of it."""
    usable_ms = deadline_ms * _MARGIN_PERCENT // 100
    return max(0, rate_bps * usable_ms // 8_000 - queued_ahead_bytes)


def step_below(size: int) -> int:
    """The largest step of the scale not above `size`; the first if all are."""
    found = _STEPS[0]
    for step in _STEPS:
        if step > size:
            break
        found = step
    return found


_WINDOW_MS: Final = 1_000
_MIN_SHARE: Final = 8  # an importance is always left at least an eighth of the link


class ImportanceRates:
    """Rates of one destination; kept only where shaping needs them."""

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._bytes = [0] * IMPORTANCES
        self._rates_bps = [0] * IMPORTANCES

    def sent(self, importance: int, size: int) -> None:
        self._bytes[importance] += size

    def available_bps(
        self, importance: int, capacity_bps: int, discipline: Discipline, now_ms: int
    ) -> int:
        """What the link leaves to `importance`, judged by the last one or two seconds."""
        self._advance(now_ms)
        if discipline.strategy == FIFO:
            return capacity_bps
        above_bps = sum(self._rates_bps[importance + 1 :])
        left_bps = max(capacity_bps - above_bps, capacity_bps // _MIN_SHARE)
        if discipline.strategy == WEIGHTED_FAIR:
            weights = discipline.weights
            active = weights[importance]
            for other in range(IMPORTANCES):
                if other != importance and self._rates_bps[other]:
                    active += weights[other]
            left_bps = max(left_bps, capacity_bps * weights[importance] // active)
        return left_bps

    def _advance(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms < _WINDOW_MS:
            return
        self._since_ms = now_ms
        for importance in range(IMPORTANCES):
            rate_bps = self._bytes[importance] * 8_000 // elapsed_ms
            # Old rates count for nothing, the previous window for half.
            before_bps = self._rates_bps[importance] if elapsed_ms < 2 * _WINDOW_MS else rate_bps
            self._rates_bps[importance] = (rate_bps + before_bps) // 2
            self._bytes[importance] = 0
