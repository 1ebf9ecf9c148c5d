"""Nodes with one template each, on links that lose what a test says."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import msgspec

from accord.core.channels.template import Template
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.interests import Interest
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.route_manager import Requirement
from accord.core.overlay.signalling import TransitEvent

LATENCY_US = 10_000
CHANNEL = "chat"


def event(text: str, channel: str = CHANNEL, **more: Any) -> TransitEvent:
    return TransitEvent("", 0, 0, (), channel, text.encode(), **more)


class FakeContext:
    """What a template sees of its node in a `Net`."""

    def __init__(self, net: Net, name: str, incarnation: int = 1) -> None:
        self.name = name
        self.incarnation = incarnation
        self.map = LinkStateMap()
        self.got: list[str] = []
        self.delivered: list[TransitEvent] = []
        self.lost: list[str] = []
        self.room = 1 << 62  # for so many events
        self.waiting: set[tuple[str, str, str, int]] = set()  # for their links
        self._net = net
        self.watchers: list[Callable[[str, str, bytes | None], None]] = []

    def neighbours(self) -> list[str]:
        return self.map.neighbours(self.name)

    def send_message(self, neighbour: str, channel: str, body: bytes) -> None:
        self._net.send(self.name, neighbour, (channel, body))

    def forward(self, neighbour: str, event: TransitEvent) -> None:
        self._net.send(self.name, neighbour, event)

    def is_queued(self, neighbour: str, channel: str, source: str, number: int) -> bool:
        return (neighbour, channel, source, number) in self.waiting

    def send_routed(
        self, event: TransitEvent, destinations: list[str], requirement: Requirement
    ) -> None:
        raise NotImplementedError

    def can_accept(self, channel: str) -> bool:  # noqa: ARG002
        return self.room > 0

    def deliver(self, event: TransitEvent) -> None:
        self.room -= 1
        self.got.append(event.payload.decode())
        self.delivered.append(event)

    def report_dropped(self, event: TransitEvent, cause: str, count: int = 1) -> None:  # noqa: ARG002
        self.lost += [cause] * count

    def definition(self, channel: str) -> ChannelDefinition | None:  # noqa: ARG002
        return self._net.definition

    def watch(self, kind: str, callback: Callable[[str, str, bytes | None], None]) -> None:
        assert kind == "need"
        self.watchers.append(callback)


class Net:
    """`loses` says of each message whether it is lost: sender, receiver, and what it is."""

    def __init__(
        self, make: type[Template], links: str, options: dict[str, str] | None = None
    ) -> None:
        self.definition = ChannelDefinition(name=CHANNEL, options=options or {})
        self.links = [(each[0], each[1]) for each in links.split()]
        self.names = sorted({name for ends in self.links for name in ends})
        self.wanted = CHANNEL  # by those who join
        self.late_us = 0  # until nodes look at what has come
        self.loses: Callable[[str, str, Any], bool] = lambda *_: False
        self.now_us = 0
        self.sent: list[tuple[str, str, Any]] = []
        self._flying: list[tuple[int, int, str, str, Any]] = []
        self._order = 0
        self._make = make
        self._needs: dict[str, bool] = {}
        self.contexts: dict[str, FakeContext] = {}
        self.nodes: dict[str, Template] = {}
        for name in self.names:
            self.start(name)

    def start(self, name: str, incarnation: int = 1) -> None:
        """A node begins, for the first time or again."""
        context = self.contexts[name] = FakeContext(self, name, incarnation)
        self.nodes[name] = self._make(context)
        for one, other in self.links:
            for source, target in ((one, other), (other, one)):
                context.map.set_link(source, target, LATENCY_US, 0.0, True, 0.0)
        for member in self._needs:
            self._tell(name, member)

    def join(self, *members: str) -> None:
        for member in members:
            self._needs[member] = True
            for name in self.names:
                self._tell(name, member)

    def leave(self, *members: str) -> None:
        for member in members:
            del self._needs[member]
            for name in self.names:
                for watcher in self.contexts[name].watchers:
                    watcher(member, "1", None)

    def break_link(self, one: str, other: str) -> None:
        for context in self.contexts.values():
            context.map.set_link(one, other, LATENCY_US, 0.0, False, 0.0)
        self.links = [ends for ends in self.links if sorted(ends) != sorted((one, other))]

    def make_link(self, one: str, other: str) -> None:
        self.links.append((one, other))
        for context in self.contexts.values():
            for source, target in ((one, other), (other, one)):
                context.map.set_link(source, target, LATENCY_US, 0.0, True, 0.0)

    def stop(self, name: str) -> None:
        for one, other in list(self.links):
            if name in (one, other):
                self.break_link(one, other)
        del self.nodes[name]

    def publish(self, name: str, text: str, **more: Any) -> None:
        self.nodes[name].on_published(event(text, **more), [], self.definition, self.now_us)

    def send(self, source: str, target: str, message: Any) -> None:
        self.sent.append((source, target, message))
        is_linked = any(sorted(ends) == sorted((source, target)) for ends in self.links)
        if is_linked and not self.loses(source, target, message):
            self._order += 1
            at_us = self.now_us + LATENCY_US + self.late_us
            heappush(self._flying, (at_us, self._order, source, target, message))

    def run(self, for_us: int) -> None:
        until_us = self.now_us + for_us
        while True:
            dues = [node.next_due_us() for node in self.nodes.values()]
            next_us = min([each for each in dues if each is not None], default=until_us + 1)
            if self._flying:
                next_us = min(next_us, self._flying[0][0])
            if next_us > until_us:
                break
            self.now_us = max(self.now_us, next_us)
            while self._flying and self._flying[0][0] <= self.now_us:
                _, _, source, target, message = heappop(self._flying)
                self._arrive(source, target, message)
            for node in list(self.nodes.values()):
                node.advance(self.now_us)
                node.check_invariants()
        self.now_us = until_us

    def got(self, name: str) -> list[str]:
        return self.contexts[name].got

    def _arrive(self, source: str, target: str, message: Any) -> None:
        node = self.nodes.get(target)
        if node is None:
            return
        if isinstance(message, TransitEvent):
            node.on_event(source, message, self.now_us)
        else:
            channel, body = message
            node.on_message(source, channel, body, self.now_us)

    def _tell(self, name: str, member: str) -> None:
        for watcher in self.contexts[name].watchers:
            watcher(member, "1", msgspec.msgpack.encode(Interest(self.wanted)))
