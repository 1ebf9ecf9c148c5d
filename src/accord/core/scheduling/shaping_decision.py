"""Whether an event is to be shaped for one destination, and to what.

Two things ask for it: preferences that name a target, and a link that can't carry the whole event
before its deadline. What the link can carry is what may leave in the time that is left, with a
margin because rates are estimates, behind what is queued ahead.

A target that comes from a link is rounded down to a step of a coarse scale. Ten receivers with
about the same link then ask for the same shape, and the event is converted once for all of them.

Below a floor nothing is shaped for a link's sake: what would be left is of no use to anybody, and
the event rather expires at its deadline.
"""

from __future__ import annotations

from typing import Final

MIN_BYTES: Final = 4_096
_SMALLEST_SHARE: Final = 8  # of a payload: less would hardly be of use
MIN_PIXELS: Final = 64 * 64

_MARGIN_PERCENT: Final = 80  # of the time that is left; the rest is for what is not known of a link
_UNTOUCHED: Final = ("", "none")
# Half steps of powers of two: at most 30 % are lost to rounding down.
_STEPS: Final[list[int]] = [MIN_BYTES * 2**power for power in range(17)] + [
    int(MIN_BYTES * 2**power * 2**0.5) for power in range(16)
]
_STEPS.sort()


class ShapingTarget:
    """What an event is to become. 0 stands for no target, "" for no argument.

    `argument` is what a shaper wants to know beyond targets, such as the attributes to keep.
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
        """In words, for the ledger: `scaling to 16384 bytes`."""
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
    """The shape to send an event in; None where it is to be sent as it is.

    `shaping` is a shaper's name, after a colon its argument. `deadline_ms` is the time left, 0
    where there is no deadline; `rate_bps` and `payload_pixels` are 0 while unknown. Of an unknown
    number of pixels only the shaper can tell whether it is too large.
    """
    name, _, argument = shaping.partition(":")
    name = name.strip()
    if name in _UNTOUCHED:
        return None
    target_bytes = max_bytes if 0 < max_bytes < payload_bytes else 0
    if deadline_ms > 0 and rate_bps > 0:
        carried = bytes_in_time(deadline_ms, rate_bps, queued_ahead_bytes)
        if carried < (target_bytes or payload_bytes):
            # Where even the least is too much it is still made: what waits ahead may be gone by
            # then, and what comes behind it has a chance.
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
    """How large an event may be to leave a link in time, behind what is queued ahead of it."""
    usable_ms = deadline_ms * _MARGIN_PERCENT // 100
    return max(0, rate_bps * usable_ms // 8_000 - queued_ahead_bytes)


def step_below(size: int) -> int:
    """The largest step of the scale that is not above `size`; the first where all are."""
    found = _STEPS[0]
    for step in _STEPS:
        if step > size:
            break
        found = step
    return found
