"""Persistent channels at a running node: reads its journal for others, and asks them for theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from accord.core.channels.persistent.answers import CutWanted, PageWanted
from accord.core.channels.persistent.exchange import PastExchange
from accord.core.channels.persistent.messages import SERVICE
from accord.core.channels.persistent.options import is_persistent
from accord.core.overlay.registry import CHANNEL
from accord.core.overlay.signals import Carried
from accord.edges.mqtt.broker import Broker
from accord.edges.mqtt.hub import Cut
from accord.edges.mqtt.past import Pasts
from accord.live.clock import Clock
from accord.live.durability import EVENTS, Durability
from accord.live.logs import get_log
from accord.live.net import Net
from accord.live.past_pages import PageError, PastPages
from accord.live.pipeline import Pipeline
from accord.live.sending import clock_us
from accord.live.server import Server

log = get_log(__name__)

KNOWN: Final = "past.json"
_SAVE_S: Final = 5.0
_REMEMBERED_S: Final = 60.0
_NOTHING_KEPT: Final = "nothing is kept on disk at this node: it needs a folder in node.data"


class Known(msgspec.Struct, frozen=True):
    """What outlives the node: by others, up to where all came and what besides; and channels."""

    nodes: dict[str, tuple[int, list[int]]] = {}
    channels: tuple[str, ...] = ()


class _NodeCut(Cut):
    """A cut that another node has asked for: it is told when all before it is on disk."""

    def __init__(self, kept: int, order: CutWanted, number: int) -> None:
        super().__init__(kept)
        self.order = order
        self.number = number
        self.offset = -1

    def made(self, offset: int) -> None:
        self.offset = offset


class PastService:
    def __init__(  # noqa: PLR0913 (the parts of a node)
        self,
        broker: Broker,
        server: Server,
        net: Net,
        clock: Clock,
        *,
        pipeline: Pipeline,
        durability: Durability | None,
        folder: Path | None,
    ) -> None:
        overlay = net.overlay
        self._broker = broker
        self._server = server
        self._net = net
        self._clock = clock
        self._durability = durability
        self._file = None if folder is None else folder / KNOWN
        self._saved = Known()
        self.exchange = net.channels.serve(
            SERVICE, lambda context: PastExchange(context, overlay.store, overlay.needs)
        )
        self.pasts = Pasts(broker, self.exchange, net.channels, clock_us)
        self._pages: PastPages | None = None
        if durability is not None and folder is not None:
            self._pages = PastPages(
                folder / EVENTS,
                net.channels,
                pipeline,
                committed=lambda: durability.committed_offset,
                now_ms=clock.now_ms,
            )
        self._cuts: list[_NodeCut] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._warned: dict[str, bool] = {}
        self._has_news = False
        overlay.store.watch(CHANNEL, self._channels_changed)
        net.on_page = self._page_came
        net.after.append(self._heard)

    def start(self) -> None:
        """Go on with what clients had before the node was started; before others are heard."""
        known = self._saved = self._read_known()
        self._net.channels.remembered = known.channels
        if self._durability is not None and self._durability.status().next_offset:
            self.exchange.has_kept()
        broker = self._broker
        broker.pasts = self.pasts
        before, broker.pasts_before = broker.pasts_before, {}
        if before:
            self.exchange.restore(known.nodes)
        for subscription, (session, name, progress) in before.items():
            self.pasts.resume(session, name, subscription, progress)
        self._start(self._keep_known())

    def turn(self) -> None:
        """What came of the last turn of the event loop; before it is recorded."""
        if self._has_news:
            self._has_news = False
            self._save()
        if self._cuts:
            self._answer_cuts()
        if self.exchange.active or len(self.pasts):
            self.pasts.step()
            self.exchange.go_on(clock_us())
            self._take_orders()
            self._net.turn()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._save()

    # -------------------------------------------------------------------------------------- inside

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _heard(self) -> None:
        """Other nodes may have asked or answered."""
        self._take_orders()
        if self.exchange.active:
            self._server.due()

    def _take_orders(self) -> None:
        orders = self.exchange.orders
        while orders:
            order = orders.pop(0)
            if isinstance(order, CutWanted):
                self._cut(order)
            else:
                self._start(self._read(order))

    def _page_came(self, event: Carried) -> None:
        self.exchange.page_came(event, clock_us())

    def _cut(self, order: CutWanted) -> None:
        hub = self._broker.hub
        hub.cut_number = hub.number
        if self._durability is None:
            self.exchange.cut_made(order, 0, hub.number, clock_us())
            return
        cut = _NodeCut(len(hub.kept), order, hub.number)
        hub.cuts.append(cut)
        self._cuts.append(cut)
        self._server.due()

    def _answer_cuts(self) -> None:
        assert self._durability is not None
        committed = self._durability.committed_offset
        for cut in self._cuts:
            if 0 <= cut.offset <= committed:
                self.exchange.cut_made(cut.order, cut.offset, cut.number, clock_us())
        self._cuts = [each for each in self._cuts if not 0 <= each.offset <= committed]
        self._net.turn()

    async def _read(self, order: PageWanted) -> None:
        problem = _NOTHING_KEPT
        if self._pages is not None:
            try:
                page = await self._pages.read(order.asked)
            except PageError as error:
                problem = str(error)
            except Exception as error:  # or the page would count as being read for ever
                log.failure("reading the past failed", error, node=order.to)
                problem = "failed; the log of the node says why"
            else:
                self.exchange.page_made(order, page, clock_us())
                self._said()
                return
        self.exchange.no_page(order, problem, clock_us())
        self._said()

    def _said(self) -> None:
        """There is something for another node, or for this one."""
        self._take_orders()
        self._net.turn()
        self._server.due()

    # ------------------------------------------------------------------------------ what is known

    async def _keep_known(self) -> None:
        """Also forget, after a while, what channels were before the node was started."""
        left_s = _REMEMBERED_S
        while True:
            await asyncio.sleep(_SAVE_S)
            left_s -= _SAVE_S
            if left_s <= 0 and self._net.channels.remembered:
                self._net.channels.remembered = ()
                self._broker.router.invalidate("#")
            self._save()
            self._warn()

    def _channels_changed(self, *_: object) -> None:
        """Before anything is published to a channel that is persistent now."""
        self._has_news = True
        self._server.due()

    def _channels(self) -> tuple[str, ...]:
        defined = [each.name for each in self._net.overlay.registry.all() if is_persistent(each)]
        return tuple(dict.fromkeys((*defined, *self._net.channels.remembered)))

    def _warn(self) -> None:
        """Where a channel is to be kept and can't."""
        if self._durability is not None:
            return
        for each in self._net.overlay.registry.all():
            if is_persistent(each) and each.name not in self._warned:
                self._warned[each.name] = True
                log.warning("a channel is persistent", channel=each.name, problem=_NOTHING_KEPT)

    def _read_known(self) -> Known:
        if self._file is None or not self._file.exists():
            return Known()
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Known)
        except (OSError, msgspec.DecodeError) as error:
            log.warning("can't read what was known", file=str(self._file), problem=str(error))
            return Known()

    def _save(self) -> None:
        known = Known(self.exchange.places(), self._channels())
        if self._file is None or known == self._saved:
            return
        unfinished = self._file.with_suffix(".tmp")
        try:
            unfinished.write_bytes(msgspec.json.encode(known))
            unfinished.replace(self._file)
        except OSError as error:
            log.warning("can't write what is known", file=str(self._file), problem=str(error))
            return
        self._saved = known
