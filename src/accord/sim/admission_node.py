"""Simulated nodes with admission control, and with limited processors and links.

Each copy of an event that a node delivers to a client or sends to a neighbour takes processor time.
Events queue for the processor up to a time limit; those that would wait longer are dropped. Links
have the simulation's rates, and nodes drop events that would wait too long for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from accord.core.admission.admission import Admission
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_poset import PER_HZ
from accord.core.admission.options import AdmissionOptions
from accord.core.admission.overlay_admission import SERVICE, OverlayAdmission
from accord.core.admission.reservation import ReservationState
from accord.core.admission.resources import CPU, link
from accord.core.admission.subscription_requests import AdmissionOutcome
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Control
from accord.core.overlay.tier_links import TierLinks
from accord.core.predicates.predicate import EVERYTHING, parse
from accord.sim.machine import Delivery, Make, Publication, SimSubscription, Start
from accord.sim.node import OverlayNode

S: Final = 1_000_000


class SimAdvertisement(Struct, frozen=True):
    """The advertisement of a node's publisher."""

    node: str
    publisher: str
    channel: str
    rate_hz: float
    where: str = ""


class NodeCapacity(Struct, frozen=True, kw_only=True):
    """The capacity of each node; 0 for unlimited."""

    rate_hz: int = 0  # copies of events its processor handles
    link_bps: int = 0  # reservable rate of each of its links
    wait_us: int = S  # how long events may wait for the processor


