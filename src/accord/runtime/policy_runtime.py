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

import msgspec

from accord.core.broker.broker import Broker
from accord.core.broker.broker_context import NodeRequest
from accord.core.broker.client_notifications import reply_to_request
from accord.core.broker.session import MqttSession
from accord.core.model.values import Value
from accord.core.monitoring.statistics import Statistics
from accord.core.monitoring.top import ClientReading, Management, Waiting
from accord.core.policy.dry_run import OpenOperation
from accord.core.policy.policies import Entity, Policies
from accord.core.policy.policy_set import PolicySet
from accord.core.router.rights import (
    ADVERTISEMENTS,
    CAPABILITIES,
    CHANNELS,
    EXPECTATIONS,
    PROPERTIES,
    QUERIES,
)
from accord.journal.disk import OsDisk
from accord.runtime.admission import AdmissionService
from accord.runtime.channel_requests import ChannelView
from accord.runtime.channel_requests import handle_request as answer_channels
from accord.runtime.durability import EVENTS, Durability
from accord.runtime.fault_isolation import FaultIsolation
from accord.runtime.initial_policies import load_initial_policies
from accord.runtime.ledger_store import LedgerStore
from accord.runtime.logs import get_log
from accord.runtime.monitor import Monitor
from accord.runtime.pipeline import Pipeline
from accord.runtime.policy_admin import PolicyAdmin, PolicyHost
from accord.runtime.policy_requests import handle_request
from accord.runtime.policy_store import PolicyStore
from accord.runtime.process import Clock
from accord.runtime.quality import QualityService
from accord.runtime.query_service import QueryService
from accord.runtime.queue_inspection import find_waiting
from accord.runtime.server import Server
from accord.runtime.worker_orders import WorkerDispatcher

log = get_log(__name__)

POLICIES: Final = "policies"
QUALITY: Final = (EXPECTATIONS, CAPABILITIES, PROPERTIES)
_SAMPLE_S: Final = 1.0
_SLICE: Final = 200
_LONG_S: Final = 0.002
_MAX_REQUESTS: Final = 100  # concurrent requests


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
        quality: QualityService,
        admission: AdmissionService,
    ) -> None:
        self.name = name
        self.version = version
        self._broker = broker
        self._server = server
        self._clock = clock
        self.statistics = statistics
        self.net: ChannelView  # set before the node listens
        self._limits: tuple[object, ...] = ()
        self._isolation = FaultIsolation(log)
        self._quality = quality
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
            flush_deferred=broker.cut_throughs.flush,
            append=None if durability is None else durability.append_ledger,
            journal=None if data is None else data / EVENTS,
        )
        self.monitor = Monitor(self, broker.router.channels, ledger, now_ms=clock.now_ms())
        self._apply(policy_set, self.admin.policies)
        self._replies: set[asyncio.Task[None]] = set()
        self._sampling = asyncio.create_task(self._sample_loop())

    async def close(self) -> None:
        self._sampling.cancel()
        await asyncio.gather(self._sampling, *self._replies, return_exceptions=True)
        for each in (self.queries, self.admin, self.dispatcher):
            try:
                await each.close()
            except Exception as error:  # fault isolation: the others are closed, too
                self._isolation.failed("closing a component failed", error)
        self._drain_ledger(self._clock.now_ms())

    def turn(self) -> None:
        """Process the worker orders and requests of the last turn of the event loop."""
        context = self._broker.context
        if context.orders:
            self.dispatcher.take()
        if context.requests:
            requests, context.requests = context.requests, []
            for request in requests:
                try:
                    self._on_request(request)
                except Exception as error:  # fault isolation: the others are answered
                    self._isolation.failed("request failed", error)
                    self._refuse(request, "the node failed to answer; see its log")
        self.queries.turn()
        if context.ledger.is_due():
            self._drain_ledger(context.now_ms)

    def _on_request(self, request: NodeRequest) -> None:
        channel = request.message.channel
        if channel == QUERIES:
            self.queries.take(request)
        elif channel in QUALITY:
            self._quality.handle_request(request)
        elif channel == ADVERTISEMENTS:
            body = self._admission.handle_request(request)
            if request.message.properties.response_topic is not None:
                self._reply(request, body)
        elif channel == CHANNELS:
            self._reply(request, self._handle_channels(request))
        elif len(self._replies) >= _MAX_REQUESTS:
            self._refuse(request, "too many requests")
        else:
            task = asyncio.create_task(self._handle_policies(request))
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)

    def _refuse(self, request: NodeRequest, problem: str) -> None:
        if request.message.properties.response_topic is not None:
            body = {"ok": False, "error": problem, "place": ""}
            self._reply(request, msgspec.json.encode(body))

    def _drain_ledger(self, now_ms: int) -> None:
        """Drain the ledger to its store; a batch that fails is dropped, so that later ones pass."""
        try:
            self.monitor.store.drain(now_ms=now_ms)
        except Exception as error:  # fault isolation: the node continues
            self._isolation.failed("ledger write failed", error)

    def _handle_channels(self, request: NodeRequest) -> bytes:
        return answer_channels(
            self.net,
            request.message.payload,
            may_see=request.may_see_statistics(),
            may_change=request.may_change_policies(),
        )

    # Implementation of `MonitoredNode`.

    def backlog(self) -> Sequence[int]:
        return self._broker.context.tasks.depth()

    def readings(self) -> Iterable[ClientReading]:
        for session in list(self._broker.sessions.values()):
            yield _reading(session)

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
                log.failure("node sampling failed", error)

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

    # Replies to clients.

    async def _handle_policies(self, request: NodeRequest) -> None:
        who = request.user or request.client
        payload = request.message.payload
        may_change = request.may_change_policies()
        body = await handle_request(self.admin, payload, may_change=may_change, who=who)
        self._reply(request, body)

    def _reply(self, request: NodeRequest, body: bytes) -> None:
        self._broker.context.now_ms = self._clock.now_ms()
        reply_to_request(self._broker, request, body)
        self._server.due()


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


def _reading(session: MqttSession) -> ClientReading:
    connection = session.connection
    link = None if connection is None else connection.link
    outbox = session.outbox
    return ClientReading(
        client=session.name,
        user=session.owner,
        is_connected=connection is not None,
        sent=session.sent,
        sent_bytes=session.sent_bytes,
        shed=session.shed,
        queued_messages=sum(outbox.depth()),
        queued_bytes=outbox.bytes + outbox.tracked_bytes,
        link_kbps=link.rate_bps / 1_000 if link is not None and link.rate_bps else None,
        limit_kbps=link.limit_bps / 1_000 if link is not None and link.limit_bps else None,
        rtt_ms=link.rtt_ms if link is not None and link.rtt_ms else None,
    )
