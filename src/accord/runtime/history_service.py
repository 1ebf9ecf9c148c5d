"""History of persistent channels at a node: its journal for others, theirs for its clients.

`HistoryDriver` drives the history that this node's clients receive, and persists its progress. A
backbone node also serves its journal (`HistoryService`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from accord.core.broker.broker import Broker
from accord.core.broker.broker_context import JournalCut
from accord.core.broker.persistent_history import HistorySubscriptions, PersistentChannels
from accord.core.channels.history.history_client import HistoryClient
from accord.core.channels.history.history_protocol import HistoryProtocol
from accord.core.channels.history.messages import SERVICE, MakeCut, ReadPage, is_persistent
from accord.core.overlay.channel_directory import CHANNEL
from accord.core.overlay.signalling import TransitEvent
from accord.runtime.connection_writer import clock_us
from accord.runtime.durability import EVENTS, Durability
from accord.runtime.history_pages import HistoryPages, PageUnavailableError
from accord.runtime.logs import get_log
from accord.runtime.overlay_service import OverlayService
from accord.runtime.pipeline import Pipeline
from accord.runtime.process import Clock
from accord.runtime.server import Server

CHECKPOINT: Final = "past.json"
_SAVE_S: Final = 5.0
_REMEMBERED_S: Final = 60.0


class HistoryCheckpoint(msgspec.Struct, frozen=True):
    """Persisted progress: per node, watermark and numbers beyond it; and persistent channels."""

    nodes: dict[str, tuple[int, list[int]]] = {}
    channels: tuple[str, ...] = ()


class RememberedChannels(PersistentChannels, Protocol):
    """`remembered` are the persistent channels known before the restart."""

    remembered: tuple[str, ...]


class HistoryDriver:
    """Advances the history subscriptions of this node's clients to persistent channels."""

    def __init__(
        self,
        broker: Broker,
        server: Server,
        client: HistoryClient,
        channels: RememberedChannels,
        *,
        data: Path | None,
    ) -> None:
        self.client = client
        self.subscriptions = HistorySubscriptions(broker, client, channels, clock_us)
        self._broker = broker
        self._server = server
        self._channels = channels
        self._file = None if data is None else data / CHECKPOINT
        self._saved = HistoryCheckpoint()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_changes = False

    def start(self) -> None:
        """Resume the clients' history subscriptions, before other nodes' messages are handled."""
        known = self._saved = self._read_checkpoint()
        self._channels.remembered = known.channels
        broker = self._broker
        broker.histories = self.subscriptions
        before, broker.recovered_histories = broker.recovered_histories, {}
        if before:
            self.client.restore(known.nodes)
        for subscription, (session, name, progress) in before.items():
            self.subscriptions.resume(session, name, subscription, progress)
        self._spawn(self._save_loop())

    def turn(self) -> None:
        """Advance after each turn of the event loop, before the turn is recorded."""
        if self._has_changes:
            self._has_changes = False
            self._save()
        if self.has_demand():
            self.subscriptions.step()
            self.client.send_due(clock_us())
            self._flush_messages()

    def has_demand(self) -> bool:
        """Whether a client waits for history."""
        return bool(self.client.active or len(self.subscriptions))

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._save()

    def on_messages(self) -> None:
        """Schedule a turn after messages from other nodes."""
        if self.client.active:
            self._server.due()

    def channels_changed(self, *_: object) -> None:
        """Called before events are published to a channel that is now persistent."""
        self._has_changes = True
        self._server.due()

    def _flush_messages(self) -> None:
        """Hook: there may be messages for other nodes."""

    def _maintain(self) -> None:
        """Hook: called periodically."""

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _save_loop(self) -> None:
        """Save progress periodically; after a while, drop the channels remembered from before."""
        left_s = _REMEMBERED_S
        while True:
            await asyncio.sleep(_SAVE_S)
            left_s -= _SAVE_S
            if left_s <= 0 and self._channels.remembered:
                self._channels.remembered = ()
                self._broker.router.invalidate("#")
            self._save()
            self._maintain()

    def _read_checkpoint(self) -> HistoryCheckpoint:
        if self._file is None or not self._file.exists():
            return HistoryCheckpoint()
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=HistoryCheckpoint)
        except (OSError, msgspec.DecodeError) as error:
            log.warning(
                "history checkpoint: not readable", file=str(self._file), problem=str(error)
            )
            return HistoryCheckpoint()

    def _save(self) -> None:
        known = HistoryCheckpoint(
            self.client.watermarks(), tuple(self._channels.persistent_filters())
        )
        if self._file is None or known == self._saved:
            return
        unfinished = self._file.with_suffix(".tmp")
        try:
            unfinished.write_bytes(msgspec.json.encode(known))
            unfinished.replace(self._file)
        except OSError as error:
            log.warning("history checkpoint: not written", file=str(self._file), problem=str(error))
            return
        self._saved = known


