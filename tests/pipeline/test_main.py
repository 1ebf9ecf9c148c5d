"""The process itself, over its socket, from its start to its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.pipeline.asking import NODE, World, made
from tests.pipeline.journals import START_MS

from accord.core.queries.messages import (
    Cancel,
    EventQuery,
    FromNode,
    FromPipeline,
    Health,
    Page,
    PageFrames,
    PageQuery,
    QueryFailure,
    StartPipeline,
    decode_from_pipeline,
    encode_frame,
)
from accord.pipeline.process import HOPELESS

PATIENCE_S = 100.0


class Pipeline:
    """The node's end."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.socket = ours
        self.health = Health()
        self._frames = PageFrames()
        self._waiting: list[FromPipeline] = []
        with theirs:
            fd = theirs.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "accord.pipeline", "--fd", str(fd)],
                pass_fds=(fd,),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )

    def send(self, message: FromNode) -> None:
        self.socket.sendall(encode_frame(message))

    def receive(self) -> FromPipeline:
        while not self._waiting:
            self.socket.settimeout(PATIENCE_S)
            data = self.socket.recv(1 << 20)
            assert data, f"ended: {self.health}"
            self._waiting = [decode_from_pipeline(body) for body in self._frames.feed(data)]
        message = self._waiting.pop(0)
        if isinstance(message, Health):
            self.health = message
        return message

    def wait_for(self, is_it: Callable[[Health], bool]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not is_it(self.health):
            assert time.monotonic() < until_s, self.health
            self.receive()

    def ask(self, query: PageQuery) -> Page | QueryFailure:
        self.send(query)
        while True:
            message = self.receive()
            if isinstance(message, Page | QueryFailure) and message.id == query.id:
                return message

    def end(self) -> tuple[int, bytes]:
        """Exit code, and what was printed."""
        self.socket.close()
        printed, _ = self.process.communicate(timeout=PATIENCE_S)
        lines = printed.splitlines(keepends=True)
        return self.process.returncode, b"".join(
            line for line in lines if b"incubator modules" not in line
        )


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    pipeline = Pipeline()
    yield pipeline
    pipeline.socket.close()
    pipeline.process.kill()
    pipeline.process.communicate()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def start(world: World, tmp_path: Path, spark: str = "local[1]") -> StartPipeline:
    return StartPipeline(
        node=NODE,
        journal=world.journal,
        archive=world.archive,
        work=str(tmp_path / "work"),
        spark=spark,
        memory_mb=512,
        declared={"altitude_m": "integer"},
    )


def children(process: int) -> list[int]:
    """By parent: a thread that ends while `/proc/PID/task/*/children` is read hides its own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = path.read_text().partition(" ")
            if int(rest.rpartition(")")[2].split()[1]) == process:
                found.append(int(number))
    return found


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.timeout(400)
def test_from_start_to_end(pipeline: Pipeline, world: World, tmp_path: Path) -> None:
    world.publish([made(n, START_MS + n, "uav/a", (("altitude_m", str(n)),)) for n in range(50)])
    pipeline.send(start(world, tmp_path))
    ask = EventQuery(channel="uav/#", where="altitude_m >= 45", is_newest_first=True)
    page = pipeline.ask(PageQuery(id=1, ask=ask))  # waits while Spark starts
    assert isinstance(page, Page)
    assert list(page.events) == world.expected(ask)
    pipeline.wait_for(lambda health: health.state == "ready" and health.archived_offset == 50)
    pipeline.wait_for(lambda health: health.events == 50)  # counted after it is committed

    world.publish([made(99, START_MS + 99, "uav/b", (("altitude_m", "99"),))])
    page = pipeline.ask(PageQuery(id=2, ask=ask, rows=3))
    assert isinstance(page, Page)
    assert list(page.events) == world.expected(ask)[:3]

    failed = pipeline.ask(PageQuery(id=3, ask=EventQuery(channel="uav/#", where="altitude_m >")))
    assert isinstance(failed, QueryFailure)
    assert failed.place == "where"

    pipeline.wait_for(lambda health: health.archived_offset == 51 and health.lag_records == 0)
    page = pipeline.ask(PageQuery(id=4, ask=ask))
    assert isinstance(page, Page)
    assert (list(page.events), page.tail) == (world.expected(ask), 0)
    pipeline.send(Cancel(4))  # too late, and no matter

    pipeline.process.send_signal(signal.SIGINT)
    page = pipeline.ask(PageQuery(id=5, ask=ask, cursor=""))
    assert isinstance(page, Page)
    java = children(pipeline.process.pid)
    assert java
    assert pipeline.end() == (0, b"")
    while any(map(is_running, java)):  # it may take a moment; the test's time-out is the limit
        time.sleep(0.05)
    assert "Traceback" not in (tmp_path / "work" / "pipeline.log").read_text()


@pytest.mark.timeout(400)
def test_java_that_dies_ends_it(pipeline: Pipeline, world: World, tmp_path: Path) -> None:
    world.publish([made(1, START_MS, "a")])
    pipeline.send(start(world, tmp_path))
    pipeline.wait_for(lambda health: health.state == "ready")
    javas = children(pipeline.process.pid)
    assert javas
    for java in javas:
        os.kill(java, signal.SIGKILL)
    pipeline.wait_for(lambda health: health.state == "failed")
    assert "Java" in pipeline.health.problem
    assert pipeline.end()[0] == 1


def test_ends_before_it_has_begun(pipeline: Pipeline, world: World, tmp_path: Path) -> None:
    pipeline.send(start(world, tmp_path))
    pipeline.receive()
    pipeline.process.send_signal(signal.SIGTERM)
    code, _ = pipeline.end()
    assert code == 0


def test_settings_that_cant_be(pipeline: Pipeline, world: World, tmp_path: Path) -> None:
    right = start(world, tmp_path)
    pipeline.send(msgspec.structs.replace(right, declared={"Channel": "string"}))
    pipeline.wait_for(lambda health: health.state == "failed")
    assert "Channel" in pipeline.health.problem
    assert pipeline.end()[0] == HOPELESS


def test_first_message_must_be_start(pipeline: Pipeline) -> None:
    pipeline.send(Cancel(1))
    code, printed = pipeline.end()
    assert code == HOPELESS
    assert b"Start" in printed
