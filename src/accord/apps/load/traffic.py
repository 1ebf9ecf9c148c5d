"""Publishers and subscribers on sockets that don't block, driven by one loop.

No more than a window of events is in flight to the slowest subscriber, so that the node always has
work and its queues stay short.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from math import inf
from time import perf_counter_ns, sleep
from typing import Final

from accord.apps.load.frames import Buffer, Dialect, LoadCounts, LoadError, Run

WAIT_S: Final = 0.05
ENDLESS: Final = 1 << 62  # as a window or a target
_READ: Final = 1 << 20
_LITTLE_BYTES: Final = 1 << 14
_NOTHING: Final = b""

# At most so many events as bytes, and how many they are.
Source = Callable[[int], tuple[Buffer, int]]


class LoadClient(LoadCounts):
    """A connection; counts what the node sends, and acknowledges it.

    If `frame_size` is given, all events that are delivered must have it.
    """

    def __init__(
        self, connection: socket.socket, dialect: Dialect, frame_size: int | None = None
    ) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.last_ns = 0  # when the last event was delivered
        self.on_delivery: Callable[[Run, int], None] | None = None
        self._dialect = dialect
        self._frame_size = frame_size
        self._queue: deque[Buffer] = deque()
        self._run = Run(dialect)
        self._rest: Buffer = _NOTHING  # an incomplete frame
        self._selector: selectors.BaseSelector | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the kernel has accepted everything."""
        return not self._queue

    def watch(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        selector.register(self.socket, selectors.EVENT_READ, self)

    def fence(self) -> None:
        self.fences += 1
        self.send(self._dialect.fence)

    def send(self, data: Buffer) -> None:
        if not self._queue:
            data = self._sent(data)
        if data:
            self._queue.append(data)
            self._watch_more()

    def push(self) -> None:
        """Send as much as the kernel accepts."""
        queue = self._queue
        while queue:
            if rest := self._sent(queue[0]):
                queue[0] = rest
                return
            queue.popleft()
        self._watch_more()

    def _sent(self, data: Buffer) -> Buffer:
        """Returns what the kernel does not accept now."""
        try:
            count = self.socket.send(data)
        except BlockingIOError:
            return data
        except OSError as error:
            raise LoadError(f"the connection broke: {error}") from None
        return b"" if count == len(data) else memoryview(data)[count:]

    def _watch_more(self) -> None:
        if self._selector is not None:
            more = selectors.EVENT_WRITE if self._queue else 0
            self._selector.modify(self.socket, selectors.EVENT_READ | more, self)

    def take(self, buffer: bytearray, now_ns: int) -> int:
        """Handle what has arrived, read by way of `buffer`; returns how many bytes it was."""
        target: Buffer = buffer
        if kept := len(self._rest):
            if 2 * kept > len(buffer):
                buffer.extend(bytes(2 * kept))
            buffer[:kept] = self._rest
            target = memoryview(buffer)[kept:]
        try:
            received = self.socket.recv_into(target)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise LoadError(f"the connection broke: {error}") from None
        if not received:
            raise LoadError("the node closed the connection")
        end, run = kept + received, self._run
        run.read(buffer, end)
        while run.advance():
            delivered = self.delivered
            if reply := self._dialect.handle(run, self):
                self.send(reply)
            if self.delivered != delivered:
                self.last_ns = now_ns
                if self._frame_size is not None and self._frame_size != run.size:
                    raise LoadError(f"expected events of {self._frame_size} bytes, got {run.size}")
                if self.on_delivery is not None:
                    self.on_delivery(run, now_ns)
        self._rest = buffer[run.start : end] if run.start < end else _NOTHING
        return received


class LoadPublisher(LoadClient):
    """Publishes what `source` gives, with at most `window` events not acknowledged."""

    def __init__(
        self, connection: socket.socket, dialect: Dialect, source: Source, window: int
    ) -> None:
        super().__init__(connection, dialect)
        self.published = 0
        self._source = source
        self._window = window
        self._has_acks = dialect.has_acks

    @property
    def unacknowledged(self) -> int:
        return self.published - self.acknowledged if self._has_acks else 0

    def publish(self, most: int) -> int:
        """Publish at most so many events if everything before is sent; returns how many."""
        room = min(most, self._window - self.unacknowledged)
        if self._queue or room <= 0:
            return 0
        data, count = self._source(room)
        if count:
            self.published += count
            self.send(data)
        return count


@dataclass(frozen=True)
class Plan:
    """In events: how many may be in flight, and how many a publisher sends at once.

    Publishers go through `topics` in turns, and each subscriber gets those of one.
    """

    window: int
    chunk: int = 1
    topics: int = 1


class LoadLane:
    """Publishers, and the subscribers that get what they publish."""

    def __init__(
        self, publishers: Sequence[LoadPublisher], subscribers: Sequence[LoadClient], plan: Plan
    ) -> None:
        self.publishers = deque(publishers)
        self.subscribers = subscribers
        self.plan = plan
        self.window = plan.window
        self.target = 0  # how many events are to be published
        self.published = 0

    @property
    def delivered(self) -> int:
        return sum([each.delivered for each in self.subscribers])

    @property
    def through(self) -> int:
        """How many events are certainly not in flight any more."""
        return min([each.delivered for each in self.subscribers]) * self.plan.topics

    @property
    def is_done(self) -> bool:
        return (
            self.published >= self.target
            and self.through >= self.target
            and not any(each.unacknowledged for each in self.publishers)
            and all(each.is_idle for each in chain(self.publishers, self.subscribers))
        )

    def feed(self) -> bool:
        """Publish what window and target allow, round-robin; returns whether there is room left."""
        left = min(self.target, self.through + self.window) - self.published
        busy = 0
        while left > 0 and busy < len(self.publishers):
            count = self.publishers[0].publish(left)
            self.publishers.rotate(-1)
            self.published += count
            left -= count
            busy = 0 if count else busy + 1
        return not self.subscribers and not left and self.published < self.target


class LoadLoop:
    """Lanes and their loop, which with `pause_s` waits so long where little arrives.

    A reader that wakes for every event makes a node pay for waking it, about as much as for moving
    the event.
    """

    def __init__(
        self, make: Callable[[ExitStack], Sequence[LoadLane]], pause_s: float = 0.0
    ) -> None:
        self.active_ns = 0  # when something arrived, or there was room to send
        self._pause_s = pause_s
        self._buffer = bytearray(_READ)
        self._fenced: Sequence[LoadClient] = ()
        with ExitStack() as stack:
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self.lanes = make(stack)
            for lane in self.lanes:
                for client in chain(lane.publishers, lane.subscribers):
                    client.watch(self._selector)
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def turn(self, wait_s: float = WAIT_S) -> None:
        """Publish what may be, wait at most so long for something to arrive, and handle it."""
        has_room = False
        for lane in self.lanes:
            has_room |= lane.feed()
        received = 0
        ready = self._selector.select(0 if has_room else wait_s)
        if ready:
            self.active_ns = now_ns = perf_counter_ns()
        for key, mask in ready:
            if mask & selectors.EVENT_READ:
                received += key.data.take(self._buffer, now_ns)
            if mask & selectors.EVENT_WRITE:
                key.data.push()
        if self._pause_s and received < _LITTLE_BYTES:
            sleep(self._pause_s)

    def fence(self, clients: Sequence[LoadClient]) -> None:
        """Let `finish` wait until the node has processed what these sent."""
        for client in clients:
            client.fence()
        self._fenced = clients

    def finish(self, stall_s: float, most_s: float = inf) -> bool:
        """Go on until all lanes are done; returns whether they are.

        It gives up if nothing arrives for `stall_s`.
        """
        start_ns = self.active_ns = perf_counter_ns()
        while not self._is_done:
            now_ns = perf_counter_ns()
            if now_ns - self.active_ns > stall_s * 1e9 or now_ns - start_ns > most_s * 1e9:
                return False
            self.turn()
        return True

    @property
    def _is_done(self) -> bool:
        for lane in self.lanes:
            if not lane.is_done:
                return False
        return not any(client.fences for client in self._fenced)
