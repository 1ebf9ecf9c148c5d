"""Nodes of two tiers for the simulator that admit subscriptions; nobody publishes anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from accord.core.admission.options import AdmissionOptions
from accord.core.admission.overlay_admission import OverlayAdmission
from accord.core.admission.secondary_admission import SecondaryAdmission
from accord.core.overlay.options import OverlayOptions
from accord.core.tiers.child import Child
from accord.core.tiers.parent import Parent
from accord.sim.admission_node import AdmissionSimNode, NodeCapacity, SimAdvertisement
from accord.sim.machine import Delivery, Make, SimSubscription, Start
from accord.sim.node import OverlayNode
from tests.sim.tier_nodes import is_child
from tests.sim.tier_quality_nodes import TIERS, NoEvents

NEVER = 1 << 62


class BackboneAdmission(AdmissionSimNode):
    def _join(self, start: Start, options: OverlayOptions) -> tuple[OverlayNode, OverlayAdmission]:
        self.parent = Parent(start.incarnation, TIERS, NoEvents(), self.tiers)
        self._sends: list[tuple[str, Any]] = []
        return super()._join(start, options)

    @property
    def sends(self) -> list[tuple[str, Any]]:
        for sends in (self.node.sends, self.parent.sends):
            self._sends += sends
            sends.clear()
        return self._sends

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        if is_child(neighbour):
            self.parent.receive(neighbour, message, now_us)
            self._apply_decisions(now_us)
        else:
            super().receive(neighbour, message, now_us)

    def advance(self, now_us: int) -> None:
        self.parent.advance(now_us)
        super().advance(now_us)

    def next_due_us(self) -> int:
        due_us = self.parent.next_due_us()
        return min(super().next_due_us(), NEVER if due_us is None else due_us)

    def link_up(self, neighbour: str, now_us: int) -> None:
        (self.parent if is_child(neighbour) else self.node).link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        (self.parent if is_child(neighbour) else self.node).link_down(neighbour, now_us)

    def check_invariants(self) -> None:
        super().check_invariants()
        self.parent.check_invariants()


class _Secondary:
    """What `AdmissionSimNode` has of an overlay node, with parents instead."""

    def __init__(self, start: Start, node: SecondaryAdmissionNode) -> None:
        self.child = Child(start.name, start.incarnation, TIERS)
        self.exchange = SecondaryAdmission(node.admission, start.incarnation, self.child.tiers)
        self.deliveries: list[Delivery] = []
        self._ranks = {name: rank for rank, name in enumerate(start.neighbours)}

    @property
    def sends(self) -> list[tuple[str, Any]]:
        return self.child.sends

    @property
    def ready(self) -> list[str]:
        return self.child.ready

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:  # noqa: ARG002
        return []

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        self.child.receive(neighbour, message, now_us)

    def advance(self, now_us: int) -> None:
        self.child.advance(now_us)
        self.exchange.advance(now_us)

    def next_due_us(self) -> int:
        due_us = self.child.next_due_us()
        return min(self.exchange.next_due_us(), NEVER if due_us is None else due_us)

    def link_up(self, neighbour: str, now_us: int) -> None:
        self.child.link_up(neighbour, self._ranks[neighbour], now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.child.link_down(neighbour, now_us)

    def check_invariants(self) -> None:
        self.child.check_invariants()
        self.exchange.check_invariants()

    def subscribe(self, wish: SimSubscription, now_us: int) -> None:
        pass

    def unsubscribe(self, wish: SimSubscription, now_us: int) -> None:
        pass


class SecondaryAdmissionNode(AdmissionSimNode):
    def _join(self, start: Start, options: OverlayOptions) -> Any:  # noqa: ARG002
        secondary = _Secondary(start, self)
        self.child = secondary.child
        return secondary, secondary.exchange


def tier_admitting_nodes(
    adverts: Sequence[SimAdvertisement],
    limits: NodeCapacity,
    admission: AdmissionOptions,
    overlay: OverlayOptions,
) -> Make:
    of_child = replace(admission, timing=admission.timing.of_child())

    def make(start: Start) -> AdmissionSimNode:
        own = [advert for advert in adverts if advert.node == start.name]
        if is_child(start.name):
            return SecondaryAdmissionNode(start, own, limits, of_child, overlay)
        return BackboneAdmission(start, own, limits, admission, overlay)

    return make
