"""A few overlays in virtual time, with links of fixed latency that can be cut."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Final

import msgspec

from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.interests import Interest
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Message, Overlay
from accord.core.overlay.route_manager import Requirement
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.status import NetStatus
from accord.core.overlay.status_snapshot import net_status

MS: Final = 1_000
S: Final = 1_000_000

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Message).decode


class OverlayNetwork:
    """`links` have their latencies in milliseconds; all nodes learn what each of them needs."""

    def __init__(
        self, links: dict[tuple[str, str], int], options: OverlayOptions | None = None
    ) -> None:
        self.now_us = S
        self.latencies_us: dict[tuple[str, str], int] = {}
        self.nodes: dict[str, Overlay] = {}
        self.needs: dict[str, dict[tuple[str, str], Interest]] = {}
        self._order = count()
        self._under_way: list[tuple[int, int, str, str, bytes]] = []
        chosen = OverlayOptions(ping_us=100 * MS) if options is None else options
        for name in sorted({end for link in links for end in link}):
            self.needs[name] = {}
            random = Random(name).random  # noqa: S311
            self.nodes[name] = Overlay(name, 1_000, chosen, random, self._needing(name))
        for (one, other), latency_ms in links.items():
            self.join(one, other, latency_ms)

    def join(self, one: str, other: str, latency_ms: int) -> None:
        for source, target in ((one, other), (other, one)):
            self.latencies_us[source, target] = latency_ms * MS
            self.nodes[source].link_up(target, self.now_us)

    def cut(self, one: str, other: str) -> None:
        for source, target in ((one, other), (other, one)):
            del self.latencies_us[source, target]
            self.nodes[source].link_down(target, self.now_us)

    def define(self, node: str, definition: ChannelDefinition) -> None:
        assert self.nodes[node].directory.create(definition, replace=True) is None

    def publish(self, source: str, target: str, channel: str, *, qos: int = 0) -> None:
        overlay = self.nodes[source]
        overlay.now_us = self.now_us
        found = overlay.directory.look_up(channel)
        required = Requirement()
        if found is not None:
            required = Requirement(found.max_delay_us, found.paths, found.resiliency)
        overlay.publish(TransitEvent("", 0, 0, (), channel, b"x", qos=qos), [target], required)

    def run(self, until: Callable[[], bool], *, most_s: int = 60) -> None:
        """Until something is so; it has to be some time."""
        last_us = self.now_us + most_s * S
        while not until():
            assert self.now_us < last_us, "that does not happen"
            self._step()

    def run_for(self, time_us: int) -> None:
        until_us = self.now_us + time_us
        self.run(lambda: self.now_us >= until_us, most_s=time_us // S + 1)

    def status(self, node: str) -> NetStatus:
        return net_status(self.nodes[node])

    def _step(self) -> None:
        dues = [each.next_due_us() for each in self.nodes.values()]
        if self._under_way:
            dues.append(self._under_way[0][0])
        self.now_us = max(self.now_us + 1, min(dues))
        while self._under_way and self._under_way[0][0] <= self.now_us:
            _, _, source, target, message = heapq.heappop(self._under_way)
            if (source, target) in self.latencies_us:
                self.nodes[target].receive(source, _decode(message), self.now_us)
        for name, overlay in self.nodes.items():
            if overlay.next_due_us() <= self.now_us:
                overlay.advance(self.now_us)
            self._send(name, overlay)
            overlay.deliveries.clear()
            overlay.check_invariants()

    def _send(self, name: str, overlay: Overlay) -> None:
        sends: list[tuple[str, Message]] = list(overlay.sends)
        overlay.sends.clear()
        for neighbour in list(overlay.outboxes.all):
            sends += [(neighbour, each) for each in overlay.take(neighbour, 65_536, self.now_us)]
        overlay.ready.clear()
        for neighbour, message in sends:
            latency_us = self.latencies_us.get((name, neighbour))
            if latency_us is not None:
                at_us = self.now_us + latency_us
                each = (at_us, next(self._order), name, neighbour, _encode(message))
                heapq.heappush(self._under_way, each)

    def _needing(self, name: str) -> Callable[[str, str, Interest | None], None]:
        def needing(origin: str, key: str, need: Interest | None) -> None:
            if need is None:
                self.needs[name].pop((origin, key), None)
            else:
                self.needs[name][origin, key] = need

        return needing
