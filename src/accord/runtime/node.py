"""The running node: broker, logs, listeners and services, started and stopped together.

Feeds the data pipeline with the broker's registered predicates and their counts.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from heapq import nsmallest
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from accord.core.broker.broker import Broker
from accord.core.broker.broker_context import NUMBERS_PER_MS
from accord.core.broker.connection import Connection, client_status
from accord.core.broker.feedback import FeedbackHandler
from accord.core.broker.handshake import LoginGate
from accord.core.model.units import IMPORTANCES
from accord.core.monitoring.measurement_registry import MeasurementRegistry
from accord.core.monitoring.recent_changes import NODE
from accord.core.monitoring.statistics import ClientStatus, Statistics
from accord.core.mqtt.codes import Reason
from accord.core.queries.messages import MeasuredValues, WatchedPredicate
from accord.core.router.limits import Limits
from accord.core.router.rights import Rights
from accord.journal.options import JournalOptions
from accord.operations.ports import NodePorts
from accord.runtime.addresses import BACKLOG, SocketAddress, bound_address, listen_on
from accord.runtime.admission import AdmissionService, NodeAdmissionOptions
from accord.runtime.durability import EVENTS, Durability
from accord.runtime.fault_isolation import FaultIsolation
from accord.runtime.history_service import HistoryDriver, HistoryService
from accord.runtime.incarnation import next_incarnation
from accord.runtime.logs import get_log
from accord.runtime.node_requests import NodeRequestService
from accord.runtime.overlay_service import FAILING, NetOptions, OverlayService
from accord.runtime.pipeline import Pipeline, PipelineOptions
from accord.runtime.policy_runtime import PolicyRuntime
from accord.runtime.process import Clock, disk_space, keep_freed_memory
from accord.runtime.quality import QualityOptions, QualityService
from accord.runtime.receipt_secret import load_receipt_secret
from accord.runtime.requests import ChangeAudit, RequestDispatcher
from accord.runtime.secondary_service import SecondaryService
from accord.runtime.server import MqttProtocol, Server
from accord.runtime.system_topics import system_topics
from accord.runtime.users import Users
from accord.runtime.websocket import ANY

EVERY_S: Final = 60.0
MAX_PREDICATES: Final = 1_000
_SLICE: Final = 200
_MAX_COUNTED: Final = 100_000
_MAX_LENGTH: Final = 4_096  # longer predicates are not worth the cost of measuring

_Key = tuple[str, str, str]


async def registered_predicates(
    broker: Broker, most: int = MAX_PREDICATES
) -> tuple[WatchedPredicate, ...]:
    """The predicates registered by most clients; scans sessions in slices."""
    clients: Counter[_Key] = Counter()
    number = 0
    for session in list(broker.sessions.values()):
        seen: set[_Key] = set()
        for subscription in list(session.subscriptions.values()):
            if 0 < len(subscription.where) + len(subscription.xpath) <= _MAX_LENGTH:
                seen.add((subscription.pattern, subscription.where, subscription.xpath))
        if len(clients) < _MAX_COUNTED:
            clients.update(seen)
        number += len(session.subscriptions)
        if number >= _SLICE:
            number = 0
            await asyncio.sleep(0)
    return await asyncio.to_thread(_most_used, clients, most)


def _most_used(clients: Counter[_Key], most: int) -> tuple[WatchedPredicate, ...]:
    ranked = nsmallest(most, clients.items(), key=lambda each: (-each[1], each[0]))
    return tuple(WatchedPredicate(*key, count) for key, count in ranked)


async def feed_pipeline(pipeline: Pipeline, broker: Broker) -> None:
    """Pass the registered predicates to the pipeline periodically."""
    while True:
        try:
            pipeline.watch(await registered_predicates(broker))
        except Exception as error:  # otherwise the feed would end for good
            log.failure("registered predicates: not listed", error)
        await asyncio.sleep(EVERY_S)


log = get_log(__name__)

_TICK_S: Final = 0.2
_MAINTAIN_S: Final = 10.0
_DRAIN_MS: Final = 5_000


class ListenerSettings(Struct, frozen=True):
    """An address to listen on, and the protocol served there."""

    address: SocketAddress
    is_websocket: bool = False
    tls: ssl.SSLContext | None = None

    @property
    def scheme(self) -> str:
        """Of the URL that a client connects to."""
        name = "ws" if self.is_websocket else "mqtt"
        return f"{name}s" if self.tls else name


class Settings(Struct, frozen=True, kw_only=True):
    name: str = "accord"
    data: Path | None = None
    listeners: tuple[ListenerSettings, ...] = ()
    origins: tuple[str, ...] = ()  # of web pages that may connect
    limits: Limits = Limits()
    kept: tuple[str, ...] = ()
    policies: Path | None = None
    journal: JournalOptions = JournalOptions()
    statistics_s: int = 10
    pipeline: PipelineOptions | None = None
    net: NetOptions = NetOptions()
    quality: QualityOptions = QualityOptions()
    admission: NodeAdmissionOptions = NodeAdmissionOptions()


class Node:
    """Use as `async with Node(settings, users):`; leaving it drains and stops the node."""

    def __init__(self, settings: Settings, users: Users, clock: Clock | None = None) -> None:
        self.settings = settings
        self.users = users
        self.name = settings.name
        self.version = version("accord")
        self.addresses: list[SocketAddress] = []
        self.ports: NodePorts  # set at start
        self.incarnation = 0  # set at start
        self.durability: Durability | None = None
        self.policy_runtime: PolicyRuntime | None = None
        self.registry = MeasurementRegistry()
        self.pipeline = Pipeline(
            settings.pipeline,
            node=settings.name,
            data=settings.data,
            on_measured=self._take_measured,
        )
        self.net: OverlayService | SecondaryService | None = None  # set at start
        self.quality: QualityService | None = None
        self.admission: AdmissionService | None = None
        self.others: NodeRequestService | None = None  # other nodes, asked over the overlay
        self.history: HistoryDriver | None = None  # history of persistent channels
        self._stack = AsyncExitStack()
        self._clock = clock or Clock()
        self._isolation = FaultIsolation(log)
        self._listening: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._is_ready = False
        self._disk: tuple[int, int] | None = None  # bytes free and in total

    async def __aenter__(self) -> Node:
        keep_freed_memory()
        settings = self.settings
        is_secondary = settings.net.is_secondary
        self.incarnation = next_incarnation(settings.data, self._clock.now_ms())
        self.broker = Broker(
            settings.limits,
            now_ms=self._clock.now_ms(),
            kept=list(settings.kept),
            is_durable=settings.data is not None,
            node=self.name,
            groups_of=self.users.groups_of,
            denied_to=self.users.denied_to,
            new_client_id=lambda: f"auto-{secrets.token_hex(8)}",
        )
        self.broker.context.number = self.incarnation * NUMBERS_PER_MS
        self.server = Server(
            self.broker, self._clock, gate=LoginGate(), login=self._login, on_turn=self._on_turn
        )
        try:
            self.broker.feedback = FeedbackHandler(self.broker, load_receipt_secret(settings.data))
            self.quality = QualityService(
                self.broker,
                self.server,
                node=self.name,
                incarnation=self.incarnation,
                data=settings.data,
                options=settings.quality,
                measured=self._measured,
                is_leaf=is_secondary,
            )
            if settings.data is not None:
                self.durability = Durability(
                    self.broker,
                    settings.data,
                    settings.journal,
                    on_progress=self.server.due,
                    now_ms=self._clock.now_ms(),
                )
            self.admission = AdmissionService(
                settings.admission,
                self.broker,
                self._clock,
                node=self.name,
                incarnation=self.incarnation,
                registry=self.registry,
                due=self.server.due,
                is_secondary=is_secondary,
            )
            self.policy_runtime = PolicyRuntime(
                self.name,
                self.version,
                self.broker,
                self.server,
                self._clock,
                statistics=self.statistics,
                durability=self.durability,
                data=settings.data,
                file=settings.policies,
                pipeline=self.pipeline,
                admission=self.admission,
            )
            if is_secondary:
                self.net = SecondaryService(
                    settings.net,
                    self.broker,
                    self.server,
                    self._clock,
                    node=self.name,
                    incarnation=self.incarnation,
                )
                self.quality.join_parents(self.net)
                self.admission.start_secondary(self.net)
                self.history = self._child_history(self.net)
                self.history.start()
                await self.net.start(self._stack)
            else:
                self.net = OverlayService(
                    settings.net,
                    self.broker,
                    self.server,
                    self._clock,
                    node=self.name,
                    incarnation=self.incarnation,
                    data=settings.data,
                )
                self.others = NodeRequestService(self.net)
                self.quality.join(self.net)
                self.admission.start(self.net)
                self.history = HistoryService(
                    self.broker,
                    self.server,
                    self.net,
                    self._clock,
                    pipeline=self.pipeline,
                    durability=self.durability,
                    data=settings.data,
                )
                self.history.start()
                await self.net.start(self._stack)
            self.policy_runtime.net_faults = self.net.net_faults
            self.ports = self._ports(self.policy_runtime)
            if self.others is not None:
                self.others.start(self.ports)
            self.policy_runtime.requests = RequestDispatcher(
                self.ports, self.broker, self.policy_runtime.queries
            )
            self.quality.start()
            for listener in settings.listeners:
                await self._listen(listener)
        except BaseException:
            await self._close()
            raise
        self._tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._maintain())]
        if self.pipeline.is_enabled:
            self.pipeline.start()
            self._tasks.append(asyncio.create_task(feed_pipeline(self.pipeline, self.broker)))
        if settings.statistics_s:
            self._tasks.append(asyncio.create_task(self._publish_statistics()))
        self._is_ready = True
        self.broker.context.changes.add(
            NODE,
            f"{self.name} started",
            now_ms=self._clock.now_ms(),
            detail=f"accord {self.version}",
            page="/internals",
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop accepting, send what was accepted, and disconnect clients."""
        self._is_ready = False
        for listening in self._listening:
            listening.close()
        await self._until(
            lambda: not (self.broker.context.tasks.waiting or self.broker.context.held)
        )
        self.server.end_all(Reason.SERVER_SHUTTING_DOWN)
        await self._until(lambda: not self.server.connections)
        await self._close()

    def is_ready(self) -> bool:
        return self._is_ready

    def statistics(self) -> Statistics:
        self.broker.cut_throughs.flush()
        counters = self.broker.context.counters
        counters.sessions = len(self.broker.sessions)
        counters.subscriptions = self.broker.router.size
        counters.predicates = self.broker.router.predicates
        counters.retained_messages = self.broker.retained.messages
        counters.retained_bytes = self.broker.retained.bytes
        counters.queued_messages = [0] * IMPORTANCES
        counters.queued_bytes = [0] * IMPORTANCES
        for session in self.broker.sessions.values():
            if not session.outbox.is_empty():
                depth, waiting = session.outbox.depth(), session.outbox.bytes_waiting()
                for importance in range(IMPORTANCES):
                    counters.queued_messages[importance] += depth[importance]
                    counters.queued_bytes[importance] += waiting[importance]
        journal = None if self.durability is None else self.durability.status()
        if journal is not None and self._disk is not None:
            free, total = self._disk
            journal = structs.replace(journal, disk_free_bytes=free, disk_total_bytes=total)
        taken = counters.snapshot(now_ms=self._clock.now_ms(), journal=journal)
        pipeline = self.pipeline.status(0 if journal is None else journal.synced_offset)
        return structs.replace(taken, pipeline=pipeline)

    def clients(self) -> Iterator[ClientStatus]:
        self.broker.cut_throughs.flush()
        for session in list(self.broker.sessions.values()):
            yield client_status(session)

    def page_protocol(self, *, is_loopback: bool) -> Callable[[], MqttProtocol]:
        """Makes the protocol of an MQTT connection that the HTTP listener hands over.

        `is_loopback` means that the listener is one of this machine, and addressed as such.
        """
        from accord.runtime.websocket import PageWebSocketProtocol  # noqa: PLC0415 (see _listen)

        def make() -> MqttProtocol:
            return PageWebSocketProtocol(
                self.server, origins=self.settings.origins, is_loopback=is_loopback
            )

        return make

    def _ports(self, policies: PolicyRuntime) -> NodePorts:
        data = self.settings.data
        return NodePorts(
            view=self,
            broker=self.broker,
            ledger=policies.monitor,
            policies=policies.admin,
            net=self.net,
            admission=self.admission,
            quality=self.quality,
            pipeline=self.pipeline,
            registry=self.registry,
            journal=None if data is None else data / EVENTS,
            groups_of=self.users.groups_of,
            now_ms=self._clock.now_ms,
            due=self.server.due,
            audit=ChangeAudit(self.broker.context.changes, self._clock.now_ms),
            changes=self.broker.context.changes,
            others=self.others,
        )

    def _child_history(self, net: SecondaryService) -> HistoryDriver:
        child, folder = net.child, self.settings.data
        asker = child.history.client
        past = HistoryDriver(self.broker, self.server, asker, child.channel_cache, data=folder)
        child.on_bound.append(past.channels_changed)
        net.after.append(past.on_messages)
        return past

    async def _listen(self, listener: ListenerSettings) -> None:
        listening = listen_on(listener.address)
        address = bound_address(listening)
        if listener.is_websocket:
            # Imported here: the import is slow, and few nodes use it.
            from accord.runtime.websocket import WebSocketProtocol  # noqa: PLC0415

            # If all clients need a password, a page without it can do no harm.
            is_open = self.users.anonymous is None and not self.settings.origins
            origins = (ANY,) if is_open else self.settings.origins

            def make() -> MqttProtocol:
                return WebSocketProtocol(self.server, origins=origins)
        else:

            def make() -> MqttProtocol:
                return MqttProtocol(self.server)

        loop = asyncio.get_running_loop()
        self._listening.append(
            await loop.create_server(make, sock=listening, ssl=listener.tls, backlog=BACKLOG)
        )
        self.addresses.append(address)

    async def _login(self, connection: Connection) -> tuple[Rights | None, str]:
        """A client's rights and its user."""
        connect = connection.connect
        if connect is None:
            return None, ""
        name = connect.username if self.users.are_configured else None
        client = connection.client_id
        rights = await self.users.verify_client(name, connect.password, client, connection.address)
        if rights is not None and not self.users.may_connect_as(name or "", client):
            log.warning("client ID not allowed for user", client=client, user=name)
            rights = None
        return rights, name or ""

    def _on_turn(self) -> bool:
        """Process the effects of reads; returns whether to call it after every read for now."""
        run = self._isolation.run
        if self.history is not None:
            run("history: read failed", self.history.turn)
        if self.durability is not None:
            run("kept events: recording failed", self.durability.append)
        if self.policy_runtime is not None:
            run("request: handling failed", self.policy_runtime.turn)
        if self.quality is not None:
            run("quality: maintenance failed", self.quality.turn)
        if self.admission is not None:
            run("admission: maintenance failed", self.admission.turn)
        if self.net is not None:
            run("overlay: processing failed", self.net.turn)
        # Sending history makes room for more of it.
        is_past_wanted = self.history is not None and self.history.has_demand()
        return is_past_wanted or bool(self.broker.catch_ups)

    def _take_measured(self, measured: MeasuredValues) -> None:
        for each in measured.values:
            self.registry.put(each.kind, each.subject, each.name, each.value, at_ms=each.at_ms)
        if any(each.kind in FAILING for each in measured.values):
            self._apply_measured()

    def _measured(self, kind: str, subject: str, name: str) -> float | None:
        return self.registry.get(kind, subject, name, now_ms=self._clock.now_ms())

    def _apply_measured(self) -> None:
        """Tell the overlay what the registry has of links and nodes."""
        if isinstance(self.net, OverlayService):
            now_ms = self._clock.now_ms()
            seen = (self.registry.select(kind, now_ms=now_ms) for kind in FAILING)
            self.net.set_measured(chain.from_iterable(seen))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._isolation.run("timers: processing failed", self.server.tick)
            if self.admission is not None:
                self._isolation.run("admission: maintenance failed", self.admission.tick)

    async def _maintain(self) -> None:
        while True:
            if self.durability is not None:
                self._isolation.run("housekeeping: failed", self.durability.compact)
            if self.registry.expire(now_ms=self._clock.now_ms()):
                self._apply_measured()
            if self.settings.data is not None:
                # A directory on a server that hangs must not hold up the node.
                self._disk = await asyncio.to_thread(disk_space, self.settings.data)
            await asyncio.sleep(_MAINTAIN_S)

    async def _publish_statistics(self) -> None:
        """Publish statistics periodically."""
        while True:
            self.broker.context.now_ms = self._clock.now_ms()
            for topic, payload in system_topics(self.statistics(), version=self.version):
                self.broker.publish_as_node(topic, payload)
            self.server.due()
            await asyncio.sleep(self.settings.statistics_s)

    async def _until(self, is_done: Callable[[], bool]) -> None:
        """Wait for `is_done`, with a timeout."""
        until_ms = self._clock.now_ms() + _DRAIN_MS
        while not is_done() and self._clock.now_ms() < until_ms:
            await asyncio.sleep(0.01)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listening in self._listening:
            listening.close()
        self.broker.context.sightings.stop(now_ms=self._clock.now_ms())
        await self._close_part(self._stack.aclose)
        for protocol in list(self.server.connections.values()):
            protocol.abort()
        for part in (self.others, self.policy_runtime, self.quality, self.history, self.pipeline):
            if part is not None:
                await self._close_part(part.close)
        if self.durability is not None:
            self._isolation.run("journal: closing failed", self.durability.close)
        await self.users.close()

    async def _close_part(self, close: Callable[[], Awaitable[None]]) -> None:
        """Close with fault isolation: the other parts must be closed, too."""
        try:
            await close()
        except Exception as error:
            self._isolation.failed("component: closing failed", error)
