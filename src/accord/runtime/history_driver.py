"""Drives the history that this node's clients receive, and persists its progress."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from accord.core.broker.broker import Broker
from accord.core.broker.persistent_history import HistorySubscriptions, PersistentChannels
from accord.core.channels.history.history_client import HistoryClient
from accord.runtime.connection_writer import clock_us
from accord.runtime.logs import get_log
from accord.runtime.server import Server

log = get_log(__name__)

KNOWN: Final = "past.json"
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
        asker: HistoryClient,
        directory: RememberedChannels,
        *,
        folder: Path | None,
    ) -> None:
        self.asker = asker
        self.pasts = HistorySubscriptions(broker, asker, directory, clock_us)
        self._broker = broker
        self._server = server
        self._directory = directory
        self._file = None if folder is None else folder / KNOWN
        self._saved = HistoryCheckpoint()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_news = False

    def start(self) -> None:
        """Resume the clients' history subscriptions, before other nodes' messages are handled."""
        known = self._saved = self._read_known()
        self._directory.remembered = known.channels
        broker = self._broker
        broker.pasts = self.pasts
        before, broker.pasts_before = broker.pasts_before, {}
        if before:
            self.asker.restore(known.nodes)
        for subscription, (session, name, progress) in before.items():
            self.pasts.resume(session, name, subscription, progress)
        self._begin(self._keep_known())

    def turn(self) -> None:
        """Advance after each turn of the event loop, before the turn is recorded."""
        if self._has_news:
            self._has_news = False
            self._save()
        if self.is_wanted():
            self.pasts.step()
            self.asker.go_on(clock_us())
            self._asked()

    def is_wanted(self) -> bool:
        """Whether a client waits for history."""
        return bool(self.asker.active or len(self.pasts))

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._save()

    def heard(self) -> None:
        """Schedule a turn after messages from other nodes."""
        if self.asker.active:
            self._server.due()

    def channels_changed(self, *_: object) -> None:
        """Called before events are published to a channel that is now persistent."""
        self._has_news = True
        self._server.due()

    def _asked(self) -> None:
        """Hook: there may be messages for other nodes."""

    def _look_after(self) -> None:
        """Hook: called periodically."""

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_known(self) -> None:
        """Save progress periodically; after a while, drop the channels remembered from before."""
        left_s = _REMEMBERED_S
        while True:
            await asyncio.sleep(_SAVE_S)
            left_s -= _SAVE_S
            if left_s <= 0 and self._directory.remembered:
                self._directory.remembered = ()
                self._broker.router.invalidate("#")
            self._save()
            self._look_after()

    def _read_known(self) -> HistoryCheckpoint:
        if self._file is None or not self._file.exists():
            return HistoryCheckpoint()
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=HistoryCheckpoint)
        except (OSError, msgspec.DecodeError) as error:
            log.warning("can't read what was known", file=str(self._file), problem=str(error))
            return HistoryCheckpoint()

    def _save(self) -> None:
        known = HistoryCheckpoint(self.asker.places(), tuple(self._directory.persistent_filters()))
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
