"""The pipeline's end of its connections to nodes."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from accord.core.queries.messages import (
    Cancel,
    FromNode,
    FromPipeline,
    Health,
    LedgerReply,
    PageFrames,
    decode_from_pipeline,
    encode_frame,
)
from accord.pipeline.service import PipelineService
from accord.pipeline.site import NodeLink


class FakeNodeService:
    def __init__(self, node: str, send: Callable[[FromPipeline], object]) -> None:
        self.node = node
        self.send = send
        self.handled: list[FromNode] = []

    def handle(self, message: FromNode) -> None:
        self.handled.append(message)


class FakeService:
    """What a link needs of `PipelineService`."""

    def __init__(self) -> None:
        self.connected: list[FakeNodeService] = []
        self.absent: list[str] = []
        self.disconnected = 0

    def connect(self, node: str, send: Callable[[FromPipeline], object]) -> FakeNodeService:
        self.connected.append(FakeNodeService(node, send))
        return self.connected[-1]

    def disconnect(self, _node: FakeNodeService) -> None:
        self.disconnected += 1

    def report_absent(self, node: str, why: str) -> None:
        self.absent.append(f"{node}: {why}")

    def tick_node(self, node: FakeNodeService) -> None:
        node.send(Health(state="ready"))


class FakeNode:
    """Accepts connections; `serve` does with each what a test wants."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.logins: list[str | None] = []
        self.received: list[FromPipeline] = []
        self.refusal: tuple[int, str] | None = None
        self.work: Callable[[ServerConnection], object] = self.read

    def read(self, socket: ServerConnection) -> None:
        frames = PageFrames()
        for data in socket:
            assert isinstance(data, bytes)
            self.received += map(decode_from_pipeline, frames.feed(data))

    def handle(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.paths.append(socket.request.path)
        self.logins.append(socket.request.headers.get("Authorization"))
        with suppress(ConnectionClosed):
            self.work(socket)

    def check(self, socket: ServerConnection, _request: object) -> Any:
        if self.refusal is not None:
            return socket.respond(self.refusal[0], self.refusal[1])
        return None


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def port(node: FakeNode) -> Iterator[int]:
    server: Server = serve(node.handle, "127.0.0.1", 0, process_request=node.check)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.socket.getsockname()[1]
    server.shutdown()
    thread.join()


@contextmanager
def linked(port: int, login: str = "") -> Iterator[FakeService]:
    service = FakeService()
    url = f"http://{login}127.0.0.1:{port}/"
    link = NodeLink("n 1", url, cast("PipelineService", service))
    link.start()
    yield service
    link.stop()
    link.join(10)


def until(is_done: Callable[[], object]) -> None:
    """pytest's time-out is the limit."""
    while not is_done():
        time.sleep(0.01)


def test_messages_of_any_size_both_ways(node: FakeNode, port: int) -> None:
    answer = LedgerReply(id=7, body=b"x" * 1_000_000)
    with linked(port, "ann:a%3Ab@") as service:
        until(lambda: service.connected)
        service.connected[0].send(answer)
        until(lambda: answer in node.received)
        assert Health(state="ready") in node.received
    assert node.paths == ["/api/v1/pipeline?node=n%201"]
    assert node.logins == ["Basic " + base64.b64encode(b"ann:a:b").decode()]
    assert service.disconnected == 1


def test_what_the_node_asks_is_handled(node: FakeNode, port: int) -> None:
    def ask(socket: ServerConnection) -> None:
        data = encode_frame(Cancel(1)) + encode_frame(Cancel(2))
        socket.send(data[:5])
        socket.send(data[5:])
        node.read(socket)

    node.work = ask
    with linked(port) as service:
        until(lambda: service.connected and len(service.connected[0].handled) == 2)
        assert service.connected[0].handled == [Cancel(1), Cancel(2)]


def test_it_connects_again_with_nothing_of_before(node: FakeNode, port: int) -> None:
    node.work = lambda socket: socket.close(reason="enough")
    with linked(port) as service:
        until(lambda: service.absent)
        assert "enough" in service.absent[0]
        node.work = node.read
        until(lambda: node.received)
        assert service.connected[0] is not service.connected[-1]


def test_garbage_is_named(node: FakeNode, port: int) -> None:
    node.work = lambda socket: socket.send(b"\x00\x00\x00\x01?")
    with linked(port) as service:
        until(lambda: service.absent)
        assert "invalid message" in service.absent[0]


def test_why_it_is_refused(node: FakeNode, port: int) -> None:
    node.refusal = 409, '{"detail": "this is node n2, not \'n 1\'"}'
    with linked(port, "ann:secret@") as service:
        until(lambda: service.absent)
    assert service.absent[0] == f"n 1: http://127.0.0.1:{port} refuses: this is node n2, not 'n 1'"


def test_nobody_there() -> None:
    with linked(1, "ann:secret@") as service:
        until(lambda: service.absent)
    assert service.absent[0].startswith("n 1: http://127.0.0.1:1: ")
    assert "secret" not in service.absent[0]
