"""Drives a negotiation over the links of the overlay and of the tiers.

An overlay link counts if both ends report it up: then the delay from the neighbour, the direction
that events take, is known. That delay adds to a latency and to the age of an event's information;
the loss of the link reduces a reliability.

Neighbours are also the secondary nodes that this node is a parent of; for a secondary node, its
parents. A secondary node is a leaf: it forwards nothing from one parent to another.

The caller hands the notices of every negotiation call to `dispatch`. Those for neighbours are sent;
all others wait in `notices`, with those caused by messages and time, for the driver of the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from accord.core.channels.template import Context, Template
from accord.core.model.errors import decode_or_none
from accord.core.overlay.tier_links import TierLinks
from accord.core.quality.messages import Notice, QualityMessage, SendToNeighbour
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.properties import PropertyRegistry, QualityError
from accord.core.quality.property_sync import PropertySync
from accord.core.quality.validation import Qualities

SERVICE: Final = "$quality"

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(QualityMessage)


class TierNegotiation:
    """Negotiation over tier links, the only links of a secondary node."""

    def __init__(self, negotiation: Negotiation, tiers: TierLinks) -> None:
        self.negotiation = negotiation
        self.notices: list[Notice] = []
        self.malformed = 0  # messages that could not be decoded
        self.property_sync = PropertySync(tiers)  # property definitions
        self._tiers = tiers
        self._links: dict[str, Qualities] = {}
        self._seen_version = -1
        tiers.register(SERVICE, self.receive)

    def dispatch(self, notices: Iterable[Notice]) -> None:
        """Sends the notices for neighbours and queues the others."""
        for notice in notices:
            if isinstance(notice, SendToNeighbour):
                self._send(notice.neighbour, _encoder.encode(notice.message))
            else:
                self.notices.append(notice)

    def take_notices(self) -> list[Notice]:
        """Drains the queued notices."""
        notices, self.notices = self.notices, []
        return notices

    def receive(self, neighbour: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_decoder, body)
        if message is None:
            self.malformed += 1
            return
        self._refresh_links(now_us)
        self.dispatch(self.negotiation.receive(neighbour, message, now_us=now_us))

    def advance(self, now_us: int) -> None:
        self._refresh_links(now_us)
        self.property_sync.advance(now_us)
        if self.negotiation.next_due_us() <= now_us:
            self.dispatch(self.negotiation.advance(now_us=now_us))

    def next_due_us(self) -> int:
        if self._is_stale():
            return 0
        return min(self.negotiation.next_due_us(), self.property_sync.next_due_us())

    def check_invariants(self) -> None:
        self.negotiation.check_invariants()

    def _send(self, neighbour: str, body: bytes) -> None:
        self._tiers.send_message(neighbour, SERVICE, body)

    def _is_stale(self) -> bool:
        """Whether links may have changed since they were last sampled."""
        return self._tiers.version != self._seen_version

    def _refresh_links(self, now_us: int) -> None:
        if not self._is_stale():
            return
        before, self._links = self._links, self._find_links()
        # Improvements first: when one parent takes over from another, no demand may lose what it
        # has both before and after.
        for neighbour, qualities in self._links.items():
            if neighbour not in before:
                self.dispatch(self.negotiation.link_up(neighbour, qualities, now_us=now_us))
        changed = [each for each, known in before.items() if self._links.get(each, known) != known]
        for each in sorted(changed, key=lambda each: _worse_by(before[each], self._links[each])):
            self.dispatch(self.negotiation.link_changed(each, self._links[each], now_us=now_us))
        for neighbour in before:
            if neighbour not in self._links:
                self.dispatch(self.negotiation.link_down(neighbour, now_us=now_us))

    def _find_links(self) -> dict[str, Qualities]:
        """Links that are up now."""
        self._seen_version = self._tiers.version
        return {
            # No loss: events that must not be lost are retransmitted.
            neighbour: self._qualities(link.delay_us, 0.0)
            for neighbour, link in self._tiers.links.items()
        }

    def _qualities(self, delay_us: float, loss: float) -> Qualities:
        delay_ms = delay_us / 1_000
        known = {"latency": delay_ms, "freshness": delay_ms, "reliability": 100 * (1 - loss)}
        registry = self.negotiation.registry
        return {
            name: value for name, value in known.items() if _is_in_domain(registry, name, value)
        }


class OverlayNegotiation(TierNegotiation, Template):
    """Negotiation over overlay links, as a template.

    `Channels.serve(SERVICE, lambda context: OverlayNegotiation(context, negotiation))` installs it.
    `tiers` are its links to secondary nodes.
    """

    def __init__(
        self, context: Context, negotiation: Negotiation, tiers: TierLinks | None = None
    ) -> None:
        Template.__init__(self, context)
        TierNegotiation.__init__(self, negotiation, TierLinks() if tiers is None else tiers)
        self._sampled: tuple[int, list[str]] = (-1, [])

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        self.receive(neighbour, body, now_us)

    def _send(self, neighbour: str, body: bytes) -> None:
        if neighbour in self._tiers.links:
            super()._send(neighbour, body)
        else:
            self.context.send_message(neighbour, "", body)

    def _is_stale(self) -> bool:
        return super()._is_stale() or self._sample() != self._sampled

    def _sample(self) -> tuple[int, list[str]]:
        return self.context.map.version, self.context.neighbours()

    def _find_links(self) -> dict[str, Qualities]:
        self._sampled = self._sample()
        links: dict[str, Qualities] = {}
        map_, here = self.context.map, self.context.name
        for neighbour in self._sampled[1]:
            link, delay_us = map_.link(neighbour, here), map_.delay_us((neighbour, here))
            if link is not None and delay_us is not None:
                links[neighbour] = self._qualities(delay_us, link.loss)
        return links | super()._find_links()


def _worse_by(before: Qualities, after: Qualities) -> float:
    return float(after.get("latency", 0.0)) - float(before.get("latency", 0.0))


def _is_in_domain(registry: PropertyRegistry, name: str, value: float) -> bool:
    """Whether the property is defined and the value lies in its domain."""
    try:
        registry.get(name).position(value)
    except QualityError:
        return False
    return True
