"""Fact stores in virtual time, with links that lose, repeat and reorder, and nodes that crash.

Everything that is said goes through msgpack. Values are texts of rising numbers, so that each node
checks for itself that it never sees an older one after a newer, as long as it lives.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.overlay.state_store import FactMessage, StateOptions, StateStore

MS: Final = 1_000
S: Final = 1_000_000
KINDS: Final = ("link", "need")

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(FactMessage).decode


class FactNode:
    """A node while it runs."""

    def __init__(self, name: str, store: StateStore) -> None:
        self.name = name
        self.store = store
        self.timer_us = -1
        self.stamps: dict[str, tuple[int, int]] = {}
        self.numbers: dict[tuple[str, str, str], int] = {}
        self.view: dict[tuple[str, str, str], bytes] = {}
        for kind in KINDS:
            store.watch(kind, self._watcher(kind))

    def check(self) -> None:
        for origin in self.store.origins():
            stamp = self.store.version_of(origin)
            assert stamp >= self.stamps.get(origin, stamp), f"{self.name}: {origin} went back"
            self.stamps[origin] = stamp

    def _watcher(self, kind: str) -> Callable[[str, str, bytes | None], None]:
        def told(origin: str, key: str, value: bytes | None) -> None:
            at = origin, kind, key
            assert self.store.get(origin, kind, key) == value or self.store.name == origin
            if value is None:
                del self.view[at]
                return
            newest = self.numbers.get(at, 0)
            is_back = int(value) == newest and at not in self.view
            assert int(value) > newest or is_back, f"{self.name}: an older {at}"
            self.numbers[at] = int(value)
            self.view[at] = value

        return told


class FactNetwork:
    """`truth` is what each node says, up or not; what it says is all it knows after a crash."""

    def __init__(self, seed: int, names: list[str], options: StateOptions | None = None) -> None:
        self.random = random.Random(seed)  # noqa: S311 (to be replayed)
        self.options = StateOptions() if options is None else options
        self.now_us = 0
        self.loss = 0.0
        self.most_delay_us = 30 * MS
        self.repeated = 0.05
        self.nodes: dict[str, FactNode] = {}
        self.truth: dict[str, dict[tuple[str, str], bytes]] = {name: {} for name in names}
        self.links: dict[tuple[str, str], int] = {}  # which are up, and since which change
        self.trace: list[str] = []
        self.sent: dict[str, int] = {}
        self.steps = 0
        self.check_every = 50
        self._changes = 0
        self._number = 0
        self._happenings: list[tuple[int, int, Callable[[], None]]] = []
        for name in names:
            self.start(name)

    # ------------------------------------------------------------------------------- what happens

    def start(self, name: str, incarnation: int | None = None) -> None:
        if incarnation is None:
            incarnation = 1_000 + self.now_us // MS
        store = StateStore(name, incarnation, self.options, self.random.random)
        self.nodes[name] = FactNode(name, store)
        self.truth[name] = {}

    def crash(self, name: str) -> None:
        for one, other in list(self.links):
            if name in (one, other):
                self.cut(one, other)
        del self.nodes[name]
        self.truth[name] = {}

    def put(self, name: str, kind: str, key: str) -> None:
        self._number += 1
        value = str(self._number).encode()
        assert self.nodes[name].store.put(kind, key, value)
        self.truth[name][kind, key] = value
        self._look(name)

    def drop(self, name: str, kind: str, key: str) -> None:
        self.nodes[name].store.drop(kind, key)
        self.truth[name].pop((kind, key), None)
        self._look(name)

    def join(self, one: str, other: str) -> None:
        pair = min(one, other), max(one, other)
        if pair in self.links:
            return
        self._changes += 1
        self.links[pair] = self._changes
        for name, neighbour in (pair, pair[::-1]):
            self.nodes[name].store.link_up(neighbour, self.now_us)
            self._look(name)

    def cut(self, one: str, other: str) -> None:
        pair = min(one, other), max(one, other)
        if self.links.pop(pair, None) is not None:
            for name, neighbour in (pair, pair[::-1]):
                self.nodes[name].store.link_down(neighbour)
                self._look(name)

    def at(self, time_us: int, happening: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._happenings, (time_us, self._number, happening))

    # ------------------------------------------------------------------------------- time

    def run(self, until_us: int, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; gives whether it was done before."""
        while self._happenings and self._happenings[0][0] <= until_us:
            if is_done():
                return True
            self.now_us, _, happening = heapq.heappop(self._happenings)
            happening()
        if is_done():
            return True
        self.now_us = until_us
        return False

    def is_converged(self) -> bool:
        """Whether all nodes say the same, which is the truth."""
        stores = [node.store for node in self.nodes.values()]
        if len({store.digest for store in stores}) > 1:
            return False
        return self.is_true()

    def is_true(self) -> bool:
        truth = {
            (origin, *at): value
            for origin, facts in self.truth.items()
            if origin in self.nodes
            for at, value in facts.items()
        }
        for node in self.nodes.values():
            known = {
                (origin, kind, key): value
                for kind in KINDS
                for origin, key, value in node.store.all(kind)
            }
            if known != truth or node.view != truth:
                return False
        return True

    def is_idle(self) -> bool:
        return all(node.timer_us < 0 for node in self.nodes.values())

    # ------------------------------------------------------------------------------- inside

    def _look(self, name: str) -> None:
        """After something happened at a node: take what it sends, and wake it when it is due."""
        node = self.nodes[name]
        self.steps += 1
        node.check()
        if self.steps % self.check_every == 0:
            node.store.check_invariants()
        sends, node.store.sends = node.store.sends, []
        for neighbour, message in sends:
            self._send(name, neighbour, message)
        due_us = node.store.next_due_us()
        if due_us is not None:
            due_us = max(due_us, self.now_us)
            if node.timer_us < 0 or due_us < node.timer_us:
                node.timer_us = due_us
                self.at(due_us, lambda: self._wake(node, due_us))

    def _wake(self, node: FactNode, due_us: int) -> None:
        if node.timer_us != due_us or self.nodes.get(node.name) is not node:
            return
        node.timer_us = -1
        node.store.advance(self.now_us)
        due = node.store.next_due_us()
        assert due is None or due > self.now_us, "due again at once"
        self._look(node.name)

    def _send(self, name: str, neighbour: str, message: FactMessage) -> None:
        kind = type(message).__name__
        self.sent[kind] = self.sent.get(kind, 0) + 1
        pair = min(name, neighbour), max(name, neighbour)
        link = self.links[pair]
        data = _encode(message)
        self.trace.append(f"{self.now_us} {name} {neighbour} {data.hex()}")
        for _ in range(1 + (self.random.random() < self.repeated)):
            if self.random.random() >= self.loss:
                delay_us = MS + int(self.random.random() * self.most_delay_us)
                self.at(self.now_us + delay_us, lambda: self._arrive(link, name, neighbour, data))

    def _arrive(self, link: int, name: str, neighbour: str, data: bytes) -> None:
        pair = min(name, neighbour), max(name, neighbour)
        if self.links.get(pair) != link:
            return  # it went down meanwhile
        self.nodes[neighbour].store.receive(name, _decode(data), self.now_us)
        self._look(neighbour)
