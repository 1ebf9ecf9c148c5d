"""Small machines to try the simulator with."""

# ruff: noqa: ARG002 (machines take what the protocol gives them)

from __future__ import annotations

from random import Random
from typing import Any

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from accord.core.model.channels import filter_selects
from accord.core.predicates.predicate import Predicate, parse
from accord.sim.machine import Delivery, Publication, SimSubscription, Start

S = 1_000_000


class Ping(Struct, frozen=True, array_like=True, tag="i"):
    number: int
    sent_us: int


class Pong(Struct, frozen=True, array_like=True, tag="o"):
    number: int
    sent_us: int


class Silent:
    """Does nothing but take note."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.name = start.name
        self.sends: list[tuple[str, Any]] = []
        self.ready: list[str] = []
        self.data: dict[str, list[bytes]] = {}
        self.received: list[tuple[int, str, Any]] = []
        self.links: list[tuple[int, str, bool]] = []
        self.advanced: list[int] = []
        self.taken: list[tuple[str, int]] = []
        self.due_us: int | None = None

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        self.taken.append((neighbour, bytes_wanted))
        frames, size = [], 0
        waiting = self.data.get(neighbour, [])
        while waiting and size < bytes_wanted:
            frames.append(waiting.pop(0))
            size += len(frames[-1])
        return frames

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        self.received.append((now_us, neighbour, message))

    def advance(self, now_us: int) -> None:
        self.advanced.append(now_us)
        self.due_us = None

    def next_due_us(self) -> int | None:
        return self.due_us

    def link_up(self, neighbour: str, now_us: int) -> None:
        self.links.append((now_us, neighbour, True))

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.links.append((now_us, neighbour, False))

    def check_invariants(self) -> None:
        pass


class Pinger(Silent):
    """Pings each neighbour once a second and answers."""

    ping_us = S

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.up: dict[str, int] = {}
        self.round_trips_us: dict[str, int] = {}
        self.number = 0
        self.random: Random = start.random
        self.due_us = None

    def link_up(self, neighbour: str, now_us: int) -> None:
        self.up[neighbour] = now_us + int(self.random.random() * self.ping_us)
        self._plan()

    def link_down(self, neighbour: str, now_us: int) -> None:
        del self.up[neighbour]
        self._plan()

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        if type(message) is Ping:
            self.sends.append((neighbour, Pong(message.number, message.sent_us)))
        else:
            self.round_trips_us[neighbour] = now_us - message.sent_us

    def advance(self, now_us: int) -> None:
        for neighbour, due_us in self.up.items():
            if due_us <= now_us:
                self.number += 1
                self.sends.append((neighbour, Ping(self.number, now_us)))
                self.up[neighbour] = now_us + self.ping_us
        self._plan()

    def _plan(self) -> None:
        self.due_us = min(self.up.values(), default=None)


class Carried(Struct, frozen=True, array_like=True):
    publication: int
    channel: str
    attributes: dict[str, Any]
    payload: bytes


_encoder = Encoder()
_decoder = Decoder(Carried)


class Flooder(Silent):
    """Passes on every event it has not seen to all neighbours but the one it came from."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.up: dict[str, bool] = {}
        self.seen: dict[int, bool] = {}
        self.wishes: dict[tuple[str, str], tuple[SimSubscription, Predicate | None]] = {}
        self.deliveries: list[Delivery] = []

    def link_up(self, neighbour: str, now_us: int) -> None:
        self.up[neighbour] = True

    def link_down(self, neighbour: str, now_us: int) -> None:
        del self.up[neighbour]

    def subscribe(self, wish: SimSubscription, now_us: int) -> None:
        predicate = parse(wish.where) if wish.where else None
        self.wishes[wish.subscriber, wish.filter] = (wish, predicate)

    def unsubscribe(self, wish: SimSubscription, now_us: int) -> None:
        del self.wishes[wish.subscriber, wish.filter]

    def publish(self, publication: Publication, now_us: int) -> None:
        attributes = dict(publication.attributes)
        carried = Carried(publication.number, publication.channel, attributes, publication.payload)
        self._pass_on(carried, "")

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        self._pass_on(_decoder.decode(message), neighbour)

    def _pass_on(self, carried: Carried, origin: str) -> None:
        if carried.publication in self.seen:
            return
        self.seen[carried.publication] = True
        for wish, predicate in self.wishes.values():
            is_wanted = predicate is None or predicate.evaluate(carried.attributes) is True
            if filter_selects(wish.filter, carried.channel) and is_wanted:
                self.deliveries.append(Delivery(wish.subscriber, carried.payload))
        frame = _encoder.encode(carried)
        for neighbour in self.up:
            if neighbour != origin:
                self.data.setdefault(neighbour, []).append(frame)
                self.ready.append(neighbour)
