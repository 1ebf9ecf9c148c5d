"""Applies policies to a running node.

Administrators change policies while traffic flows: all open operations are re-evaluated, a slice
at a time, and then switched over at once. Once a second, the resources named by policies are
measured, and affected sessions get what their policies now grant. This module also answers MQTT
clients' requests to the node, passes work to worker processes, and drains the ledger.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from accord.core.broker.broker import Broker
from accord.core.broker.connection import client_reading
from accord.core.broker.session import MqttSession
from accord.core.model.values import Value
from accord.core.monitoring.statistics import Statistics
from accord.core.monitoring.top import ClientReading, Management, Waiting
from accord.core.monitoring.verdict import NetFaults
from accord.core.policy.dry_run import OpenOperation
from accord.core.policy.policies import Entity, Policies
from accord.core.policy.policy_set import PolicySet
from accord.journal.disk import OsDisk
from accord.runtime.admission import AdmissionService
from accord.runtime.durability import EVENTS, Durability
from accord.runtime.fault_isolation import FaultIsolation
from accord.runtime.initial_policies import load_initial_policies
from accord.runtime.ledger_store import LedgerStore
from accord.runtime.logs import get_log
from accord.runtime.monitor import Monitor
from accord.runtime.pipeline import Pipeline
from accord.runtime.policy_admin import PolicyAdmin, PolicyHost
from accord.runtime.policy_store import PolicyStore
from accord.runtime.process import Clock
from accord.runtime.query_service import QueryService
from accord.runtime.queue_inspection import find_waiting
from accord.runtime.requests import RequestDispatcher
from accord.runtime.server import Server
from accord.runtime.worker_orders import WorkerDispatcher

log = get_log(__name__)

POLICIES: Final = "policies"
_SAMPLE_S: Final = 1.0
_SLICE: Final = 200
_LONG_S: Final = 0.002


class PolicyRuntime:
    """Applies policies; also the `MonitoredNode` that the monitor samples."""

    def __init__(  # noqa: PLR0913 (the parts of a node)
        self,
        name: str,
        version: str,
        broker: Broker,
        server: Server,
        clock: Clock,
        *,
        statistics: Callable[[], Statistics],
        durability: Durability | None,
        data: Path | None,
        file: Path | None,
        pipeline: Pipeline,
        admission: AdmissionService,
    ) -> None:
        self.name = name
        self.version = version
        self._broker = broker
        self._server = server
        self._clock = clock
        self.statistics = statistics
        self.requests: RequestDispatcher  # set before the node listens
        self.net_faults: Callable[[], NetFaults] = NetFaults  # set by the node
        self._limits: tuple[object, ...] = ()
        self._isolation = FaultIsolation(log)
        self._admission = admission
        self._store = PolicyStore(None if data is None else OsDisk(data / POLICIES))
        try:
            policy_set = load_initial_policies(self._store, file)
            around = PolicyHost(
                apply=self._apply,
                open_=self._open,
                find_entity=self._entity,
                resources=self._resources,
                node=name,
            )
            self.admin = PolicyAdmin(policy_set, self._store, around)
        except BaseException:
            self._store.close()
            raise
        context = broker.context
        self.dispatcher = WorkerDispatcher(broker, clock, server.due)
        self.queries = QueryService(
            broker,
            clock,
            pipeline,
            committed_offset=lambda: 0 if durability is None else durability.committed_offset,
            due=server.due,
        )
        ledger = LedgerStore(
            context.ledger,
            sightings=context.sightings,
            flush_deferred=broker.cut_throughs.flush,
            append=None if durability is None else durability.append_ledger,
            journal=None if data is None else data / EVENTS,
        )
        self.monitor = Monitor(
            self,
            broker.router.channels,
            ledger,
            now_ms=clock.now_ms(),
            changes=context.changes,
        )
        self._apply(policy_set, self.admin.policies)
        self._sampling = asyncio.create_task(self._sample_loop())

    async def close(self) -> None:
        self._sampling.cancel()
        await asyncio.gather(self._sampling, return_exceptions=True)
        for each in (self.requests, self.queries, self.admin, self.dispatcher):
            try:
                await each.close()
            except Exception as error:  # fault isolation: the others are closed, too
                self._isolation.failed("component: closing failed", error)
        self._drain_ledger(self._clock.now_ms())

    def turn(self) -> None:
        """Process the worker orders and requests of the last turn of the event loop."""
        context = self._broker.context
        if context.orders:
            self.dispatcher.take()
        if context.requests:
            requests, context.requests = context.requests, []
            for request in requests:
                self.requests.handle(request)
        self.queries.turn()
        if context.ledger.is_due():
            self._drain_ledger(context.now_ms)

    def _drain_ledger(self, now_ms: int) -> None:
        """Drain the ledger to its store; a batch that fails is dropped, so that later ones pass."""
        try:
            self.monitor.store.drain(now_ms=now_ms)
        except Exception as error:  # fault isolation: the node continues
            self._isolation.failed("ledger: write failed", error)

    # Implementation of `MonitoredNode`.

    def backlog(self) -> Sequence[int]:
        return self._broker.context.tasks.depth()

    def readings(self) -> Iterable[ClientReading]:
        for session in list(self._broker.sessions.values()):
            yield client_reading(session, self._clock.now_ms())

    def management(self) -> Management:
        policy_set = self.admin.policy_set
        return Management(
            strategy=policy_set.strategy,
            is_shaping=policy_set.shaping,
            bandwidth_bps=policy_set.bandwidth_bps,
            client_bandwidth_bps=policy_set.client_bandwidth_bps,
            limited_clients=len(policy_set.limits),
            policies=len(policy_set.policies),
            version=policy_set.version,
        )

    async def waiting(self, number: int) -> list[Waiting]:
        return await find_waiting(self._server, number)

    # Callbacks of `PolicyHost`.

    def _apply(self, policy_set: PolicySet, policies: Policies) -> None:
        old = self._broker.router.policies
        for session in self._broker.sessions.values():
            session.entity.holding = policies.translate(old, session.entity.holding)
        self._broker.switch(policy_set, policies)
        limits = (policy_set.bandwidth_bps, policy_set.client_bandwidth_bps, policy_set.limits)
        if limits != self._limits:
            self._limits = limits
            clients = {limit.client: limit.bandwidth_bps for limit in policy_set.limits}
            self._server.set_limits(
                policy_set.bandwidth_bps or 0, policy_set.client_bandwidth_bps or 0, clients
            )
        self._server.due()

    def _open(self) -> Iterator[OpenOperation]:
        """All open operations, on known channels."""
        for channel, receiver in self._broker.router.deliveries():
            yield OpenOperation("subscribe", channel, receiver.entity)
        for session in list(self._broker.sessions.values()):
            for pattern in self._broker.router.unused(session.subscriptions.values()):
                yield OpenOperation("subscribe", pattern, session.entity)
            connection = session.connection
            if connection is not None and connection.publisher is not None:
                for channel in connection.publisher.published_channels():
                    yield OpenOperation("publish", channel, session.entity)

    def _entity(self, client: str) -> Entity | None:
        session = self._broker.sessions.get(client)
        return None if session is None else session.entity

    def _resources(self, client: str) -> dict[str, Value]:
        resources: dict[str, Value] = dict(self.monitor.resources())
        session = self._broker.sessions.get(client)
        if session is not None:
            resources |= _client_resources(session)
        return resources

    # Once a second.

    async def _sample_loop(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE_S)
            try:
                self.monitor.sample(now_ms=self._clock.now_ms())
                self._admission.sample(self.monitor)
                await self._update_holding()
                await self._expire()
                await self._reorder_predicates()
            except Exception as error:  # otherwise measuring and expiry would end for good
                log.failure("node sampling: failed", error)

    async def _update_holding(self) -> None:
        """Update which policies hold, by their conditions on resources."""
        router = self._broker.router
        policies = router.policies
        if not (policies.node_resources or policies.client_resources):
            return
        node = self.monitor.resources()
        has_changed = False
        started_s = time.perf_counter()
        for session in list(self._broker.sessions.values()):
            spent_s = time.perf_counter() - started_s
            if spent_s > _LONG_S:
                # At most a fifth of the time, however many policies and sessions there are.
                await asyncio.sleep(4 * spent_s)
                if router.policies is not policies:
                    return
                started_s = time.perf_counter()
            entity = session.entity
            resources: dict[str, Value] = {**node, **_client_resources(session)}
            holding = policies.holding(resources, entity)
            if holding != entity.holding:
                entity.holding = holding
                has_changed = True
        if has_changed:
            router.invalidate("#")

    async def _expire(self) -> None:
        """Expire queued events that can no longer be delivered in time."""
        for number, session in enumerate(list(self._broker.sessions.values())):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            if not session.outbox.is_empty():
                self._broker.context.now_ms = self._clock.now_ms()
                session.expire()

    async def _reorder_predicates(self) -> None:
        """Reorder predicate matching by the predicates' current importance."""
        router = self._broker.router
        if router.indexed_for is router.policies:
            return
        policies = router.policies
        number = 0
        for session in list(self._broker.sessions.values()):
            for subscription in list(session.subscriptions.values()):
                number += router.reindex(subscription)
                if number >= _SLICE:
                    number = 0
                    await asyncio.sleep(0)
        if router.policies is policies:
            router.indexed_for = policies


def _client_resources(session: MqttSession) -> dict[str, Value]:
    outbox = session.outbox
    resources: dict[str, Value] = {"client_queued_bytes": outbox.bytes + outbox.tracked_bytes}
    connection = session.connection
    if connection is not None:
        carries_bps = connection.link.capacity_bps()
        if carries_bps:
            resources["link_kbps"] = carries_bps / 1_000
        if connection.link.rtt_ms:
            resources["link_rtt_ms"] = connection.link.rtt_ms
    return resources
