"""Nodes of two tiers for the simulator that negotiate quality with each other."""

from __future__ import annotations

from typing import Any

from accord.core.overlay.interests import Interest
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.signalling import TransitEvent
from accord.core.quality.overlay_negotiation import TierNegotiation
from accord.core.tiers.child import Child
from accord.core.tiers.messages import ChannelLookup, ChannelLookupReply, TierOptions
from accord.core.tiers.parent import Parent
from accord.sim.machine import Start
from tests.sim.quality_nodes import QualityNode
from tests.sim.tier_nodes import is_child

S = 1_000_000
TIERS = TierOptions(
    pulse_us=200_000, again_us=100_000, return_us=5 * S, quiet_us=4 * S, lease_us=12 * S
)


class NoEvents:
    """What a parent does for its children where nobody publishes anything."""

    def on_joined(self, child: str, incarnation: int) -> None:
        pass

    def on_left(self, child: str) -> None:
        pass

    def on_interest(self, child: str, key: str, need: Interest | None) -> None:
        pass

    def publish_event(self, event: TransitEvent, *, is_echoed: bool) -> int | None:  # noqa: ARG002
        return 0

    def unconfirmed(self, channel: str) -> list[int]:  # noqa: ARG002
        return []

    def child_timeout_us(self, channel: str) -> int:  # noqa: ARG002
        return 0

    def look_up(self, ask: ChannelLookup) -> ChannelLookupReply:
        return ChannelLookupReply(0, {}, after=ask.after, is_last=True)

    def directory_version(self) -> int:
        return 0


class BackboneQuality(QualityNode):
    def _join(self, start: Start, options: OverlayOptions) -> TierNegotiation:
        exchange = super()._join(start, options)
        self.parent = Parent(start.incarnation, TIERS, NoEvents(), self.tiers)
        self._sends: list[tuple[str, Any]] = []
        return exchange

    @property
    def sends(self) -> list[tuple[str, Any]]:
        for sends in (self.overlay.sends, self.parent.sends):
            self._sends += sends
            sends.clear()
        return self._sends

    def link_up(self, neighbour: str, now_us: int) -> None:
        self.now_us = now_us
        (self.parent if is_child(neighbour) else self.overlay).link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.now_us = now_us
        (self.parent if is_child(neighbour) else self.overlay).link_down(neighbour, now_us)

    def _receive(self, neighbour: str, message: Any) -> None:
        if is_child(neighbour):
            self.parent.receive(neighbour, message, self.now_us)
        else:
            super()._receive(neighbour, message)

    def _advance(self) -> None:
        self.parent.advance(self.now_us)
        super()._advance()

    def _next_due_us(self) -> int:
        due_us = self.parent.next_due_us()
        return min(super()._next_due_us(), 1 << 62 if due_us is None else due_us)

    def _check_net(self) -> None:
        super()._check_net()
        self.parent.check_invariants()


class SecondaryQuality(QualityNode):
    is_leaf = True

    def _join(self, start: Start, options: OverlayOptions) -> TierNegotiation:  # noqa: ARG002
        self.child = Child(start.name, start.incarnation, TIERS)
        self._ranks = {name: rank for rank, name in enumerate(start.neighbours)}
        return TierNegotiation(self.quality, self.child.tiers)

    @property
    def sends(self) -> list[tuple[str, Any]]:
        return self.child.sends

    @property
    def ready(self) -> list[str]:
        return self.child.ready

    def link_up(self, neighbour: str, now_us: int) -> None:
        self.now_us = now_us
        self.child.link_up(neighbour, self._ranks[neighbour], now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.now_us = now_us
        self.child.link_down(neighbour, now_us)

    def _receive(self, neighbour: str, message: Any) -> None:
        self.child.receive(neighbour, message, self.now_us)

    def _advance(self) -> None:
        self.child.advance(self.now_us)
        self.exchange.advance(self.now_us)

    def _next_due_us(self) -> int:
        due_us = self.child.next_due_us()
        return min(self.exchange.next_due_us(), 1 << 62 if due_us is None else due_us)

    def _check_net(self) -> None:
        self.child.check_invariants()
        self.exchange.check_invariants()
