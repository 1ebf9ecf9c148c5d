"""Admission control of one node: advertisements, demand, resource pools and reservations.

The driver reports advertisements, measurements and messages of neighbours, calls `subscribe` before
a subscription is accepted, and calls `advance` as time passes. It drains `sends` to neighbours,
`decisions` to clients and `violations` to publishers. A decision that needs no other node is
returned at once.

In report mode everything runs as in enforce mode, reservations included: a subscription that would
have been refused reserves nothing. Only the outcome is marked as not binding.

Reservation protocol of one node: soft-state reservations along event paths, as in RSVP.

Messages travel hop by hop from the subscriber's node towards the publishers, along the paths that
events take in the opposite direction. The two halves share the node's reservation table: `requests`
is the origin side, `transit` the transit side.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import Final

from accord.core.admission.demand import Basis, DemandEstimator, Measured, RateDemand
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_poset import PER_HZ, FilterPoset, to_hz, to_units
from accord.core.admission.messages import (
    AdmissionMessage,
    FlowSpec,
    NodeVerdict,
    Refresh,
    RefreshAck,
    Release,
    Reserve,
    ReserveReply,
)
from accord.core.admission.options import AdmissionOptions, Guarantee, GuaranteeKind, Mode
from accord.core.admission.origin_reservations import OriginReservations
from accord.core.admission.rate_enforcement import Compliance, RateEnforcement, RateViolation
from accord.core.admission.reservation import (
    Path,
    ReservationDecision,
    ReservationState,
    ReservationTimers,
    SourcePath,
)
from accord.core.admission.resources import (
    CPU,
    MEMORY,
    Amounts,
    CpuCapacityEstimator,
    Pool,
    ReservationTable,
    client,
    link,
)
from accord.core.admission.subscription_requests import (
    AdmissionOutcome,
    ReevaluationQueue,
    SubscriptionRequest,
    SubscriptionRequests,
    Which,
)
from accord.core.admission.transit_reservations import Assess, Leg, Sent, TransitReservations
from accord.core.model.document import Document
from accord.core.model.errors import AdmissionError
from accord.core.model.values import Value
from accord.core.predicates.predicate import parse


class ReservationProtocol:
    """Dispatches messages to both sides; the driver drains `sends` and `decisions`."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        table: ReservationTable,
        assess: Assess,
        timing: ReservationTimers | None = None,
    ) -> None:
        timing = ReservationTimers() if timing is None else timing
        self.name = name
        self.requests = OriginReservations(name, incarnation, table, timing)
        self.transit = TransitReservations(
            name, table, assess, hold_us=timing.hold_us, lease_us=timing.lease_us
        )

    @property
    def sends(self) -> list[Sent]:
        """Messages for neighbours."""
        sends = self.requests.sends
        sends += self.transit.sends
        self.transit.sends.clear()
        return sends

    @property
    def decisions(self) -> list[ReservationDecision]:
        return self.requests.decisions

    @property
    def dropped(self) -> int:
        """Count of invalid messages."""
        return self.requests.dropped + self.transit.dropped

    def receive(self, neighbour: str, message: AdmissionMessage, now_us: int) -> None:
        is_here = message.request.origin == self.name
        match message:
            case Reserve():
                self.transit.on_reserve(neighbour, message, now_us)
            case Refresh():
                self.transit.on_refresh(neighbour, message, now_us)
            case Release():
                self.transit.on_release(neighbour, message)
            case ReserveReply() if is_here:
                self.requests.on_reply(neighbour, message, now_us)
            case ReserveReply():
                self.transit.on_reply(neighbour, message)
            case RefreshAck() if is_here:
                self.requests.on_refresh_ack(neighbour, message, now_us)
            case RefreshAck():
                self.transit.on_refresh_ack(neighbour, message)

    def advance(self, now_us: int) -> None:
        self.transit.advance(now_us)
        self.requests.advance(now_us)

    def next_due_us(self) -> int | None:
        dues = [self.requests.next_due_us(), self.transit.next_due_us()]
        return min((due for due in dues if due is not None), default=None)

    def check_invariants(self) -> None:
        self.requests.check_invariants()
        self.transit.check_invariants()


