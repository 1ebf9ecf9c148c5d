"""Runs a `ClientMachine` on asyncio: opens streams, moves bytes, keeps timers, reconnects.

Exponential backoff between connection attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from accord.client.errors import ClientError, ConnectionFailedError, SessionClosedError
from accord.client.machine import CHECK, ClientMachine, Phase
from accord.client.machine_io import (
    Arrived,
    Close,
    CloseRequested,
    Connected,
    Ended,
    Input,
    Lost,
    Opened,
    Output,
    Received,
    Send,
    Settled,
    Withdrawn,
)
from accord.client.transport import Stream
from accord.core.mqtt.properties import NO_PROPERTIES


class Backoff:
    """Backoff that doubles from `first_ms` to `limit_ms`, with jitter.

    Each wait is between half of the current value and all of it. The jitter keeps clients that lost
    the same server from reconnecting all at once.
    """

    def __init__(
        self, random: Callable[[], float], *, first_ms: int = 100, limit_ms: int = 30_000
    ) -> None:
        if not 0 < first_ms <= limit_ms:
            raise ValueError(f"expected 0 < first_ms <= limit_ms, got {first_ms} and {limit_ms}")
        self._random = random
        self._first_ms = first_ms
        self._limit_ms = limit_ms
        self._ceiling_ms = first_ms

    def next_ms(self) -> int:
        ceiling_ms = self._ceiling_ms
        self._ceiling_ms = min(2 * ceiling_ms, self._limit_ms)
        return round(ceiling_ms * (1 + self._random()) / 2)

    def reset(self) -> None:
        """Start from `first_ms` again, after a success."""
        self._ceiling_ms = self._first_ms


WRITE_AHEAD: Final = 1024 * 1024
FLUSH_S: Final = 1.0
# A shorter connection does not reset the backoff: two clients with the same client id, for example,
# would otherwise disconnect each other without end.
STEADY_MS: Final = 2_000


class InboxListener(Protocol):
    """Receives notifications about one subscription's inbox."""

    def wake(self) -> None: ...

    def fail(self, error: ClientError) -> None: ...


