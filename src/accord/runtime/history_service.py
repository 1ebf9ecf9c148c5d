"""History of persistent channels at a backbone node: serves its journal and requests others'."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from accord.core.broker.broker import Broker
from accord.core.broker.broker_context import JournalCut
from accord.core.channels.history.history_protocol import HistoryProtocol
from accord.core.channels.history.journal_reads import MakeCut, ReadPage
from accord.core.channels.history.messages import SERVICE
from accord.core.channels.history.options import is_persistent
from accord.core.overlay.channel_directory import CHANNEL
from accord.core.overlay.signalling import Carried
from accord.runtime.clock import Clock
from accord.runtime.connection_writer import clock_us
from accord.runtime.durability import EVENTS, Durability
from accord.runtime.history_driver import HistoryDriver
from accord.runtime.history_pages import HistoryPages, PageUnavailableError
from accord.runtime.logs import get_log
from accord.runtime.overlay_service import OverlayService
from accord.runtime.pipeline import Pipeline
from accord.runtime.server import Server

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
        folder: Path | None,
    ) -> None:
        overlay = net.overlay
        self.exchange = net.channels.serve(
            SERVICE, lambda context: HistoryProtocol(context, overlay.store, overlay.needs)
        )
        super().__init__(broker, server, self.exchange, net.channels, folder=folder)
        self._net = net
        self._durability = durability
        self._pages: HistoryPages | None = None
        if durability is not None and folder is not None:
            self._pages = HistoryPages(
                folder / EVENTS,
                net.channels,
                pipeline,
                committed=lambda: durability.committed_offset,
                now_ms=clock.now_ms,
            )
        self._cuts: list[_NodeCut] = []
        self._warned: dict[str, bool] = {}
        overlay.store.watch(CHANNEL, self.channels_changed)
        net.on_page = self._page_came
        net.after.append(self.heard)

    def start(self) -> None:
        if self._durability is not None and self._durability.status().next_offset:
            self.exchange.has_kept()
        super().start()

    def turn(self) -> None:
        if self._cuts:
            self._answer_cuts()
        super().turn()

    def heard(self) -> None:
        """Handle requests and replies of other nodes."""
        self._take_orders()
        super().heard()

    # ------------------------------------------------------------------------------------ internals

    def _asked(self) -> None:
        self._take_orders()
        self._net.turn()

    def _take_orders(self) -> None:
        orders = self.exchange.orders
        while orders:
            order = orders.pop(0)
            if isinstance(order, MakeCut):
                self._cut(order)
            else:
                self._begin(self._read(order))

    def _page_came(self, event: Carried) -> None:
        self.exchange.page_came(event, clock_us())

    def _cut(self, order: MakeCut) -> None:
        hub = self._broker.hub
        hub.cut_number = hub.number
        if self._durability is None:
            self.exchange.cut_made(order, 0, hub.number, clock_us())
            return
        cut = JournalCut(hub.kept_events())
        hub.cuts.append(cut)
        self._cuts.append(_NodeCut(cut, order, hub.number))
        self._server.due()

    def _answer_cuts(self) -> None:
        assert self._durability is not None
        committed = self._durability.committed_offset
        waiting = []
        for each in self._cuts:
            if 0 <= each.cut.offset <= committed:
                self.exchange.cut_made(each.order, each.cut.offset, each.number, clock_us())
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
                log.failure("reading the past failed", error, node=order.to)
                problem = "failed; the log of the node says why"
            else:
                self.exchange.page_made(order, page, clock_us())
                self._said()
                return
        self.exchange.no_page(order, problem, clock_us())
        self._said()

    def _said(self) -> None:
        """Send messages for another node or for this one."""
        self._asked()
        self._server.due()

    def _look_after(self) -> None:
        """Warn about persistent channels that this node can't store."""
        if self._durability is not None:
            return
        for each in self._net.overlay.registry.all():
            if is_persistent(each) and each.name not in self._warned:
                self._warned[each.name] = True
                log.warning("a channel is persistent", channel=each.name, problem=_NOTHING_KEPT)
