"""The live stream: a WebSocket over which viewers watch live sets (`operations/live_catalog.py`).

While there is a viewer, a timer looks ten times a second for sets whose input changed, and computes
each once for all viewers with the same parameters and rights. Computing takes a bounded share of
the node's time: sets that are left over are computed at the next turn of the timer. Messages are
pulled: each connection takes the next one when its transport has room, so a viewer that reads
slowly misses differences instead of filling memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from accord.core.model.errors import AccordError
from accord.core.monitoring.viewers import Feed, StateTooLargeError, Viewer
from accord.core.router.rights import Rights
from accord.http.guard import asker_of
from accord.operations.live_catalog import SETS, read_request
from accord.operations.live_set import LiveSet, Stop, Watch, WatchError, sharing_key
from accord.operations.operation import (
    API,
    FAILED,
    PROBLEM,
    Asker,
    RequestError,
    problem_of,
)
from accord.operations.ports import NodePorts
from accord.runtime.addresses import network_of
from accord.runtime.fault_isolation import FaultIsolation
from accord.runtime.logs import get_log

log = get_log(__name__)

PATH: Final = f"{API}/live"
MAX_VIEWERS: Final = 200
MAX_FEEDS: Final = 256
MAX_FEEDS_BYTES: Final = 33_554_432
# Of one user, or of one address if there are no users: others have room, too.
MAX_USER_VIEWERS: Final = 32
MAX_USER_FEEDS: Final = 64
MAX_USER_FEEDS_BYTES: Final = 8_388_608
SESSION_ENDED: Final = 4_401  # code of the close frame
_TICK_S: Final = 0.1
_COMPUTE_S: Final = 0.005  # of each tick
_SOON_S: Final = 0.02  # until a set that nobody watched before is computed
_BURST: Final = 32  # requests of one viewer between two pauses

_Key = tuple[bytes, Rights]


class _SharedFeed(Feed):
    """A feed with the set that it shows."""

    def __init__(self, key: _Key, set_: LiveSet, ask: Watch) -> None:
        super().__init__()
        self.key = key
        self.ask = ask
        self.asker = Asker(rights=key[1])
        self.computed_ms: int | None = None
        self._set = set_
        self._version: object = None

    def is_due(self, node: NodePorts, now_ms: int) -> bool:
        if self.computed_ms is None:
            return True
        elapsed_ms = now_ms - self.computed_ms
        if 0 <= elapsed_ms < self._set.every_ms:
            return False
        return self._set.version(node) != self._version

    def compute(self, node: NodePorts, now_ms: int, isolation: FaultIsolation) -> None:
        self.computed_ms = now_ms
        self._version = self._set.version(node)
        try:
            self.publish(self._set.compute(node, self.ask, self.asker), now_ms=now_ms)
        except StateTooLargeError:
            problem = "the state is too large to be sent"
            error = RequestError(413, problem, remedy="watch less of it: lower its limit")
            self.fail(problem_of(error), now_ms=now_ms)
        except AccordError as error:
            self.fail(problem_of(error), now_ms=now_ms)
        except Exception as error:  # fault isolation: the other sets continue
            isolation.failed("live set: not computed", error, set=self._set.name)
            self.fail(FAILED, now_ms=now_ms)


class LiveStream:
    """All viewers of one node."""

    def __init__(self, node: NodePorts) -> None:
        self.computed = 0  # since the start
        self._node = node
        self._feeds: dict[_Key, _SharedFeed] = {}  # the longest not computed first
        self._connections: set[_Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_hurried = False
        self._isolation = FaultIsolation(log)

    @property
    def viewers(self) -> int:
        return len(self._connections)

    @property
    def feeds(self) -> int:
        return len(self._feeds)

    @property
    def is_running(self) -> bool:
        """Whether the timer runs: not without viewers."""
        return self._timer is not None

    def now_ms(self) -> int:
        return self._node.now_ms()

    async def serve(
        self, socket: WebSocket, *, is_open: Callable[[str], bool] | None = None
    ) -> None:
        """Serve one viewer until it disconnects, or its session ends.

        `is_open` tells whether the session of a `Cookie` header is open, if there are users.
        """
        connection = _Connection(self, socket, self._node.now_ms(), is_open)
        if refusal := self._refusal(connection.asker):
            await deny(socket, refusal)
            return
        self._connections.add(connection)
        self._schedule()
        try:
            await socket.accept()
            await connection.run()
        except (WebSocketDisconnect, OSError):
            pass
        finally:
            self._connections.discard(connection)
            for feed in connection.viewer.feeds:
                feed.watches -= 1
                self._drop_unwatched(feed)

    def _refusal(self, asker: Asker) -> RequestError | None:
        """Why this viewer may not connect."""
        if not any(asker.has(each.right) for each in SETS.values()):
            problem = f"{asker.user or 'an anonymous client'} may not watch anything here"
            return RequestError(403, problem, remedy="takes may.statistics")
        if len(self._connections) >= MAX_VIEWERS:
            return RequestError(503, "too many viewers", retry_s=10)
        if len(self._connections_of(asker)) >= MAX_USER_VIEWERS:
            problem = f"{MAX_USER_VIEWERS} viewers of this user are connected"
            return RequestError(429, problem, remedy="close one", retry_s=10)
        return None

    def _connections_of(self, asker: Asker) -> list[_Connection]:
        """The viewers of the same user; of the same address, where there are no users."""
        who = _owner(asker)
        return [each for each in self._connections if _owner(each.asker) == who]

    def request(self, viewer: Viewer, asker: Asker, text: str) -> None:
        """Perform a viewer's request; what is wrong with it is sent to the viewer."""
        number: int | None = None
        try:
            found = read_request(text)
            if isinstance(found, Stop):
                self._drop_unwatched(viewer.stop(found.stop))
                return
            set_, ask = found
            number = ask.watch
            if not asker.has(set_.right):
                who = asker.user or "an anonymous client"
                problem = f"{who} may not watch {set_.name}"
                raise RequestError(403, problem, remedy=f"takes {set_.right.value}")
            if not viewer.can_watch(number):
                raise RequestError(429, "too many watches at once", "watch", remedy="stop one")
            feed = self._feed(set_, ask, asker)
            self._drop_unwatched(viewer.watch(number, feed))
        except WatchError as error:
            viewer.notify(error.watch, problem_of(error))
        except RequestError as error:
            viewer.notify(number, problem_of(error))

    def _feed(self, set_: LiveSet, ask: Watch, asker: Asker) -> _SharedFeed:
        key = (sharing_key(ask), asker.rights)
        feed = self._feeds.get(key)
        if feed is None:
            size = sum(each.size for each in self._feeds.values())
            if len(self._feeds) >= MAX_FEEDS or size >= MAX_FEEDS_BYTES:
                problem = "too many different sets are watched at this node"
                raise RequestError(503, problem, retry_s=10)
            self._check_share(asker)
            feed = self._feeds[key] = _SharedFeed(key, set_, ask)
            self._compute_soon()
        return feed

    def _check_share(self, asker: Asker) -> None:
        """Raises RequestError if a user watches too much to watch one more set."""
        own = {each for found in self._connections_of(asker) for each in found.viewer.feeds}
        size = sum(each.size for each in own)
        if len(own) >= MAX_USER_FEEDS or size >= MAX_USER_FEEDS_BYTES:
            problem = "this user watches too many different sets at this node"
            raise RequestError(429, problem, remedy="stop one")

    def _drop_unwatched(self, feed: Feed | None) -> None:
        if isinstance(feed, _SharedFeed) and not feed.watches:
            self._feeds.pop(feed.key, None)

    def _schedule(self) -> None:
        if self._timer is None and self._connections:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _compute_soon(self) -> None:
        """Have the next turn soon: a viewer waits for its first state."""
        if self._timer is not None and not self._is_hurried:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_SOON_S, self._tick)
            self._is_hurried = True

    def _tick(self) -> None:
        self._timer = None
        self._is_hurried = False
        self._schedule()
        self.advance()

    def advance(self) -> None:
        """Compute what is due, as far as the time for it goes, and wake viewers."""
        loop = asyncio.get_running_loop()
        node = self._node
        now_ms = node.now_ms()
        until = loop.time() + _COMPUTE_S
        for feed in list(self._feeds.values()):
            if feed.is_due(node, now_ms):
                self._feeds[feed.key] = self._feeds.pop(feed.key)
                feed.compute(node, now_ms, self._isolation)
                self.computed += 1
                if loop.time() >= until:
                    break
        for connection in self._connections:
            connection.wake(now_ms)