class Driver:
    """The I/O of one session."""

    def __init__(
        self, machine: ClientMachine, connect: Callable[[], Awaitable[Stream]], backoff: Backoff
    ) -> None:
        self.machine = machine
        self.server = NO_PROPERTIES  # properties of the last CONNACK
        self.listeners: dict[int, InboxListener] = {}
        self.error: ClientError | None = None
        self.on_connection: Callable[[bool], None] | None = None
        self._connect = connect
        self._backoff = backoff
        self._loop = asyncio.get_running_loop()
        self._tokens = 0
        self._identifiers = 0
        self._pending: dict[int, asyncio.Future[Settled]] = {}
        self._output: list[bytes] = []
        self._output_size = 0
        self._has_output = asyncio.Event()
        self._has_room = asyncio.Event()
        self._wants_data = asyncio.Event()
        self._deadline_moved = asyncio.Event()
        self._wake_ms: int | None = None
        self._connected_ms: int | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self.next_connection: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[Close] = self._loop.create_future()
        self._final: Close | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------------------ for a session

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def start(self, timeout_ms: int) -> None:
        """Connect for the first time; retry for up to `timeout_ms`."""
        self.start_nowait(timeout_ms)
        await asyncio.shield(self._ready)

    def start_nowait(self, timeout_ms: int) -> None:
        """Start connecting without waiting; requests made meanwhile are sent once connected."""
        give_up_ms = self.now_ms() + timeout_ms
        self._tasks = [
            self._loop.create_task(self._run(give_up_ms)),
            self._loop.create_task(self._run_timers()),
        ]

    async def stop(self, *, is_discarded: bool) -> None:
        """Disconnect, and end all tasks."""
        is_connected = self.machine.phase is Phase.CONNECTED
        if self.error is None:
            self.handle(CloseRequested(is_discarded))
        try:
            if is_connected:
                await asyncio.wait({self._tasks[0]}, timeout=2 * FLUSH_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self.error is None:
                self._fail(SessionClosedError("the session was closed"))

    def handle(self, happened: Input) -> None:
        self._perform(self.machine.handle(happened, now_ms=self.now_ms()))

    def new_identifier(self) -> int:
        self._identifiers += 1
        return self._identifiers

    async def request(self, order: Callable[[int], None]) -> Settled:
        """Give the machine the order with a token, and wait until it is settled."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        self._tokens += 1
        token = self._tokens
        answer: asyncio.Future[Settled] = self._loop.create_future()
        self._pending[token] = answer
        try:
            order(token)
            settled = await answer
        finally:
            del self._pending[token]
            if answer.cancelled() or not answer.done():
                self.handle(Withdrawn(token))
        while self._output_size > WRITE_AHEAD and self.error is None:
            self._has_room.clear()
            await self._has_room.wait()
        return settled

    def request_nowait(self, order: Callable[[int], None]) -> None:
        """Give the machine the order and ignore its result."""
        if self.error is None:
            self._tokens += 1
            order(self._tokens)

    # -------------------------------------------------------------------------------------- inside

    def _perform(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Send(data):
                    self._output.append(data)
                    self._output_size += len(data)
                    self._has_output.set()
                case Arrived(identifier):
                    if (listener := self.listeners.get(identifier)) is not None:
                        listener.wake()
                case Settled():
                    self._on_settled(output)
                case Ended(identifier, error):
                    if (listener := self.listeners.get(identifier)) is not None:
                        listener.fail(error)
                case Connected(_, properties):
                    self.server = properties
                    self._connected_ms = self.now_ms()
                    if self.on_connection is not None:
                        self.on_connection(True)
                    if not self._ready.done():
                        self._ready.set_result(None)
                    self.next_connection.set_result(None)
                    self.next_connection = self._loop.create_future()
                case Close():
                    if output.is_final:
                        self._final = output
                    if not self._closed.done():
                        self._closed.set_result(output)
        if self.machine.wants_data:
            self._wants_data.set()
        soonest_ms = self.machine.next_deadline_ms()
        if soonest_ms is not None and (self._wake_ms is None or soonest_ms < self._wake_ms):
            self._deadline_moved.set()

    def _on_settled(self, settled: Settled) -> None:
        answer = self._pending.get(settled.token)
        if answer is None or answer.done():
            return
        if settled.error is not None:
            answer.set_exception(settled.error)
        else:
            answer.set_result(settled)

    def _fail(self, error: ClientError) -> None:
        """End the session: everything that waits fails with `error`."""
        self.error = error
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # retrieved: there may be no waiter left
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(error)
        for listener in list(self.listeners.values()):
            listener.fail(error)
        self._has_room.set()

    async def _run(self, deadline_ms: int) -> None:
        """Connect and reconnect with backoff, until a final close or a first connect timeout."""
        try:
            while True:
                end = await self._run_connection()
                end = self._final or end
                self._closed = self._loop.create_future()
                if end.is_final or (not self._ready.done() and self.now_ms() >= deadline_ms):
                    self._fail(end.error)
                    return
                since_ms, self._connected_ms = self._connected_ms, None
                if since_ms is not None and self.on_connection is not None:
                    self.on_connection(False)
                if since_ms is not None and self.now_ms() - since_ms >= STEADY_MS:
                    self._backoff.reset()
                await asyncio.sleep(self._backoff.next_ms() / 1000)
        finally:
            if self.error is None:  # cancelled, or the transport raised
                self._fail(SessionClosedError("the session was ended"))

    async def _run_connection(self) -> Close:
        """Run one connection from opening to its end, and return why it ended."""
        try:
            stream = await self._connect()
        except ClientError as error:
            return Close(error, is_final=False)
        if self._final is not None:
            await stream.close()
            return self._final
        self._output, self._output_size = [], 0
        self.handle(Opened())
        tasks = [
            self._loop.create_task(self._read(stream)),
            self._loop.create_task(self._write(stream)),
        ]
        try:
            return await self._closed
        finally:
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:  # also if cancelled just then
                self.handle(Lost())
                await self._close_stream(stream)

    async def _close_stream(self, stream: Stream) -> None:
        try:
            with suppress(OSError):
                async with asyncio.timeout(FLUSH_S):
                    await self._flush(stream)
        finally:
            self._output, self._output_size = [], 0
            self._has_room.set()
            await stream.close()

    async def _flush(self, stream: Stream) -> None:
        if self._output:
            await stream.write(b"".join(self._output))
        # Closing with unread data would make TCP reset the connection, and the server might never
        # see what was written last. It closes its end once it has read our DISCONNECT.
        is_ours = self._final is not None and isinstance(self._final.error, SessionClosedError)
        while is_ours and await stream.read():
            pass

    async def _read(self, stream: Stream) -> None:
        try:
            while True:
                while not self.machine.wants_data:
                    self._wants_data.clear()
                    await self._wants_data.wait()
                data = await stream.read()
                if not data:
                    break
                self.handle(Received(data))
        except OSError as error:
            self._on_broken(f"the connection broke: {error}")
        else:
            advice = f"; {CHECK}" if self.machine.phase is Phase.CONNECTING else ""
            self._on_broken(f"the server closed the connection{advice}")

    async def _write(self, stream: Stream) -> None:
        try:
            while True:
                await self._has_output.wait()
                self._has_output.clear()
                if not self._output:
                    continue
                output, self._output = self._output, []
                await stream.write(b"".join(output))
                self._output_size = sum(map(len, self._output))
                self._has_room.set()
        except OSError as error:
            self._on_broken(f"the connection broke: {error}")

    def _on_broken(self, problem: str) -> None:
        if not self._closed.done():
            self._closed.set_result(Close(ConnectionFailedError(problem), is_final=False))

    async def _run_timers(self) -> None:
        while True:
            self._deadline_moved.clear()
            self._wake_ms = self.machine.next_deadline_ms()
            left_s = None
            if self._wake_ms is not None:
                left_s = max(self._wake_ms - self.now_ms(), 0) / 1000
            try:
                async with asyncio.timeout(left_s):
                    await self._deadline_moved.wait()
            except TimeoutError:
                self._perform(self.machine.advance(now_ms=self.now_ms()))
