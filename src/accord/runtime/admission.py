"""Drives admission at a running node: time, measurements, requests and status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct

from accord.core.admission.admission import Admission
from accord.core.admission.demand import Basis, Measured
from accord.core.admission.demand import measured as measured_by
from accord.core.admission.options import AdmissionOptions, Mode
from accord.core.admission.overlay_admission import SERVICE, OverlayAdmission
from accord.core.admission.resources import MEMORY, client, link
from accord.core.admission.secondary_admission import SecondaryAdmission
from accord.core.admission.status import (
    AdmissionStatus,
    DemandStatus,
    FilterStatus,
    NodeBook,
    PoolStatus,
    RefusalStatus,
    filter_statuses,
    pool_statuses,
    tightest_pools,
)
from accord.core.broker.broker import Broker
from accord.core.broker.refusal_remedies import shortage_status
from accord.core.broker.session import MqttSession
from accord.core.broker.subscription_admission import SubscriptionAdmission, refusal_text
from accord.core.model.errors import decode_or_none
from accord.core.monitoring.measurement_registry import MeasurementRegistry
from accord.core.monitoring.series import CounterRates
from accord.runtime.admission_checks import SubscriptionChecks, guarantee_words
from accord.runtime.connection_writer import clock_us
from accord.runtime.logs import get_log
from accord.runtime.monitor import Monitor
from accord.runtime.overlay_service import OverlayService
from accord.runtime.process import Clock
from accord.runtime.secondary_service import SecondaryService

log = get_log(__name__)

MAX_FILTERS: Final = 500
MAX_POOLS: Final = 1_000
CLIENTS_PER_SAMPLE: Final = 1_000  # clients sampled at a time
POOLS: Final = "admission"  # kind of the state record with a node's resource pools
_ANNOUNCE_S: Final = 5
_MIN_EVENTS: Final = 10  # events of a channel after which their mean size counts as known
_SHOWN: Final = 300
_BUSY_SAMPLES: Final = 3  # consecutive samples after which the CPU counts as busy
_MIN_HZ: Final = 100.0  # any CPU can do this rate: below it, something else keeps the CPU busy


class NodeAdmissionOptions(Struct, frozen=True, kw_only=True):
    """Admission settings of one node. Bandwidths in bit/s; 0: measured."""

    options: AdmissionOptions = AdmissionOptions(mode=Mode.OFF)
    memory_bytes: int | None = None
    link_bps: int = 0
    links: dict[str, int] = {}


class AdmissionService:
    def __init__(  # noqa: PLR0913 (the parts of a node)
        self,
        settings: NodeAdmissionOptions,
        broker: Broker,
        clock: Clock,
        *,
        node: str,
        incarnation: int,
        registry: MeasurementRegistry,
        due: Callable[[], None],
        is_secondary: bool = False,
    ) -> None:
        self.settings = settings
        self.mode = settings.options.mode
        options = settings.options
        if is_secondary:
            options = msgspec.structs.replace(options, timing=options.timing.of_child())
        self.admission = Admission(node, incarnation, options)
        self.admission.set_capacity(MEMORY, settings.memory_bytes)
        self.admitting = SubscriptionAdmission(broker, self.admission, clock_us, self._estimate)
        self.checks = SubscriptionChecks(
            node,
            broker,
            self.admitting,
            estimate=self._estimate,
            progress=self._progress,
            is_secondary=is_secondary,
        )
        self._node = node
        self._is_secondary = is_secondary
        self._broker = broker
        self._clock = clock
        self._registry = registry
        self._due = due
        self._net: OverlayService | None = None
        self._parents: SecondaryService | None = None  # at a secondary node
        self._incarnation = incarnation
        self._meters: dict[str, CounterRates] = {}  # by client
        self._next_meters: dict[str, CounterRates] = {}  # by client, of those sampled in this round
        self._round: Iterator[MqttSession] = iter(())
        self._busy_samples = 0  # consecutive samples with a busy CPU
        self._link_meters: dict[str, CounterRates] = {}
        self._samples = 0

    @property
    def is_on(self) -> bool:
        return self.mode is not Mode.OFF

    def start(self, net: OverlayService) -> None:
        """Start admission with the overlay; existing subscriptions get reservations."""
        self._net = net
        if not self.is_on:
            return
        exchange = net.channels.serve(
            SERVICE,
            lambda context: OverlayAdmission(context, net.overlay.store, self.admission, net.tiers),
        )
        self.admitting.controller = exchange
        self.admitting.advertisements.port = exchange
        net.after.append(self._on_messages)
        for neighbour, bps in self.settings.links.items():
            self.admission.set_capacity(link(neighbour), bps)
        self._attach()

    def start_secondary(self, secondary: SecondaryService) -> None:
        """Start admission at a secondary node, through its parents."""
        self._parents = secondary
        if not self.is_on:
            return
        exchange = SecondaryAdmission(self.admission, self._incarnation, secondary.tiers)
        self.admitting.controller = exchange
        self.admitting.advertisements.port = exchange
        secondary.services.append(exchange)
        secondary.after.append(self._on_messages)
        self._attach()

    def _attach(self) -> None:
        self._broker.admission = self.admitting
        self.admitting.restore()

    # ----------------------------------------------------------------------------------------- time

    def turn(self) -> None:
        """Apply decisions made in the last turn of the event loop."""
        if self.is_on:
            self.admitting.notify_decisions()

    def tick(self) -> None:
        """Called a few times a second."""
        if not self.is_on:
            return
        if self._net is None:
            if self._parents is None:
                self.admission.advance(clock_us())
        elif self._count_links(self._net) != len(self._link_meters):
            self._sample_links(self._clock.now_ms())  # a new link's capacity counts immediately
        self.admitting.advance()
        self.admitting.notify_decisions()

    def sample(self, monitor: Monitor) -> None:
        """Once a second: sample usage and capacity."""
        if not self.is_on:
            return
        now_ms = self._clock.now_ms()
        carried_hz = self._sample_links(now_ms)
        load = monitor.load
        self._sample_cpu(load.cpu_percent / 100, load.sent_hz + carried_hz)
        self.admission.set_used(MEMORY, load.queued_bytes)
        self._sample_clients(now_ms)
        self._samples += 1
        if self._net is not None and self._samples % _ANNOUNCE_S == 0:
            self._announce_pools(self._net)

    @property
    def admitting_now(self) -> SubscriptionAdmission | None:
        return self.admitting if self.is_on else None

    # --------------------------------------------------------------------------------------- status

    async def show(self) -> AdmissionStatus:
        """Status with some of the filters; yields between them, as each takes a while."""
        filters: list[FilterStatus] = []
        for each in filter_statuses(self.admission.poset, MAX_FILTERS):
            filters.append(each)
            await asyncio.sleep(0)
        return msgspec.structs.replace(self.status(), filters=tuple(reversed(filters)))

    def status(self, most_pools: int | None = None) -> AdmissionStatus:
        """Without filters, which is quick; of all nodes' pools, or the tightest of this one."""
        admission = self.admission
        options = admission.options
        advertising = self.admitting.advertisements
        advertised = (
            each for name in advertising.clients() for each in advertising.advertisements_of(name)
        )
        return AdmissionStatus(
            node=self._node,
            mode=self.mode,
            guarantee=guarantee_words(options.guarantee),
            basis=options.guarantee.basis,
            advertisements=admission.poset.advertisements,
            filters_total=len(admission.poset),
            filters=(),
            pools=self._pools(most_pools),
            pools_total=admission.reservations.pools_total,
            publishers=tuple(islice(advertised, MAX_POOLS)),
            limited=advertising.limited,
            subscriptions=len(admission.subscriptions),
            decided={str(state): count for state, count in admission.subscriptions.counts.items()},
            refused=dict(self.admitting.refused_counts),
            lately=tuple(
                RefusalStatus(
                    at_ms=each.at_ms,
                    client=each.client,
                    filter=each.filter,
                    where=each.where[:_SHOWN],
                    problem="; ".join(map(refusal_text, each.refusals)),
                    is_binding=each.is_binding,
                    shortages=tuple(map(shortage_status, each.refusals)),
                )
                for each in reversed(self.admitting.recent_refusals)
            ),
            is_secondary=self._is_secondary,
            filters_version=admission.poset.version,
        )

    @property
    def version(self) -> object:
        """Changes with each decision, and with each change of an advertisement."""
        admission, counts = self.admission, self.admission.subscriptions.counts
        refused = sum(self.admitting.refused_counts.values())
        return admission.poset.version, refused, sum(counts.values()), len(admission.subscriptions)

    def book(self, pools: int, refusals: int) -> NodeBook:
        """What this node has promised and refused; the tightest pools, and the last refusals."""
        found = self.status(pools)
        return NodeBook(
            node=self._node,
            mode=found.mode,
            guarantee=found.guarantee,
            subscriptions=found.subscriptions,
            refused=found.refused,
            pools_total=found.pools_total,
            pools=found.pools,
            lately=found.lately[:refusals],
        )

    async def check(
        self, channel: str, where: str, client_: str = "", wanted_hz: float | None = None
    ) -> DemandStatus:
        """The demand of a subscription, and whether it would be admitted: see `checks`."""
        return await self.checks.check(channel, where, client_, wanted_hz)

    # ------------------------------------------------------------------------------------ internals

    def _pools(self, most: int | None) -> tuple[PoolStatus, ...]:
        table = self.admission.reservations
        if most is not None:
            return tightest_pools(self._node, table, most)
        return (*pool_statuses(self._node, table), *self._other_pools())

    def _progress(self) -> None:
        for net in (self._net, self._parents):
            if net is not None:
                net.turn()

    def _on_messages(self) -> None:
        """Apply decisions after messages from other nodes."""
        if self.admission.decisions:
            self._broker.context.now_ms = self._clock.now_ms()
            self.admitting.notify_decisions()
            self._due()

    def _estimate(self, channel: str, where: str, xpath: str) -> Measured:
        """Measurements from the pipeline, or else this node's own counts of the channel."""
        now_ms = self._clock.now_ms()

        def known(kind: str, subject: str, name: str) -> float | None:
            return self._registry.get(kind, subject, name, now_ms=now_ms)

        found = measured_by(known, channel, where, xpath)
        if found.event_bytes is None:
            counts = self._broker.router.channels.counts.get(channel)
            if counts is not None and counts.published >= _MIN_EVENTS:
                size = counts.published_bytes / counts.published
                return msgspec.structs.replace(found, event_bytes=size)
        return found

    def _sample_cpu(self, use: float, rate_hz: float) -> None:
        """Report CPU load; capacity shows only once clients' events kept the CPU busy a while."""
        is_busy = use >= self.settings.options.cpu_threshold and rate_hz >= _MIN_HZ
        self._busy_samples = self._busy_samples + 1 if is_busy else 0
        self.admission.sample_cpu(
            min(use, 1.0) if self._busy_samples >= _BUSY_SAMPLES else 0.0, rate_hz
        )

    def _sample_clients(self, now_ms: int) -> None:
        """Sample the next clients, continuing where the last call stopped."""
        looked = 0
        for session in islice(self._round, CLIENTS_PER_SAMPLE):
            looked += 1
            counts = (session.sent, session.sent_bytes)
            meter = self._meters.get(session.name) or CounterRates(now_ms, counts)
            meter.add(now_ms, counts)
            self._next_meters[session.name] = meter
            self._sample_client(session, *meter.rates())
        if looked < CLIENTS_PER_SAMPLE:
            self._round = iter(self.admitting.clients())
            self._meters, self._next_meters = self._next_meters, {}

    def _sample_client(self, session: MqttSession, sent_hz: float, sent_bytes_hz: float) -> None:
        self.admitting.refresh_link(session)
        self.admission.set_used(client(session.name), round(8 * sent_bytes_hz))
        booked = self.admitting.sole_reservation(session)
        if booked is None or sent_hz <= 0:
            return
        known = self.admission.subscriptions.get(*booked.key)
        if known is not None and known.guarantee.basis is Basis.ESTIMATE:
            self.admission.apply_measurement(*booked.key, sent_hz, round(sent_bytes_hz / sent_hz))

    def _sample_links(self, now_ms: int) -> float:
        """Sample all links; returns the events per second sent to other nodes."""
        if self._net is None:
            return 0.0
        carried_hz = 0.0
        present: dict[str, CounterRates] = {}
        for each in self._net.links():
            sent = each.traffic.sent
            counts = (sent.data.messages + sent.datagrams.messages, sent.bytes)
            meter = self._link_meters.get(each.node) or CounterRates(now_ms, counts)
            meter.add(now_ms, counts)
            present[each.node] = meter
            events_hz, bytes_hz = meter.rates()
            carried_hz += events_hz
            capacity = self.settings.links.get(each.node) or self.settings.link_bps or each.rate_bps
            self.admission.set_capacity(link(each.node), capacity or None)
            self.admission.set_used(link(each.node), round(8 * bytes_hz))
        self._link_meters = present
        return carried_hz

    def _count_links(self, net: OverlayService) -> int:
        """Number of linked nodes, of both tiers."""
        return len(net.overlay.used_neighbours()) + len(net.tiers.links)

    def _announce_pools(self, net: OverlayService) -> None:
        """Announce this node's resource pools, except those of clients."""
        lines = [
            each
            for each in pool_statuses(self._node, self.admission.reservations)
            if not each.of.startswith("client ")
        ]
        net.overlay.store.put(POOLS, "", msgspec.msgpack.encode(lines[:MAX_POOLS]))

    def _other_pools(self) -> list[PoolStatus]:
        if self._net is None:
            return []
        found: list[PoolStatus] = []
        for origin, _, value in self._net.overlay.store.all(POOLS):
            if origin != self._node:
                lines = decode_or_none(_lines, value)
                if lines is None:
                    log.warning("admission status of a node: not readable", node=origin)
                else:
                    found += lines
        return found


_lines: Final = msgspec.msgpack.Decoder(list[PoolStatus])
