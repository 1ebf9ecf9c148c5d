"""How long neighbours take to answer, so that nobody is asked again before it can have answered.

What a link takes is not all of it: a node that has much to do answers late, and so does one behind
a thin link. Who asked it more often then would keep it from answering at all. So each question says
when it was asked, which the answer repeats: what is measured is right whatever was lost. Who is
asked is told how long that takes, and waits as long for answers to questions of its own.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

_LONGEST_US: Final = 3_000_000
_SHARE: Final = 4  # one part in so many is new


class Answering:
    """Of all neighbours, by name."""

    def __init__(self) -> None:
        self._took_us: dict[str, int] = {}
        self._told_us: dict[str, int] = {}

    def answered(self, neighbour: str, asked_us: int, now_us: int) -> None:
        took_us = _within(now_us - asked_us)
        usual_us = self._took_us.get(neighbour, took_us)
        self._took_us[neighbour] = usual_us + (took_us - usual_us) // _SHARE

    def told(self, neighbour: str, took_us: int) -> None:
        """So long, it says, an answer to its own questions takes."""
        self._told_us[neighbour] = _within(took_us)

    def took_us(self, neighbour: str) -> int:
        """How long an answer takes lately."""
        return self._took_us.get(neighbour, 0)

    def pause_us(self, neighbour: str) -> int:
        """How long to wait before it is asked again."""
        usual_us = max(self._took_us.get(neighbour, 0), self._told_us.get(neighbour, 0))
        return usual_us * 3 // 2

    def forget(self, nodes: Container[str]) -> None:
        """All that are none of these."""
        for known in (self._took_us, self._told_us):
            for neighbour in [each for each in known if each not in nodes]:
                del known[neighbour]


def _within(us: int) -> int:
    return min(max(us, 0), _LONGEST_US)
