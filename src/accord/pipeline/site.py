"""The pipeline of a site: one process for many nodes, which it connects to.

A node's journal is read over HTTP; its questions come, and answers go, over a WebSocket that the
node's pipeline messages travel on as they do to a process of its own. A connection that ends is
made again, for as long as it takes; meanwhile the other nodes have theirs. What is to be sent
waits in memory, within a limit: a node that does not read is disconnected.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from accord.core.queries.journal_http import PIPELINE, parse_node_address
from accord.core.queries.messages import (
    FrameError,
    FromPipeline,
    PageFrames,
    StartPipeline,
    decode_from_node,
    encode_frame,
)
from accord.pipeline.node_service import NodeService
from accord.pipeline.process import RETRY, Process, quiet_libraries
from accord.pipeline.remote_journal import login
from accord.pipeline.service import PipelineService

MAX_UNSENT: Final = 256 << 20
_PAUSES_S: Final = (0.5, 1.0, 2.0, 5.0)
_AGAIN_S: Final = 5.0  # after Java has ended
_OPEN_S: Final = 10.0
_ALIVE_S: Final = 10.0  # between two pings, and for the answer
_PIECE: Final = 1 << 15
_TICK_S: Final = 1.0
_log: Final = logging.getLogger(__name__)


class NodeLink:
    """The connection to one node, made again whenever it ends."""

    def __init__(self, node: str, url: str, service: PipelineService) -> None:
        address = parse_node_address(url)
        scheme = "wss" if urlsplit(address.url).scheme == "https" else "ws"
        self._node = node
        self._place = address.url
        self._url = f"{scheme}{address.url[address.url.index(':') :]}{PIPELINE}?node={quote(node)}"
        self._headers = login(address)
        self._service = service
        self._problem = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"node-{node}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began_s = time.monotonic()
            try:
                problem = self._serve()
            except Exception as error:  # a fault with one node is none of the others
                _log.exception("node %s: connection failed", self._node)
                problem = repr(error)
            if self._stopping.is_set():
                return
            if time.monotonic() - began_s > _OPEN_S:
                failures = 0
            self._service.report_absent(self._node, problem)
            if problem != self._problem:
                self._problem = problem
                _log.warning("node %s is not connected: %s", self._node, problem)
            self._stopping.wait(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
            failures += 1

    def _serve(self) -> str:
        """Work for the node until the connection ends; returns why it did."""
        try:
            with connect(
                self._url,
                additional_headers=self._headers,
                user_agent_header="accord",
                compression=None,
                open_timeout=_OPEN_S,
                ping_interval=_ALIVE_S,
                ping_timeout=_ALIVE_S,
                close_timeout=1.0,
            ) as socket:
                return self._work(socket)
        except InvalidStatus as error:
            return f"{self._place} refuses: {_refusal(error)}"
        except (WebSocketException, OSError) as error:
            return f"{self._place}: {str(error) or type(error).__name__}"

    def _work(self, socket: ClientConnection) -> str:
        self._problem = ""
        _log.info("node %s is connected", self._node)
        sender = FrameSender(socket)
        service = self._service.connect(self._node, sender.send)
        try:
            return self._carry(socket, service)
        except FrameError as error:
            return f"{self._place}: invalid message: {error}"
        except (WebSocketException, OSError) as error:
            return f"{self._place}: {sender.problem or str(error) or type(error).__name__}"
        finally:
            self._service.disconnect(service)
            sender.close()

    def _carry(self, socket: ClientConnection, service: NodeService) -> str:
        frames = PageFrames()
        next_s = time.monotonic()
        while not self._stopping.is_set():
            if time.monotonic() >= next_s:
                self._service.tick_node(service)
                next_s = time.monotonic() + _TICK_S
            with suppress(TimeoutError):
                data = socket.recv(max(0.0, next_s - time.monotonic()))
                if isinstance(data, str):
                    raise FrameError("expected binary messages")
                for body in frames.feed(data):
                    service.handle(decode_from_node(body))
        return "stopped"


class FrameSender:
    """Sends in a thread of its own: nobody waits for a node that reads slowly."""

    def __init__(self, socket: ClientConnection) -> None:
        self.problem = ""
        self._socket = socket
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._thread.start()

    def send(self, message: FromPipeline) -> None:
        """Queue a message; after the end it is dropped."""
        data = encode_frame(message)
        with self._changed:
            if self._is_closed:
                return
            self._waiting.append(data)
            self._bytes += len(data)
            if self._bytes > MAX_UNSENT:
                self.problem = "it does not read what it is sent"
                self._is_closed = True
            self._changed.notify()

    def close(self) -> None:
        """Send what waits, within moments, and close the connection."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(_TICK_S)
        self._socket.close()

    def _run(self) -> None:
        try:
            while (data := self._next()) is not None:
                for at in range(0, len(data), _PIECE):
                    self._socket.send(data[at : at + _PIECE])
        except (WebSocketException, OSError):
            pass  # the reader notices
        if self.problem:
            self._socket.close()

    def _next(self) -> bytes | None:
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            if not self._waiting or self.problem:
                return None
            data = self._waiting.popleft()
            self._bytes -= len(data)
            return data


def run_site(start: StartPipeline) -> int:
    """Run the pipeline for `start.journals` until SIGINT or SIGTERM; returns the exit code.

    If it is RETRY, a while has passed since the failure.
    """
    quiet_libraries()
    service = PipelineService(start)
    links = [NodeLink(node, url, service) for node, url in start.journals.items()]
    stopping, asked = threading.Event(), threading.Event()

    def stop(*_: object) -> None:
        asked.set()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)

    def work() -> None:
        for link in links:
            link.start()
        stopping.wait()
        for link in links:
            link.stop()
        for link in links:
            link.join(2 * _TICK_S)

    process = Process(service, end=stopping.set)
    process.run(work)
    if process.code == RETRY and asked.wait(_AGAIN_S):
        return 0
    return process.code


def _refusal(error: InvalidStatus) -> str:
    """What a node answered instead of accepting the connection."""
    try:
        reply = msgspec.json.decode(error.response.body or b"")
        words = [str(reply[name]) for name in ("detail", "remedy") if reply.get(name)]
    except (msgspec.DecodeError, AttributeError, TypeError):
        words = []
    return "; ".join(words)[:300] or f"HTTP {error.response.status_code}"
