"""How long neighbours take to answer, so that nobody is asked again before it can have answered.

What a link takes is not all of it: a node that has much to do answers late, and so does one behind
a thin link. Who asked it more often then would keep it from answering at all. So each question says
when it was asked, which the answer repeats: what is measured is right whatever was lost. Who is
asked is told how long that takes, and waits as long for answers to questions of its own. Nobody is
asked while all is well: so what was learnt fades.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

_MAX_US: Final = 3_000_000
_SHARE: Final = 4  # one part in so many is new
_HALF_US: Final = 5_000_000  # in which half of it is forgotten


class _Learnt(NamedTuple):
    took_us: int
    at_us: int

    def now(self, now_us: int) -> int:
        return int(self.took_us * 0.5 ** (max(now_us - self.at_us, 0) / _HALF_US))


_NOTHING: Final = _Learnt(0, 0)


class ResponseTimes:
    """Of all neighbours, by name."""

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
        """So long, it says, an answer to its own questions takes."""
        self._told[neighbour] = _Learnt(_within(took_us), now_us)

    def took_us(self, neighbour: str, now_us: int) -> int:
        """How long an answer takes lately."""
        return self._measured.get(neighbour, _NOTHING).now(now_us)

    def pause_us(self, neighbour: str, now_us: int) -> int:
        """How long to wait before it is asked again."""
        told_us = self._told.get(neighbour, _NOTHING).now(now_us)
        return max(self.took_us(neighbour, now_us), told_us) * 3 // 2

    def forget(self, nodes: Container[str]) -> None:
        """All that are none of these."""
        for known in (self._measured, self._told):
            for neighbour in [each for each in known if each not in nodes]:
                del known[neighbour]


def _within(us: int) -> int:
    return min(max(us, 0), _MAX_US)
