"""The pipeline of a site, as seen by a node: it connects here, instead of being started here.

One pipeline archives the journals of many nodes and answers their queries. It connects to each over
HTTP (`http.pipeline_endpoint`); then the same messages pass as between a node and a process of its
own. One is connected at a time: nobody else may answer for it, or release records of the journal.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from accord.core.model.errors import AccordError
from accord.core.queries.messages import (
    FrameError,
    FromNode,
    FromPipeline,
    PageFrames,
    decode_from_pipeline,
    encode_frame,
)
from accord.journal import retention
from accord.journal.retention import ARCHIVE
from accord.runtime.logs import get_log

log = get_log(__name__)

MAX_UNSENT: Final = 16 << 20
_PIECE: Final = 1 << 15


class SiteConnection:
    """A connection to the site's pipeline, from `accept` until `has_ended`."""

    code: Final = None  # its process is not ours

    def __init__(self, address: str) -> None:
        self.address = address
        self.problem = ""  # protocol violation
        self.received_s = time.monotonic()
        self.has_ended = asyncio.Event()
        self.is_accepted = asyncio.Event()
        self._on_message: Callable[[FromPipeline], None] = lambda _: None
        self._frames = PageFrames()
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._has_unsent = asyncio.Event()

    def accept(self, on_message: Callable[[FromPipeline], None]) -> None:
        """Receive messages from now on."""
        self._on_message = on_message
        self.received_s = time.monotonic()
        self.is_accepted.set()

    def send(self, message: FromNode) -> None:
        data = encode_frame(message)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > MAX_UNSENT:
            self.end("it does not read what it is sent")
            return
        self._unsent.append(data)
        self._has_unsent.set()

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        self.received_s = time.monotonic()
        try:
            for body in self._frames.feed(data):
                self._on_message(decode_from_pipeline(body))
        except FrameError as error:
            self.end(f"invalid message: {error}")

    async def pieces(self) -> AsyncIterator[bytes]:
        """What is to be sent, as it comes."""
        while True:
            while self._unsent:
                data = self._unsent.popleft()
                for at in range(0, len(data), _PIECE):
                    yield data[at : at + _PIECE]
                self._unsent_bytes -= len(data)
            self._has_unsent.clear()
            await self._has_unsent.wait()

    def end(self, problem: str = "") -> None:
        self.problem = self.problem or problem
        self.has_ended.set()

    async def stop(self, timeout_s: float, term_s: float = 0.0) -> None:  # noqa: ARG002
        """Disconnect; the pipeline has other nodes, and goes on."""
        self.end()

    def last_lines(self) -> tuple[str, ...]:
        return ()  # it prints at its own machine

    def bound_output(self) -> None:
        pass


class Site:
    """Where the site's pipeline comes in."""

    def __init__(self) -> None:
        self._connection: SiteConnection | None = None
        self._has_connection = asyncio.Event()
        self._is_closed = False

    def refusal(self) -> str:
        """Why no pipeline may connect now; "" if one may."""
        if self._is_closed:
            return "the node is stopping"
        if self._connection is not None and not self._connection.has_ended.is_set():
            return f"another pipeline is connected, from {self._connection.address}: stop it first"
        return ""

    def offer(self, connection: SiteConnection) -> None:
        self._connection = connection
        self._has_connection.set()

    async def connected(self) -> SiteConnection:
        """Wait for the next connection."""
        while self._connection is None or self._connection.has_ended.is_set():
            self._has_connection.clear()
            await self._has_connection.wait()
        return self._connection

    def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            self._connection.end()


class JournalRelease:
    """Records in the journal's directory what the archive of the site still needs.

    Until the site's pipeline has first connected, that is everything, within the journal's limits.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._released = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if not retention.is_registered(self._journal, ARCHIVE):
            self._register(0)

    def release(self, offset: int) -> None:
        """Everything before `offset` is archived; called again and again."""
        is_busy = self._task is not None and not self._task.done()
        if offset > self._released and not is_busy:
            self._task = asyncio.create_task(asyncio.to_thread(self._register, offset))

    def _register(self, offset: int) -> None:
        try:
            retention.register(self._journal, ARCHIVE, offset)
            self._released = offset
        except AccordError as error:
            log.failure("journal: what is archived can't be recorded", error)