class _Connection:
    """The WebSocket of one viewer."""

    def __init__(
        self,
        stream: LiveStream,
        socket: WebSocket,
        now_ms: int,
        is_open: Callable[[str], bool] | None,
    ) -> None:
        self.viewer = Viewer(now_ms=now_ms)
        self._stream = stream
        self._socket = socket
        self.asker = asker_of(socket.scope)
        self._is_open = None if "authorization" in socket.headers else is_open
        self._cookies = socket.headers.get("cookie", "")
        self._has_message = asyncio.Event()

    async def run(self) -> None:
        writer = asyncio.create_task(self._write(), name="accord-live")
        try:
            await self._read()
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def wake(self, now_ms: int) -> None:
        if not self._has_message.is_set() and self.viewer.has_message(now_ms):
            self._has_message.set()

    async def _read(self) -> None:
        asked = 0
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            self._stream.request(self.viewer, self.asker, _text_of(message))
            self.wake(self._stream.now_ms())
            asked += 1
            if asked % _BURST == 0:
                await asyncio.sleep(_TICK_S)

    async def _write(self) -> None:
        """Send one message at a time: the transport blocks while the viewer does not read."""
        while True:
            text = self.viewer.next_message(self._stream.now_ms())
            if self._is_open is not None and not self._is_open(self._cookies):
                await self._socket.close(SESSION_ENDED, "the session has ended")
                return
            if text is None:
                self._has_message.clear()
                await self._has_message.wait()
            else:
                await self._socket.send_text(text)


def _text_of(message: Message) -> str:
    text = message.get("text")
    return text if isinstance(text, str) else ""


def _owner(asker: Asker) -> tuple[str, str]:
    return (asker.user, "" if asker.user else network_of(asker.address))


async def deny(socket: WebSocket, refusal: RequestError) -> None:
    """Refuse the handshake."""
    headers = {"Retry-After": str(refusal.retry_s)} if refusal.retry_s else {}
    problem = problem_of(refusal)
    body = msgspec.json.encode(problem)
    response = Response(body, problem.status, headers=headers, media_type=PROBLEM)
    await socket.send_denial_response(response)
