"""Messages of a template to the same template at any node, over as many hops as that takes.

Each hop keeps a message until the next node has said that it got it, so that one over many links
that lose much arrives almost as soon as one over a single link. Each hop finds the next by its own
map, again at each try, and over links that don't count where no others lead there: one that loses
many pings lets many messages through. What gets nowhere for a while is dropped: whoever asks asks
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.channels.trees.spanner import distances, graph_of
from accord.core.overlay.duplicates import Duplicates
from accord.core.overlay.map import Map

_GIVE_UP_US: Final = 5_000_000
_LEAST_US: Final = 50_000
_LOOK_US: Final = 1_000_000  # at all links, whether they count or not
_MOST: Final = 4_096

_Key = tuple[str, int, int]


class Letter(msgspec.Struct, frozen=True, array_like=True, tag="letter"):
    """`number` counts those of its origin."""

    origin: str
    incarnation: int
    number: int
    to: str
    body: bytes


class Got(msgspec.Struct, frozen=True, array_like=True, tag="got"):
    """One hop back: a letter has come."""

    origin: str
    incarnation: int
    number: int


class _Waiting:
    __slots__ = ("channel", "due_us", "letter", "until_us")

    def __init__(self, letter: Letter, channel: str, now_us: int) -> None:
        self.letter = letter
        self.channel = channel
        self.due_us = now_us
        self.until_us = now_us + _GIVE_UP_US


# (neighbour, channel, message), and (origin, channel, body, now_us)
Say = Callable[[str, str, Letter | Got], None]
OnLetter = Callable[[str, str, bytes, int], None]


class Letters:
    def __init__(
        self, name: str, incarnation: int, net: Map, say: Say, on_letter: OnLetter
    ) -> None:
        self._name = name
        self._incarnation = incarnation
        self._map = net
        self._say = say
        self._on_letter = on_letter
        self._number = 0
        self._waiting: dict[_Key, _Waiting] = {}
        self._duplicates = Duplicates()
        self._looked: tuple[int, int] = (-1, 0)  # at which map, and when
        self._before: dict[str, str] = {}  # on ways over all links

    def post(self, to: str, channel: str, body: bytes, now_us: int) -> None:
        if to == self._name:
            self._on_letter(to, channel, body, now_us)
            return
        self._number += 1
        self._keep(Letter(self._name, self._incarnation, self._number, to, body), channel, now_us)

    def came(self, neighbour: str, channel: str, letter: Letter, now_us: int) -> None:
        self._say(neighbour, channel, Got(letter.origin, letter.incarnation, letter.number))
        if not self._duplicates.is_new(letter.origin, letter.incarnation, letter.number):
            return
        if letter.to == self._name:
            self._on_letter(letter.origin, channel, letter.body, now_us)
        else:
            self._keep(letter, channel, now_us)

    def got(self, message: Got) -> None:
        self._waiting.pop((message.origin, message.incarnation, message.number), None)

    def advance(self, now_us: int) -> None:
        for key, waiting in list(self._waiting.items()):
            if waiting.until_us <= now_us:
                del self._waiting[key]
            elif waiting.due_us <= now_us:
                self._send(waiting, now_us)

    def next_due_us(self) -> int | None:
        due_us: int | None = None
        for each in self._waiting.values():
            if due_us is None or each.due_us < due_us:
                due_us = each.due_us
        return due_us

    def __len__(self) -> int:
        return len(self._waiting)

    def check_invariants(self) -> None:
        assert len(self._waiting) <= _MOST
        self._duplicates.check_invariants()

    def _keep(self, letter: Letter, channel: str, now_us: int) -> None:
        while len(self._waiting) >= _MOST:
            del self._waiting[next(iter(self._waiting))]
        waiting = _Waiting(letter, channel, now_us)
        self._waiting[letter.origin, letter.incarnation, letter.number] = waiting
        self._send(waiting, now_us)

    def _send(self, waiting: _Waiting, now_us: int) -> None:
        neighbour = self._next(waiting.letter.to, now_us)
        latency_us = 0
        if neighbour:
            latency_us = self._map.latency_us(self._name, neighbour) or 0
            self._say(neighbour, waiting.channel, waiting.letter)
        waiting.due_us = min(now_us + max(_LEAST_US, 3 * latency_us), waiting.until_us)

    def _next(self, to: str, now_us: int) -> str:
        """The neighbour on the way there; empty where none is."""
        before = self._map.distances(self._name).before
        if to not in before:
            before = self._before_on_all(now_us)
        node = to
        while node in before:
            if before[node] == self._name:
                return node
            node = before[node]
        return ""

    def _before_on_all(self, now_us: int) -> dict[str, str]:
        version, looked_us = self._looked
        if version != self._map.version or now_us - looked_us >= _LOOK_US:
            self._looked = (self._map.version, now_us)
            _, self._before = distances(graph_of(self._map), self._name)
        return self._before