log = get_log(__name__)

_NOTHING_KEPT: Final = "nothing is kept on disk at this node: it needs a folder in node.data"


class _NodeCut(NamedTuple):
    """A cut requested by another node; the reply is sent when all before it is on disk."""

    cut: JournalCut
    order: MakeCut
    number: int


class HistoryService(HistoryDriver):
    """Serves other nodes' requests, and drives the history of local clients."""

    def __init__(  # noqa: PLR0913 (the parts of a node)
        self,
        broker: Broker,
        server: Server,
        net: OverlayService,
        clock: Clock,
        *,
        pipeline: Pipeline,
        durability: Durability | None,
        data: Path | None,
    ) -> None:
        overlay = net.overlay
        self.exchange = net.channels.serve(
            SERVICE, lambda context: HistoryProtocol(context, overlay.store, overlay.interests)
        )
        super().__init__(broker, server, self.exchange, net.channels, data=data)
        self._net = net
        self._durability = durability
        self._pages: HistoryPages | None = None
        if durability is not None and data is not None:
            self._pages = HistoryPages(
                data / EVENTS,
                net.channels,
                pipeline,
                committed=lambda: durability.committed_offset,
                now_ms=clock.now_ms,
            )
        self._cuts: list[_NodeCut] = []
        self._warned: dict[str, bool] = {}
        overlay.store.watch(CHANNEL, self.channels_changed)
        net.on_page = self._on_page
        net.after.append(self.on_messages)

    def start(self) -> None:
        if self._durability is not None and self._durability.status().next_offset:
            self.exchange.announce_history()
        super().start()

    def turn(self) -> None:
        if self._cuts:
            self._reply_cuts()
        super().turn()

    def on_messages(self) -> None:
        """Handle requests and replies of other nodes."""
        self._run_orders()
        super().on_messages()

    # ------------------------------------------------------------------------------------ internals

    def _flush_messages(self) -> None:
        self._run_orders()
        self._net.turn()

    def _run_orders(self) -> None:
        orders = self.exchange.orders
        while orders:
            order = orders.pop(0)
            if isinstance(order, MakeCut):
                self._cut(order)
            else:
                self._spawn(self._read(order))

    def _on_page(self, event: TransitEvent) -> None:
        self.exchange.on_page_event(event, clock_us())

    def _cut(self, order: MakeCut) -> None:
        context = self._broker.context
        context.cut_number = context.number
        if self._durability is None:
            self.exchange.on_cut(order, 0, context.number, clock_us())
            return
        cut = JournalCut(context.kept_events())
        context.cuts.append(cut)
        self._cuts.append(_NodeCut(cut, order, context.number))
        self._server.due()

    def _reply_cuts(self) -> None:
        assert self._durability is not None
        committed = self._durability.committed_offset
        waiting = []
        for each in self._cuts:
            if 0 <= each.cut.offset <= committed:
                self.exchange.on_cut(each.order, each.cut.offset, each.number, clock_us())
            else:
                waiting.append(each)
        self._cuts = waiting
        self._net.turn()

    async def _read(self, order: ReadPage) -> None:
        problem = _NOTHING_KEPT
        if self._pages is not None:
            try:
                page = await self._pages.read(order.asked)
            except PageUnavailableError as error:
                problem = str(error)
            except Exception as error:  # otherwise the page would count as being read for ever
                log.failure("history: read failed", error, node=order.to)
                problem = "failed; the log of the node says why"
            else:
                self.exchange.on_page_read(order, page, clock_us())
                self._flush_replies()
                return
        self.exchange.on_page_failed(order, problem, clock_us())
        self._flush_replies()

    def _flush_replies(self) -> None:
        """Send messages for another node or for this one."""
        self._flush_messages()
        self._server.due()

    def _maintain(self) -> None:
        """Warn about persistent channels that this node can't store."""
        if self._durability is not None:
            return
        for each in self._net.overlay.directory.all():
            if is_persistent(each) and each.name not in self._warned:
                self._warned[each.name] = True
                log.warning(
                    "persistent channel: not stored", channel=each.name, problem=_NOTHING_KEPT
                )
