"""Brokers that a test can stop and start again at the same place."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from benchmarks.ports import free_port

from tests.brokers import HOST, MOSQUITTO

KINDS: Final = ("mosquitto", "accord")
WAIT_S: Final = 30.0


class TestBroker:
    """What it acknowledged survives `stop`; of mosquitto, nothing survives `kill`."""

    __test__ = False

    def __init__(self, kind: str, folder: Path, *, has_websocket: bool) -> None:
        self.kind = kind
        self.port = free_port()
        self.websocket_port = free_port() if has_websocket else 0
        self.url = f"mqtt://{HOST}:{self.port}"
        self.websocket_url = f"ws://{HOST}:{self.websocket_port}/mqtt"
        self._folder = folder
        self._log = folder / "log.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if not self.is_started():
            pytest.fail(f"the broker does not start:\n{self._log.read_text()}")

    def is_started(self) -> bool:
        """Start it; false where it ends at once, because a port is taken meanwhile."""
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(
                self._command(), stdout=sink, stderr=subprocess.STDOUT, cwd=self._folder
            )
        ports = [self.port, self.websocket_port] if self.websocket_port else [self.port]
        give_up = time.monotonic() + WAIT_S
        while ports and time.monotonic() < give_up:
            with suppress(OSError), socket.create_connection((HOST, ports[0]), timeout=1):
                del ports[0]
                continue
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        return not ports

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _command(self) -> list[str]:
        if self.kind == "accord":
            command = [sys.executable, "-m", "accord", "up", "--no-demo", "--no-pipeline"]
            command += ["--mqtt", f"{HOST}:{self.port}", "--http", "", "--data", "data"]
            websocket = f"{HOST}:{self.websocket_port}" if self.websocket_port else ""
            return [*command, "--websocket", websocket]
        if MOSQUITTO is None:
            pytest.skip("mosquitto is not installed")
        path = self._folder / "mosquitto.conf"
        websocket = f"listener {self.websocket_port} {HOST}\nprotocol websockets\n"
        path.write_text(
            "allow_anonymous true\n"
            "user root\n"  # else one started by root would change to a user without rights here
            "persistence true\n"
            f"persistence_location {self._folder}/\n"
            f"listener {self.port} {HOST}\n" + (websocket if self.websocket_port else "")
        )
        return [MOSQUITTO, "-c", str(path)]


@contextmanager
def start(kind: str, folder: Path, *, has_websocket: bool = False) -> Iterator[TestBroker]:
    for _ in range(5):
        broker = TestBroker(kind, folder, has_websocket=has_websocket)
        try:
            if broker.is_started():
                yield broker
                return
        finally:
            broker.stop()
    broker.start()
