"""Drives a negotiation over the links of the overlay and of the tiers.

An overlay link counts if both ends report it up: then the delay from the neighbour, the direction
that events take, is known. That delay adds to a latency and to the age of an event's information;
the loss of the link reduces a reliability.

Neighbours are also the secondary nodes that this node is a parent of; for a secondary node, its
parents. A secondary node is a leaf: it forwards nothing from one parent to another.

The caller hands the notices of every negotiation call to `take`. Those for neighbours are sent; all
others wait in `notices`, with those caused by messages and time, for the driver of the node.
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
        self.defining = PropertySync(tiers)  # property definitions
        self._tiers = tiers
        self._links: dict[str, Qualities] = {}
        self._seen = -1
        tiers.serve(SERVICE, self.hear)

    def take(self, notices: Iterable[Notice]) -> None:
        """Sends the notices for neighbours and queues the others."""
        for notice in notices:
            if isinstance(notice, SendToNeighbour):
                self._tell(notice.neighbour, _encoder.encode(notice.message))
            else:
                self.notices.append(notice)

    def take_notices(self) -> list[Notice]:
        """Drains the queued notices."""
        notices, self.notices = self.notices, []
        return notices

    def hear(self, neighbour: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_decoder, body)
        if message is None:
            self.malformed += 1
            return
        self._look_at_links(now_us)
        self.take(self.negotiation.receive(neighbour, message, now_us=now_us))

    def advance(self, now_us: int) -> None:
        self._look_at_links(now_us)
        self.defining.advance(now_us)
        if self.negotiation.next_due_us() <= now_us:
            self.take(self.negotiation.advance(now_us=now_us))

    def next_due_us(self) -> int:
        if self._is_news():
            return 0
        return min(self.negotiation.next_due_us(), self.defining.next_due_us())

    def check_invariants(self) -> None:
        self.negotiation.check_invariants()

    def _tell(self, neighbour: str, body: bytes) -> None:
        self._tiers.say(neighbour, SERVICE, body)

    def _is_news(self) -> bool:
        """Whether links may have changed since they were last sampled."""
        return self._tiers.version != self._seen

    def _look_at_links(self, now_us: int) -> None:
        if not self._is_news():
            return
        before, self._links = self._links, self._find_links()
        # Improvements first: when one parent takes over from another, no demand may lose what it
        # has both before and after.
        for neighbour, qualities in self._links.items():
            if neighbour not in before:
                self.take(self.negotiation.link_up(neighbour, qualities, now_us=now_us))
        changed = [each for each, known in before.items() if self._links.get(each, known) != known]
        for each in sorted(changed, key=lambda each: _worse_by(before[each], self._links[each])):
            self.take(self.negotiation.link_changed(each, self._links[each], now_us=now_us))
        for neighbour in before:
            if neighbour not in self._links:
                self.take(self.negotiation.link_down(neighbour, now_us=now_us))

    def _find_links(self) -> dict[str, Qualities]:
        """Links that are up now."""
        self._seen = self._tiers.version
        return {
            # No loss: events that must not be lost are retransmitted.
            neighbour: self._qualities(link.delay_us, 0.0)
            for neighbour, link in self._tiers.links.items()
        }

    def _qualities(self, delay_us: float, loss: float) -> Qualities:
        delay_ms = delay_us / 1_000
        known = {"latency": delay_ms, "freshness": delay_ms, "reliability": 100 * (1 - loss)}
        registry = self.negotiation.registry
        return {name: value for name, value in known.items() if _has_room(registry, name, value)}


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
        self._sight: tuple[int, list[str]] = (-1, [])

    def said(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        self.hear(neighbour, body, now_us)

    def _tell(self, neighbour: str, body: bytes) -> None:
        if neighbour in self._tiers.links:
            super()._tell(neighbour, body)
        else:
            self.context.say(neighbour, "", body)

    def _is_news(self) -> bool:
        return super()._is_news() or self._look() != self._sight

    def _look(self) -> tuple[int, list[str]]:
        return self.context.map.version, self.context.neighbours()

    def _find_links(self) -> dict[str, Qualities]:
        self._sight = self._look()
        links: dict[str, Qualities] = {}
        map_, here = self.context.map, self.context.name
        for neighbour in self._sight[1]:
            link, delay_us = map_.link(neighbour, here), map_.delay_us((neighbour, here))
            if link is not None and delay_us is not None:
                links[neighbour] = self._qualities(delay_us, link.loss)
        return links | super()._find_links()


def _worse_by(before: Qualities, after: Qualities) -> float:
    return float(after.get("latency", 0.0)) - float(before.get("latency", 0.0))


def _has_room(registry: PropertyRegistry, name: str, value: float) -> bool:
    """Whether the property is defined and the value lies in its domain."""
    try:
        registry.get(name).position(value)
    except QualityError:
        return False
    return True