# Limit of one reserved amount; keeps the sum of all reservations within 64 bits on the wire.
MAX_AMOUNT: Final = 1 << 43


class Admission:
    """Admits subscriptions against the resources of this node and of the nodes on their paths."""

    def __init__(
        self, name: str, incarnation: int, options: AdmissionOptions | None = None
    ) -> None:
        options = AdmissionOptions() if options is None else options
        self.name = name
        self.options = options
        self.poset = FilterPoset(
            advertisements_limit=options.advertisements, general_limit=options.general_filters
        )
        self.estimator = DemandEstimator(self.poset, margin=options.estimate_margin)
        self.reservations = ReservationTable()
        self.enforcement = RateEnforcement(
            burst_s=options.burst_s, notify_interval_us=options.notify_interval_us
        )
        self._cpu = CpuCapacityEstimator(threshold=options.cpu_threshold)
        self._protocol = ReservationProtocol(
            name, incarnation, self.reservations, self._assess, options.timing
        )
        self.subscriptions = SubscriptionRequests(
            self._protocol.requests, is_binding=options.mode is Mode.ENFORCE
        )
        self.reevaluations = ReevaluationQueue[Which](
            options.reevaluation_delay_us
        )  # of local subscriptions
        self._transit_reevaluations = ReevaluationQueue[Leg](
            options.reevaluation_delay_us
        )  # of transit reservations
        # Finds the paths of a filter's events, given the known ones; set by overlay and secondary
        # admission.
        self.find_source_paths: (
            Callable[[Filter, tuple[SourcePath, ...]], tuple[SourcePath, ...]] | None
        ) = None
        self._remote_keys: dict[
            str, dict[Hashable, bool]
        ] = {}  # advertisement keys, by remote node

    # ----------------------------------------------------------------------------- advertisements

    def advertise(
        self, publisher: str, name: str, filter_: Filter, rate_hz: float, now_us: int
    ) -> None:
        """Register a local publisher's advertisement; the same name replaces it."""
        self.enforcement.check(publisher, name, filter_)
        self.poset.advertise((self.name, publisher, name), filter_, rate_hz, self.name)
        self.enforcement.advertise(publisher, name, filter_, rate_hz, now_us)
        self._schedule_reevaluation()

    def unadvertise(self, publisher: str, name: str) -> bool:
        self._schedule_reevaluation()
        self.enforcement.unadvertise(publisher, name)
        return self.poset.unadvertise((self.name, publisher, name))

    def on_publisher_gone(self, publisher: str) -> None:
        for name in self.enforcement.names(publisher):
            self.unadvertise(publisher, name)

    def advertise_remote(
        self, node: str, publisher: str, name: str, filter_: Filter, rate_hz: float
    ) -> None:
        """Register an advertisement announced by a remote node."""
        key = (node, publisher, name)
        self.poset.advertise(key, filter_, rate_hz, node)
        self._remote_keys.setdefault(node, {})[key] = True
        self._schedule_reevaluation()

    def unadvertise_remote(self, node: str, publisher: str, name: str) -> bool:
        key = (node, publisher, name)
        keys = self._remote_keys.get(node, {})
        if keys.pop(key, None) is None:
            return False
        if not keys:
            del self._remote_keys[node]
        self._schedule_reevaluation()
        return self.poset.unadvertise(key)

    def on_node_gone(self, node: str) -> None:
        """Remove all advertisements announced by `node`."""
        for key in self._remote_keys.pop(node, ()):
            self.poset.unadvertise(key)
            self._schedule_reevaluation()

    def remote_advertisers(self) -> list[str]:
        """Return the remote nodes whose publishers advertise something."""
        return list(self._remote_keys)

    def police(
        self,
        publisher: str,
        channel: str,
        values: Mapping[str, Value],
        document: Document | None,
        now_us: int,
    ) -> Compliance:
        """Check an event against its publisher's advertisements; violations go to `violations`."""
        return self.enforcement.police(publisher, channel, values, document, now_us)

    @property
    def violations(self) -> list[RateViolation]:
        """Violations to report to publishers; drained by the driver."""
        return self.enforcement.violations

    # ---------------------------------------------------------------------------------- resources

    def sample_cpu(self, use: float, rate_hz: float) -> None:
        """Record a sample: CPU utilisation from 0 to 1, and events processed per second."""
        rate = to_units(rate_hz)
        self.reservations.set_used(CPU, rate)
        self.reservations.set_capacity(CPU, self._cpu.sample(use, rate))

    def set_capacity(self, pool: Pool, capacity: int | None) -> None:
        """Set the capacity of memory, or of a link's or client's bandwidth; None: no limit."""
        self.reservations.set_capacity(pool, capacity)

    def set_used(self, pool: Pool, used: int) -> None:
        """Set the measured use of a pool."""
        self.reservations.set_used(pool, used)

    def apply_measurement(
        self, client_: str, key: Hashable, rate_hz: float, event_bytes: int
    ) -> None:
        """Correct a subscription's reservation by what it was measured to receive.

        A reservation based on an estimate follows the measurement. One based on a bound is only
        raised: the bound has been exceeded.
        """
        subscription = self.subscriptions.get(client_, key)
        if subscription is None:
            return
        id_ = self.subscriptions.id_of(subscription)
        is_estimate = subscription.guarantee.basis is Basis.ESTIMATE
        room = self.options.estimate_margin if is_estimate else 1.0
        amounts = self.needed_amounts(rate_hz * room, event_bytes, client(client_))
        for pool, promised in self.reservations.amounts(id_).items():
            amount = amounts.get(pool, promised)
            self.reservations.correct(id_, pool, amount if is_estimate else max(amount, promised))

    # ------------------------------------------------------------------------------ subscriptions

    def estimate_demand(self, filter_: Filter, measured: Measured | None = None) -> RateDemand:
        """Return the demand that a subscription with this filter would have."""
        return self.estimator.estimate(filter_, measured=measured)

    def needed_amounts(self, rate_hz: float, event_bytes: int, bandwidth: Pool) -> dict[Pool, int]:
        """Return what delivering at this rate takes at this node, with the bandwidth of a pool."""
        waiting = ceil(rate_hz * self.options.queue_s * event_bytes)
        amounts = {
            MEMORY: self.options.subscription_bytes + waiting,
            CPU: round(rate_hz * PER_HZ),
            bandwidth: ceil(rate_hz * event_bytes * 8),
        }
        return {pool: min(amount, MAX_AMOUNT) for pool, amount in amounts.items()}

    def subscribe(  # noqa: PLR0913
        self,
        client_: str,
        key: Hashable,
        filter_: Filter,
        paths: Sequence[Path] | None = None,
        *,
        now_us: int,
        guarantee: Guarantee | None = None,
        event_bytes: int | None = None,
        measured: Measured | None = None,
    ) -> AdmissionOutcome | None:
        """Request admission; returns the outcome, or None if it is added to `decisions` later.

        `paths` start at this node and end at nodes with publishers; they are computed if not given.
        """
        guarantee = self.options.guarantee if guarantee is None else guarantee
        if self.options.mode is Mode.OFF or guarantee.kind is GuaranteeKind.NONE:
            self.unsubscribe(client_, key)
            return AdmissionOutcome(client=client_, key=key, state=ReservationState.ADMITTED)
        known = self.subscriptions.get(client_, key)
        if known is not None and known.is_for(filter_, guarantee):
            return known.outcome
        size = self.options.event_bytes if event_bytes is None else event_bytes
        flow_spec = FlowSpec(
            filter_.channel,
            str(filter_.predicate),
            guarantee.kind is GuaranteeKind.FULL,
            guarantee.basis,
            size,
            -1.0 if measured is None or measured.reserved_hz is None else measured.reserved_hz,
        )
        subscription = SubscriptionRequest(client_, key, filter_, guarantee, flow_spec)
        if paths is None:
            subscription.source_paths = self._source_paths(filter_, ())
            paths = [source_path.path for source_path in subscription.source_paths]
        amounts = self._own_amounts(subscription)
        return self.subscriptions.begin(subscription, paths, amounts, now_us)

    def unsubscribe(self, client_: str, key: Hashable) -> bool:
        """Release the subscription's reservations; returns whether it existed."""
        return self.subscriptions.end(client_, key)

    def on_client_gone(self, client_: str) -> None:
        """Release all reservations of a client that failed or whose session ended."""
        self.subscriptions.end_all(client_)

    def reroute(self, client_: str, key: Hashable, paths: Sequence[Path], now_us: int) -> None:
        """Request the subscription's reservations again along new paths."""
        subscription = self.subscriptions.get(client_, key)
        if subscription is not None:
            amounts = self._own_amounts(subscription)
            self.subscriptions.reroute(subscription, paths, amounts, now_us)

    # --------------------------------------------------------------------------- secondary nodes

    def subscribe_child(
        self,
        child: str,
        key: Hashable,
        flow_spec: FlowSpec,
        on_decision: Callable[[ReservationDecision], None],
        *,
        now_us: int,
    ) -> None:
        """Subscribe on behalf of a secondary node; AccordError if the flow spec is invalid.

        Unless the guarantee is full, the child decides whether enough nodes agreed.
        """
        _check_flow_spec(flow_spec)
        filter_ = _parse_filter(flow_spec.channel, flow_spec.where)
        kind = GuaranteeKind.FULL if flow_spec.is_full else GuaranteeKind.PERCENTAGE
        percent = 100.0 if flow_spec.is_full else 0.0
        guarantee = Guarantee(kind=kind, percent=percent, basis=Basis(flow_spec.basis))
        subscription = SubscriptionRequest(_child_client(child), key, filter_, guarantee, flow_spec)
        subscription.bandwidth, subscription.on_decision = link(child), on_decision
        subscription.source_paths = self._source_paths(filter_, ())
        paths = [source_path.path for source_path in subscription.source_paths]
        self.subscriptions.begin(subscription, paths, self._own_amounts(subscription), now_us)

    def is_child_subscribed(self, child: str, key: Hashable) -> bool:
        return self.subscriptions.get(_child_client(child), key) is not None

    def child_verdicts(self, child: str, key: Hashable) -> tuple[NodeVerdict, ...]:
        """Return the verdicts of all nodes, or none while a new round is under way."""
        subscription = self.subscriptions.get(_child_client(child), key)
        return () if subscription is None else self.subscriptions.verdicts(subscription)

    def child_rate(self, child: str, key: Hashable) -> int:
        """Return the requested rate in thousandths of a hertz; -1 if there is no subscription."""
        subscription = self.subscriptions.get(_child_client(child), key)
        # Not `to_units`: the sum over many publishers may exceed what one may advertise.
        return -1 if subscription is None else ceil(subscription.requested_hz * PER_HZ - 1e-6)

    def unsubscribe_child(self, child: str, key: Hashable) -> None:
        self.subscriptions.end(_child_client(child), key)

    def delegate_to_parents(self) -> None:
        """Configure a secondary node: a parent replies for the other nodes and reports the rate."""
        self._protocol.requests.assess = self._on_parent_rate

    # ------------------------------------------------------------------------------ for its driver

    def receive(self, neighbour: str, message: AdmissionMessage, now_us: int) -> None:
        self._protocol.receive(neighbour, message, now_us)
        self.subscriptions.collect()

    def advance(self, now_us: int) -> None:
        for which in self.reevaluations.take(self.subscriptions.all, now_us):
            self._reevaluate(which, now_us)
        hops = self._protocol.transit
        for leg in self._transit_reevaluations.take(hops.all, now_us):
            hops.reevaluate(leg)
        self._protocol.advance(now_us)
        self.subscriptions.collect()

    def next_due_us(self) -> int | None:
        dues = [self._protocol.next_due_us()]
        if len(self.subscriptions):
            dues.append(self.reevaluations.next_due_us())
        if len(self._protocol.transit):
            dues.append(self._transit_reevaluations.next_due_us())
        return min((due for due in dues if due is not None), default=None)

    @property
    def sends(self) -> list[Sent]:
        """Messages for neighbours; drained by the driver."""
        return self._protocol.sends

    @property
    def decisions(self) -> list[AdmissionOutcome]:
        """Outcomes for clients; drained by the driver."""
        return self.subscriptions.decisions

    @property
    def dropped(self) -> int:
        """Count of invalid messages from neighbours."""
        return self._protocol.dropped

    def check_invariants(self) -> None:
        self.poset.check_invariants()
        self.reservations.check_invariants()
        self.enforcement.check_invariants()
        self._protocol.check_invariants()
        self.subscriptions.check_invariants()
        assert sum(map(len, self._remote_keys.values())) <= self.poset.advertisements

    # ------------------------------------------------------------------------------------- inside

    def _schedule_reevaluation(self) -> None:
        """Schedule a re-evaluation of all reservations after a change of advertisements."""
        self.reevaluations.schedule()
        self._transit_reevaluations.schedule()

    def _reevaluate(self, which: Which, now_us: int) -> None:
        """Request a subscription again if its demand or its paths have changed."""
        subscription = self.subscriptions.get(*which)
        if subscription is None:
            return
        before, source_paths = subscription.source_paths, subscription.source_paths
        if before is not None:
            source_paths = subscription.source_paths = self._source_paths(
                subscription.filter, before
            )
        asked_hz = self._own_hz(subscription)
        if source_paths != before or subscription.requested_hz != asked_hz:
            paths = (
                None if source_paths is None else [source_path.path for source_path in source_paths]
            )
            amounts = self._own_amounts(subscription)
            self.subscriptions.reroute(subscription, paths, amounts, now_us)

    def _source_paths(
        self, filter_: Filter, known: tuple[SourcePath, ...]
    ) -> tuple[SourcePath, ...]:
        return () if self.find_source_paths is None else self.find_source_paths(filter_, known)

    def _assess(self, flow_spec: FlowSpec, towards: str, source: str) -> Amounts:
        """Return what forwarding events from `source` to a neighbour takes at this node."""
        _check_flow_spec(flow_spec)
        filter_ = _parse_filter(flow_spec.channel, flow_spec.where)
        rate_hz = self._requested_hz(filter_, flow_spec, frozenset((source,)))
        return self.needed_amounts(rate_hz, flow_spec.event_bytes, link(towards))

    def _own_amounts(self, subscription: SubscriptionRequest) -> Amounts:
        """Return what delivering the events to the client takes at this node."""
        subscription.requested_hz = self._own_hz(subscription)
        event_bytes = subscription.flow_spec.event_bytes
        return self.needed_amounts(subscription.requested_hz, event_bytes, subscription.bandwidth)

    def _own_hz(self, subscription: SubscriptionRequest) -> float:
        return max(
            self._requested_hz(subscription.filter, subscription.flow_spec), subscription.parent_hz
        )

    def _on_parent_rate(self, number: int, rate: int) -> Amounts | None:
        """Return the amounts needed for a rate reported by a parent, if they changed."""
        subscription = self.subscriptions.by_number(number)
        parent_hz = to_hz(rate)
        if subscription is None or subscription.parent_hz == parent_hz:
            return None
        subscription.parent_hz = parent_hz
        return self._own_amounts(subscription)

    def _requested_hz(
        self, filter_: Filter, flow_spec: FlowSpec, nodes: frozenset[str] | None = None
    ) -> float:
        measured = Measured(flow_spec.measured_hz) if flow_spec.measured_hz >= 0 else None
        return self.estimator.requested_hz(
            filter_, Basis(flow_spec.basis), nodes=nodes, measured=measured
        )


def _check_flow_spec(flow_spec: FlowSpec) -> None:
    if flow_spec.basis not in list(Basis) or flow_spec.event_bytes < 0:
        raise AdmissionError("wish", "expected a known basis and a size of 0 or more")


def _child_client(child: str) -> str:
    """Return a client name that no real client can have."""
    return f"\0\0{child}"


@lru_cache(maxsize=1_024)
def _parse_filter(channel: str, where: str) -> Filter:
    return Filter(channel, parse(where))
