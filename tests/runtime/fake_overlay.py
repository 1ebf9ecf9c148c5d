"""Stands in for an overlay: notes what links tell it, and has data for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from tests.core.links.conversing import CODEC, Load

from accord.core.links.handshake import LinkPeer, LocalIdentity, SharedKey
from accord.core.links.options import LinkOptions
from accord.runtime.link_manager import LinkManager
from accord.runtime.transports.interface import LinkTransport
from accord.runtime.transports.udp import UdpEndpoint


class FakeOverlay:
    def __init__(self) -> None:
        self.sends: list[tuple[str, Any]] = []
        self.events: list[str] = []
        self.received: dict[str, list[Any]] = {}
        self.outboxes: dict[str, list[bytes]] = {}
        self.tolerant: dict[str, list[bytes]] = {}
        self.due_us: int | None = None
        self.advanced = 0
        self.fails_at = -1

    def link_up(self, neighbour: str, now_us: int) -> None:  # noqa: ARG002
        self.events.append(f"up {neighbour}")

    def link_down(self, neighbour: str, now_us: int) -> None:  # noqa: ARG002
        self.events.append(f"down {neighbour}")

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:  # noqa: ARG002
        assert self.is_up(neighbour)
        if message.number == self.fails_at:
            raise RuntimeError("a mistake")
        self.received.setdefault(neighbour, []).append(message)

    def advance(self, now_us: int) -> None:  # noqa: ARG002
        self.due_us = None
        self.advanced += 1

    def next_due_us(self) -> int | None:
        return self.due_us

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        return _taken(self.outboxes.get(neighbour, []), bytes_wanted) or _taken(
            self.tolerant.get(neighbour, []), bytes_wanted
        )

    def take_datagrams(
        self,
        neighbour: str,
        bytes_wanted: int,  # noqa: ARG002
        message_bytes: int,
    ) -> list[bytes]:
        waiting = self.tolerant.get(neighbour, [])
        fitting = [each for each in waiting if len(each) <= message_bytes]
        self.tolerant[neighbour] = [each for each in waiting if len(each) > message_bytes]
        return fitting

    def is_up(self, neighbour: str) -> bool:
        told = [each for each in self.events if each.endswith(f" {neighbour}")]
        return bool(told) and told[-1] == f"up {neighbour}"

    def put(self, neighbour: str, *loads: Load) -> None:
        self.outboxes.setdefault(neighbour, []).extend(map(msgspec.msgpack.encode, loads))

    def numbers(self, neighbour: str) -> list[int]:
        return [message.number for message in self.received.get(neighbour, [])]


def _taken(waiting: list[bytes], bytes_wanted: int) -> list[bytes]:
    taken: list[bytes] = []
    size = 0
    while waiting and size < bytes_wanted:
        taken.append(waiting.pop(0))
        size += len(taken[-1])
    return taken


class Node:
    """A node that has nothing but links."""

    def __init__(
        self,
        name: str,
        transport: LinkTransport,
        *,
        key: bytes = b"secret",
        incarnation: int = 1,
        options: LinkOptions | None = None,
        endpoint: UdpEndpoint | None = None,
        most_links: int = 100,
        quiet_us: int = 1 << 60,
        objection: Callable[[LinkPeer], str] = lambda _: "",
    ) -> None:
        self.name = name
        self.overlay = FakeOverlay()
        self.neighbours = LinkManager(
            self.overlay,
            LocalIdentity(node=name, incarnation=incarnation, key=SharedKey(key)),
            CODEC,
            lambda _: transport,
            options=options,
            endpoint=endpoint,
            max_links=most_links,
            quiet_us=quiet_us,
            objection=objection,
            random=lambda: 0.0,
        )

    def send(self, neighbour: str, *messages: Any) -> None:
        self.overlay.sends += [(neighbour, message) for message in messages]
        self.neighbours.due()

    def is_linked(self, *names: str) -> bool:
        return all(name in self.neighbours.links for name in names)


async def close_all(nodes: Sequence[Node]) -> None:
    for node in nodes:
        await node.neighbours.close()