class AdmissionSimNode:
    """`outcomes` has the last decision on each subscription, `discarded` counts dropped events."""

    def __init__(
        self,
        start: Start,
        adverts: Sequence[SimAdvertisement],
        limits: NodeCapacity,
        admission: AdmissionOptions,
        overlay: OverlayOptions,
    ) -> None:
        self.name = start.name
        self.admission = Admission(start.name, start.incarnation, admission)
        self.tiers = TierLinks()
        self.node, self.overlay_admission = self._join(start, overlay)
        if limits.rate_hz:
            self.admission.set_capacity(CPU, limits.rate_hz * PER_HZ)
        if limits.link_bps:
            for neighbour in start.neighbours:
                self.admission.set_capacity(link(neighbour), limits.link_bps)
        self.outcomes: dict[tuple[str, str], AdmissionOutcome] = {}
        self.handled = 0  # copies of events
        self.discarded = 0  # events dropped by its processor
        self._capacity = limits
        self._waiting: deque[tuple[str, Any]] = deque()  # neighbours and frames, or publications
        self._free_us = 0  # when the processor has finished its current work
        self._subscriptions: dict[tuple[str, str], SimSubscription] = {}
        self._active: dict[SimSubscription, bool] = {}
        for advert in adverts:
            self.advertise(advert, start.now_us)

    def _join(self, start: Start, options: OverlayOptions) -> tuple[OverlayNode, OverlayAdmission]:
        node = OverlayNode(start, options)
        exchange = node.channels.serve(
            SERVICE,
            lambda context: OverlayAdmission(
                context, node.overlay.store, self.admission, self.tiers
            ),
        )
        return node, exchange

    # ----------------------------------------------------------------------------------- clients

    @property
    def deliveries(self) -> list[Delivery]:
        return self.node.deliveries

    def advertise(self, advert: SimAdvertisement, now_us: int) -> None:
        filter_ = _filter(advert.channel, advert.where)
        name = advert.channel + advert.where
        self.overlay_admission.advertise(advert.publisher, name, filter_, advert.rate_hz, now_us)

    def unadvertise(self, advert: SimAdvertisement) -> None:
        self.overlay_admission.unadvertise(advert.publisher, advert.channel + advert.where)

    def publish(self, publication: Publication, now_us: int) -> None:
        self._enqueue("", publication, now_us)

    def subscribe(self, subscription: SimSubscription, now_us: int) -> None:
        self._subscriptions[subscription.subscriber, subscription.filter] = subscription
        filter_ = _filter(subscription.filter, subscription.where)
        outcome = self.overlay_admission.subscribe(
            subscription.subscriber, subscription.filter, filter_, now_us=now_us
        )
        if outcome is not None:
            self._on_decision(outcome, now_us)

    def unsubscribe(self, subscription: SimSubscription, now_us: int) -> None:
        key = (subscription.subscriber, subscription.filter)
        del self._subscriptions[key]
        self.outcomes.pop(key, None)
        self.overlay_admission.unsubscribe(*key)
        self._set_active(subscription, False, now_us)

    # ------------------------------------------------------------------------------- for its host

    @property
    def sends(self) -> list[tuple[str, Control]]:
        return self.node.sends

    @property
    def ready(self) -> list[str]:
        return self.node.ready

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        return self.node.take(neighbour, bytes_wanted)

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        if isinstance(message, bytes):
            self._enqueue(neighbour, message, now_us)
        else:
            self.node.receive(neighbour, message, now_us)
            self._apply_decisions(now_us)

    def advance(self, now_us: int) -> None:
        self._process(now_us)
        self.node.advance(now_us)
        self._apply_decisions(now_us)

    def next_due_us(self) -> int:
        due_us = self.node.next_due_us()
        return min(due_us, self._free_us) if self._waiting else due_us

    def link_up(self, neighbour: str, now_us: int) -> None:
        self.node.link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.node.link_down(neighbour, now_us)

    def check_invariants(self) -> None:
        self.node.check_invariants()
        for key, outcome in self.outcomes.items():
            assert (outcome.state is ReservationState.ADMITTED) == (
                self._subscriptions[key] in self._active
            )

    # -------------------------------------------------------------------------------- decisions

    def _apply_decisions(self, now_us: int) -> None:
        decisions = self.admission.decisions
        for outcome in decisions:
            self._on_decision(outcome, now_us)
        decisions.clear()

    def _on_decision(self, outcome: AdmissionOutcome, now_us: int) -> None:
        assert isinstance(outcome.key, str)
        key = (outcome.client, outcome.key)
        self.outcomes[key] = outcome
        self._set_active(
            self._subscriptions[key], outcome.state is ReservationState.ADMITTED, now_us
        )

    def _set_active(self, subscription: SimSubscription, is_active: bool, now_us: int) -> None:
        if is_active and subscription not in self._active:
            self._active[subscription] = True
            self.node.subscribe(subscription, now_us)
        elif not is_active and self._active.pop(subscription, False):
            self.node.unsubscribe(subscription, now_us)

    # -------------------------------------------------------------------------------- processor

    def _enqueue(self, neighbour: str, what: Any, now_us: int) -> None:
        """Queue an event for the processor."""
        if self._capacity.rate_hz:
            waits_us = max(self._free_us - now_us, 0)
            waits_us += len(self._waiting) * S // self._capacity.rate_hz
            if waits_us > self._capacity.wait_us:
                self.discarded += 1
                return
        self._waiting.append((neighbour, what))
        self._process(now_us)

    def _process(self, now_us: int) -> None:
        while self._waiting and self._free_us <= now_us:
            neighbour, what = self._waiting.popleft()
            before = self._copies()
            if neighbour:
                self.node.receive(neighbour, what, now_us)
            else:
                self.node.publish(what, now_us)
            copies = self._copies() - before
            self.handled += copies
            if self._capacity.rate_hz:
                self._free_us = max(self._free_us, now_us) + copies * S // self._capacity.rate_hz

    def _copies(self) -> int:
        """The number of copies waiting to be delivered or sent."""
        transits = self.node.overlay.outboxes.all.values()
        return len(self.node.deliveries) + sum(sum(each.outbox.depth()) for each in transits)


def admission_nodes(
    adverts: Sequence[SimAdvertisement],
    *,
    limits: NodeCapacity | None = None,
    of_nodes: Mapping[str, NodeCapacity] | None = None,
    admission: AdmissionOptions | None = None,
    overlay: OverlayOptions | None = None,
) -> Make:
    """Factory for the nodes of a simulation; `of_nodes` have other capacities than the rest."""
    usual = limits or NodeCapacity()

    def make(start: Start) -> AdmissionSimNode:
        return AdmissionSimNode(
            start,
            [advert for advert in adverts if advert.node == start.name],
            (of_nodes or {}).get(start.name, usual),
            admission or AdmissionOptions(),
            overlay or OverlayOptions(),
        )

    return make


def _filter(channel: str, where: str) -> Filter:
    return Filter(channel, parse(where) if where else EVERYTHING)
