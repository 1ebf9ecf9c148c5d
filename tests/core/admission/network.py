"""Nodes that admit each other's subscriptions, in virtual time, over links that lose and reorder.

Everything that is said goes through msgpack. At each step it is checked that nothing is promised
twice, and that what an origin calls admitted is promised wherever it says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from random import Random
from typing import Final

import msgspec

from accord.core.admission.admission import ReservationProtocol
from accord.core.admission.messages import AdmissionMessage, FlowSpec
from accord.core.admission.reservation import ReservationState, ReservationTimers
from accord.core.admission.resources import CPU, Amounts, ReservationTable, link

MS: Final = 1_000
S: Final = 1_000_000

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(AdmissionMessage).decode


class Node:
    """While it runs."""

    def __init__(self, name: str, now_us: int, capacity: int, neighbours: list[str]) -> None:
        self.name = name
        self.started_us = now_us
        self.books = ReservationTable()
        self.books.set_capacity(CPU, capacity)
        for neighbour in neighbours:
            self.books.set_capacity(link(neighbour), capacity)
        self.protocol = ReservationProtocol(name, 1_000 + now_us, self.books, assess)
        self.timer_us = -1
        self.last: dict[int, ReservationState] = {}  # what clients were told, by request


def assess(wish: FlowSpec, towards: str, source: str) -> Amounts:
    return {CPU: wish.event_bytes, link(towards): wish.event_bytes}


class Network:
    def __init__(self, seed: int, links: list[tuple[str, str]], *, capacity: int = 100) -> None:
        self.random = Random(seed)  # noqa: S311 (to be replayed)
        self.links = links
        self.capacity = capacity
        self.now_us = 0
        self.loss = 0.0
        self.repeated = 0.0
        self.most_delay_us = 20 * MS
        self.cut: set[tuple[str, str]] = set()
        self.nodes: dict[str, Node] = {}
        self.names = sorted({name for pair in links for name in pair})
        self.told: list[tuple[str, int, ReservationState]] = []
        self._number = 0
        self._happenings: list[tuple[int, int, Callable[[], None]]] = []
        for name in self.names:
            self.start(name)

    # -------------------------------------------------------------------------------- what happens

    def neighbours(self, name: str) -> list[str]:
        return [a if b == name else b for a, b in self.links if name in (a, b)]

    def start(self, name: str) -> None:
        self.nodes[name] = Node(name, self.now_us, self.capacity, self.neighbours(name))

    def crash(self, name: str) -> None:
        del self.nodes[name]

    def path(self, origin: str, hops: int) -> tuple[str, ...]:
        """A random simple path that begins there."""
        path = [origin]
        while len(path) <= hops:
            further = [name for name in self.neighbours(path[-1]) if name not in path]
            if not further:
                break
            path.append(self.random.choice(further))
        return tuple(path)

    def request(
        self,
        origin: str,
        paths: list[tuple[str, ...]],
        amount: int,
        percent: float | None = None,
    ) -> int:
        """Fully guaranteed, if no percentage is given."""
        protocol = self.nodes[origin].protocol
        wish = FlowSpec("a", "TRUE", is_full=percent is None, event_bytes=amount)
        number = protocol.requests.request(
            wish, paths, {CPU: amount}, percent=percent or 100.0, now_us=self.now_us
        )
        self._look(origin)
        return number

    def end(self, origin: str, number: int) -> None:
        self.nodes[origin].protocol.requests.end(number)
        self.nodes[origin].last.pop(number, None)
        self._look(origin)

    def reroute(self, origin: str, number: int, paths: list[tuple[str, ...]]) -> None:
        self.nodes[origin].protocol.requests.reroute(number, paths, self.now_us)
        self._look(origin)

    def admitted(self) -> list[tuple[str, int]]:
        return [
            (name, number)
            for name, node in self.nodes.items()
            for number, state in node.last.items()
            if state is ReservationState.ADMITTED
        ]

    def at(self, time_us: int, happening: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._happenings, (time_us, self._number, happening))

    def run(self, until_us: int) -> None:
        while self._happenings and self._happenings[0][0] <= until_us:
            self.now_us, number, happening = heapq.heappop(self._happenings)
            happening()
            if number % 10 == 0:
                self.check()
        self.now_us = until_us

    # -------------------------------------------------------------------------------------- checks

    def check(self) -> None:
        for node in self.nodes.values():
            node.books.check_invariants()
            node.protocol.check_invariants()
            assert not node.books.overcommitted()
        for name, node in self.nodes.items():
            for request in node.protocol.requests._requests.values():
                if request.state is not ReservationState.ADMITTED:
                    continue
                for number, leg in request.legs.items():
                    for other in leg.agreed:
                        assert leg.confirmed_us is not None
                        holder = self.nodes.get(other)
                        if holder is None or holder.started_us >= leg.confirmed_us:
                            continue  # not known yet at the origin
                        held = holder.protocol.transit.refreshed()
                        assert (request.id, number) in held, f"{name}: {request.id} at {other}"

    def check_settled(self) -> None:
        """Books are the sum of what was admitted, and of nothing else."""
        self.check()
        expected: dict[str, set[Hashable]] = {name: set() for name in self.nodes}
        for name, node in self.nodes.items():
            for request in node.protocol.requests._requests.values():
                assert request.state is ReservationState.ADMITTED
                assert node.last[request.id.number] is ReservationState.ADMITTED
                if request.own_verdict.is_agreed:
                    expected[name].add(request.id)
                for number, leg in request.legs.items():
                    for other in leg.agreed:
                        expected[other].add((request.id, number))
            admitted = [
                number for number, state in node.last.items() if state is ReservationState.ADMITTED
            ]
            assert sorted(admitted) == sorted(node.protocol.requests._requests)
        for name, node in self.nodes.items():
            assert set(node.books) == expected[name], name

    # -------------------------------------------------------------------------------------- inside

    def _look(self, name: str) -> None:
        """After something happened at a node: take what it says, and wake it when it is due."""
        node = self.nodes[name]
        for decision in node.protocol.decisions:
            self._tell(node, decision.number, decision.state)
            assert decision.state is ReservationState.ADMITTED or decision.refusals
        node.protocol.decisions.clear()
        sends = list(node.protocol.sends)
        node.protocol.sends.clear()
        for neighbour, message in sends:
            self._send(name, neighbour, message)
        due_us = node.protocol.next_due_us()
        if due_us is not None:
            due_us = max(due_us, self.now_us)
            if node.timer_us < 0 or due_us < node.timer_us:
                node.timer_us = due_us
                self.at(due_us, lambda: self._wake(node, due_us))

    def _tell(self, node: Node, number: int, state: ReservationState) -> None:
        before = node.last.get(number)
        if state is ReservationState.WITHDRAWN:
            assert before is ReservationState.ADMITTED
        else:
            assert before in (None, ReservationState.ADMITTED)
            assert state is ReservationState.ADMITTED or before is None
        node.last[number] = state
        self.told.append((node.name, number, state))

    def _wake(self, node: Node, due_us: int) -> None:
        if node.timer_us != due_us or self.nodes.get(node.name) is not node:
            return
        node.timer_us = -1
        node.protocol.advance(self.now_us)
        due = node.protocol.next_due_us()
        assert due is None or due > self.now_us, "due again at once"
        self._look(node.name)

    def _send(self, name: str, neighbour: str, message: AdmissionMessage) -> None:
        assert neighbour in self.neighbours(name)
        data = _encode(message)
        for _ in range(1 + (self.random.random() < self.repeated)):
            if self.random.random() >= self.loss and not self._is_cut(name, neighbour):
                delay_us = MS + int(self.random.random() * self.most_delay_us)
                self.at(self.now_us + delay_us, lambda: self._arrive(name, neighbour, data))

    def _is_cut(self, name: str, neighbour: str) -> bool:
        return (min(name, neighbour), max(name, neighbour)) in self.cut

    def _arrive(self, name: str, neighbour: str, data: bytes) -> None:
        node = self.nodes.get(neighbour)
        if node is not None and not self._is_cut(name, neighbour):
            node.protocol.receive(name, _decode(data), self.now_us)
            self._look(neighbour)


TIMING: Final = ReservationTimers()
