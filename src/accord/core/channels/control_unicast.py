"""Hop-by-hop reliable unicast of template messages to the same template at any node.

Each hop stores a message until the next hop acknowledges it, so many lossy links delay it hardly
more than one. At each attempt the next hop is chosen from the local map, including links that are
down if no others lead there: a link that loses many pings still passes many messages. Because the
map may be wrong, a message not acknowledged soon is also sent through the other neighbours in turn;
duplicates are dropped by number. A message that makes no progress is dropped after a timeout; the
requester retries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.channels.trees.tree import Graph, distances, graph_of
from accord.core.overlay.duplicate_filter import DuplicateFilter
from accord.core.overlay.link_state import LinkStateMap

_TIMEOUT_US: Final = 5_000_000
_MIN_US: Final = 50_000
_MAX_GRAPH_AGE_US: Final = 1_000_000  # maximum age of the graph of all links, up or down
_DIRECT_TRIES: Final = 3  # attempts on the shortest path before every second one uses another
_MAX_WAITING: Final = 4_096
MAX_BYTES: Final = 32 << 20  # of all stored messages; one is always allowed

_Key = tuple[str, int, int]


class UnicastMessage(msgspec.Struct, frozen=True, array_like=True, tag="letter"):
    """A message for `to`; `number` counts those of its origin."""

    origin: str
    incarnation: int
    number: int
    to: str
    body: bytes


class HopAck(msgspec.Struct, frozen=True, array_like=True, tag="got"):
    """One hop back: the message has arrived."""

    origin: str
    incarnation: int
    number: int


class _Waiting:
    """A stored message.

    `detours` are the neighbours tried off the shortest path, True if they have sent a `HopAck`.
    """

    __slots__ = (
        "channel",
        "detours",
        "due_us",
        "message",
        "previous_hop",
        "size",
        "tries",
        "until_us",
    )

    def __init__(
        self, message: UnicastMessage, channel: str, previous_hop: str, now_us: int
    ) -> None:
        self.message = message
        self.channel = channel
        self.size = len(message.body) + len(channel)
        self.previous_hop = previous_hop  # the neighbour it came from; "" if local
        self.detours: dict[str, bool] = {}
        self.tries = 0
        self.due_us = now_us
        self.until_us = now_us + _TIMEOUT_US

    def can_use(self, neighbour: str) -> bool:
        """Whether the neighbour is neither the origin nor the previous hop."""
        return neighbour not in (self.previous_hop, self.message.origin)


# (neighbour, channel, message), and (origin, channel, body, now_us)
SendHop = Callable[[str, str, UnicastMessage | HopAck], None]
Deliver = Callable[[str, str, bytes, int], None]


class ControlUnicast:
    """Sender, relay and receiver of one node."""

    def __init__(
        self, name: str, incarnation: int, net: LinkStateMap, send_hop: SendHop, deliver: Deliver
    ) -> None:
        self._name = name
        self._incarnation = incarnation
        self._map = net
        self._send_hop = send_hop
        self._deliver = deliver
        self._number = 0
        self._waiting: dict[_Key, _Waiting] = {}
        self._bytes = 0
        self._duplicates = DuplicateFilter()
        self._graph_version: tuple[int, int] = (-1, 0)  # version of the map, time
        self._graph: Graph = {}  # of all links, up or down
        self._nearest: dict[str, list[str]] = {}  # neighbours by path length, per destination

    def send(self, to: str, channel: str, body: bytes, now_us: int) -> None:
        if to == self._name:
            self._deliver(to, channel, body, now_us)
            return
        self._number += 1
        message = UnicastMessage(self._name, self._incarnation, self._number, to, body)
        self._enqueue(message, channel, "", now_us)

    def on_message(
        self, neighbour: str, channel: str, message: UnicastMessage, now_us: int
    ) -> None:
        self._send_hop(
            neighbour, channel, HopAck(message.origin, message.incarnation, message.number)
        )
        if message.origin == self._name:
            return
        if not self._duplicates.is_new(message.origin, message.incarnation, message.number):
            return
        if message.to == self._name:
            self._deliver(message.origin, channel, message.body, now_us)
        else:
            self._enqueue(message, channel, neighbour, now_us)

    def on_ack(self, neighbour: str, message: HopAck) -> None:
        """Handle a hop ack; one from a neighbour off the shortest path does not end the attempts.

        Such a neighbour may be unable to forward the message.
        """
        key = (message.origin, message.incarnation, message.number)
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        if neighbour in waiting.detours and neighbour != waiting.message.to:
            waiting.detours[neighbour] = True
        else:
            self._drop(key)

    def advance(self, now_us: int) -> None:
        for key, waiting in list(self._waiting.items()):
            if waiting.until_us <= now_us:
                self._drop(key)
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
        assert len(self._waiting) <= _MAX_WAITING
        assert self._bytes == sum(each.size for each in self._waiting.values())
        assert self._bytes <= MAX_BYTES or len(self._waiting) == 1
        self._duplicates.check_invariants()

    def _enqueue(
        self, message: UnicastMessage, channel: str, previous_hop: str, now_us: int
    ) -> None:
        key = (message.origin, message.incarnation, message.number)
        waiting = _Waiting(message, channel, previous_hop, now_us)
        if key in self._waiting:
            self._drop(key)
        while self._waiting and (
            len(self._waiting) >= _MAX_WAITING or self._bytes + waiting.size > MAX_BYTES
        ):
            self._drop(next(iter(self._waiting)))
        self._waiting[key] = waiting
        self._bytes += waiting.size
        self._send(waiting, now_us)

    def _drop(self, key: _Key) -> None:
        self._bytes -= self._waiting.pop(key).size

    def _send(self, waiting: _Waiting, now_us: int) -> None:
        neighbour = self._pick_neighbour(waiting, now_us)
        latency_us = 0
        if neighbour:
            latency_us = self._map.latency_us(self._name, neighbour) or 0
            self._send_hop(neighbour, waiting.channel, waiting.message)
        waiting.tries += 1
        waiting.due_us = min(now_us + max(_MIN_US, 3 * latency_us), waiting.until_us)

    def _pick_neighbour(self, waiting: _Waiting, now_us: int) -> str:
        """The neighbour for the next attempt; "" if there is none."""
        straight = self._next_hop(waiting, now_us)
        if waiting.tries >= _DIRECT_TRIES and waiting.tries % 2:
            near = self._neighbours_to(waiting, now_us)
            others = [each for each in near if each != straight and not waiting.detours.get(each)]
            if others:
                other = others[waiting.tries // 2 % len(others)]
                waiting.detours.setdefault(other, False)
                return other
        waiting.detours.pop(straight, None)
        return straight

    def _next_hop(self, waiting: _Waiting, now_us: int) -> str:
        """The next hop on the shortest path over links that are up, otherwise over all links."""
        to = waiting.message.to
        before = self._map.distances(self._name).previous
        node = to
        while node in before:
            if before[node] == self._name:
                if waiting.can_use(node):
                    return node
                break
            node = before[node]
        return next(iter(self._neighbours_to(waiting, now_us)), "")

    def _neighbours_to(self, waiting: _Waiting, now_us: int) -> list[str]:
        """Neighbours with a path to the destination over all links, sorted by its length."""
        version, looked_us = self._graph_version
        if version != self._map.version or now_us - looked_us >= _MAX_GRAPH_AGE_US:
            self._graph_version = (self._map.version, now_us)
            self._graph = graph_of(self._map)
            self._nearest.clear()
        to = waiting.message.to
        nearest = self._nearest.get(to)
        if nearest is None and to in self._graph:
            nearest = self._nearest[to] = self._by_length(to)
        return [each for each in nearest or () if waiting.can_use(each)]

    def _by_length(self, to: str) -> list[str]:
        links = self._graph.get(self._name, {})
        others = {node: ends for node, ends in self._graph.items() if node != self._name}
        far, _ = distances(others, to)
        return sorted(
            (each for each in links if each in far),
            key=lambda each: (links[each] + far[each], each),
        )
