"""Response times of neighbours, the basis of retransmission timers.

Link latency is not enough: a busy node, or one behind a slow link, replies late, and retransmitting
faster would keep it from replying at all. Each request carries its send time, which the reply
echoes, so a sample is correct whatever was lost (as with TCP timestamps). A request also carries
the response time measured so far, and the receiver uses it for requests of its own. Nothing is sent
while all is well, so estimates decay with time.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

_MAX_US: Final = 3_000_000
_SHARE: Final = 4  # weight of a new sample is 1 / _SHARE
_HALF_US: Final = 5_000_000  # half-life of an estimate


class _Learnt(NamedTuple):
    took_us: int
    at_us: int

    def now(self, now_us: int) -> int:
        return int(self.took_us * 0.5 ** (max(now_us - self.at_us, 0) / _HALF_US))


_NOTHING: Final = _Learnt(0, 0)


class ResponseTimes:
    """Estimates by neighbour: smoothed own samples, and the neighbour's reported ones."""

    def __init__(self) -> None:
        self._measured: dict[str, _Learnt] = {}
        self._told: dict[str, _Learnt] = {}

    def answered(self, neighbour: str, asked_us: int, now_us: int) -> None:
        took_us = _within(now_us - asked_us)
        if neighbour in self._measured:
            usual_us = self.took_us(neighbour, now_us)
            took_us = usual_us + (took_us - usual_us) // _SHARE
        self._measured[neighbour] = _Learnt(took_us, now_us)

    def told(self, neighbour: str, took_us: int, now_us: int) -> None:
        """Store the response time that a neighbour has measured for its own requests."""
        self._told[neighbour] = _Learnt(_within(took_us), now_us)

    def took_us(self, neighbour: str, now_us: int) -> int:
        """Current estimate of the response time."""
        return self._measured.get(neighbour, _NOTHING).now(now_us)

    def pause_us(self, neighbour: str, now_us: int) -> int:
        """Time to wait before a retransmission."""
        told_us = self._told.get(neighbour, _NOTHING).now(now_us)
        return max(self.took_us(neighbour, now_us), told_us) * 3 // 2

    def forget(self, nodes: Container[str]) -> None:
        """Drop neighbours that are not in `nodes`."""
        for known in (self._measured, self._told):
            for neighbour in [each for each in known if each not in nodes]:
                del known[neighbour]


def _within(us: int) -> int:
    return min(max(us, 0), _MAX_US)
