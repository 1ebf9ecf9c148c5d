"""Quality between nodes: what a negotiation tells its neighbours, over the links of the overlay.

A link counts here where both of its ends say that it is up: then it is known how long it takes from
the neighbour, which is the way that events come. That is what it adds to a latency, and to the age
of what an event tells of; the share it loses is what it takes from a reliability.

Whoever changes something of the negotiation hands what that returned to `take`. What is for
neighbours goes there; everything else waits in `notices`, together with what follows from messages
and from time, for whoever drives the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from accord.core.channels.template import Context, Template
from accord.core.model.decoding import decoded
from accord.core.negotiation.believing import Qualities
from accord.core.negotiation.errors import QualityError
from accord.core.negotiation.messages import QualityMessage
from accord.core.negotiation.negotiation import Negotiation
from accord.core.negotiation.notices import Notice, Tell
from accord.core.negotiation.properties import Registry

SERVICE: Final = "$quality"

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(QualityMessage)


class QualityExchange(Template):
    """For `Channels.serve(SERVICE, lambda context: QualityExchange(context, negotiation))`."""

    def __init__(self, context: Context, negotiation: Negotiation) -> None:
        super().__init__(context)
        self.negotiation = negotiation
        self.notices: list[Notice] = []
        self.malformed = 0  # messages that are none
        self._links: dict[str, Qualities] = {}
        self._seen: tuple[int, list[str]] = (-1, [])

    def take(self, notices: Iterable[Notice]) -> None:
        """What the negotiation returned."""
        for notice in notices:
            if isinstance(notice, Tell):
                self.context.say(notice.neighbour, "", _encoder.encode(notice.message))
            else:
                self.notices.append(notice)

    def take_notices(self) -> list[Notice]:
        """Those that wait; they do not any more."""
        notices, self.notices = self.notices, []
        return notices

    def said(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        message = decoded(_decoder, body)
        if message is None:
            self.malformed += 1
            return
        self._look_at_links(now_us)
        self.take(self.negotiation.receive(neighbour, message, now_us=now_us))

    def advance(self, now_us: int) -> None:
        self._look_at_links(now_us)
        if self.negotiation.next_due_us() <= now_us:
            self.take(self.negotiation.advance(now_us=now_us))

    def next_due_us(self) -> int:
        return 0 if self._sight() != self._seen else self.negotiation.next_due_us()

    def check_invariants(self) -> None:
        self.negotiation.check_invariants()

    def _sight(self) -> tuple[int, list[str]]:
        return self.context.map.version, self.context.neighbours()

    def _look_at_links(self, now_us: int) -> None:
        sight = self._sight()
        if sight == self._seen:
            return
        self._seen = sight
        links: dict[str, Qualities] = {}
        for neighbour in sight[1]:
            qualities = self._qualities(neighbour)
            if qualities is not None:
                links[neighbour] = qualities
        before, self._links = self._links, links
        for neighbour in before:
            if neighbour not in links:
                self.take(self.negotiation.link_down(neighbour, now_us=now_us))
        for neighbour, qualities in links.items():
            if neighbour not in before:
                self.take(self.negotiation.link_up(neighbour, qualities, now_us=now_us))
            elif qualities != before[neighbour]:
                self.take(self.negotiation.link_changed(neighbour, qualities, now_us=now_us))

    def _qualities(self, neighbour: str) -> Qualities | None:
        """Of the link from there; None where it does not count."""
        map_, here = self.context.map, self.context.name
        link, delay_us = map_.link(neighbour, here), map_.delay_us((neighbour, here))
        if link is None or delay_us is None:
            return None
        delay_ms = delay_us / 1_000
        reliability = 100 * (1 - link.loss)
        known = {"latency": delay_ms, "freshness": delay_ms, "reliability": reliability}
        registry = self.negotiation.registry
        return {name: value for name, value in known.items() if _has_room(registry, name, value)}


def _has_room(registry: Registry, name: str, value: float) -> bool:
    """Whether the property is defined, and so that the value makes sense."""
    try:
        registry.get(name).position(value)
    except QualityError:
        return False
    return True
