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

from tests.brokers import HOST, MOSQUITTO, free_port

KINDS: Final = ("mosquitto", "accord")
WAIT_S: Final = 30.0


class TestBroker:
    """What it acknowledged survives `stop`; of mosquitto, nothing survives `kill`."""

    __test__ = False

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.port, self.websocket_port = free_port(), free_port()
        self.url = f"mqtt://{HOST}:{self.port}"
        self.websocket_url = f"ws://{HOST}:{self.websocket_port}/mqtt"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = self._folder / "log.txt"
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                self._command(), stdout=sink, stderr=subprocess.STDOUT, cwd=self._folder
            )
        give_up = time.monotonic() + WAIT_S
        while time.monotonic() < give_up:
            assert self._process.poll() is None, log.read_text()
            with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
                return
            time.sleep(0.02)
        pytest.fail(f"the broker does not listen:\n{log.read_text()}")

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
            return [*command, "--websocket", f"{HOST}:{self.websocket_port}"]
        if MOSQUITTO is None:
            pytest.skip("mosquitto is not installed")
        path = self._folder / "mosquitto.conf"
        path.write_text(
            "allow_anonymous true\n"
            "user root\n"  # else one started by root would change to a user without rights here
            "persistence true\n"
            f"persistence_location {self._folder}/\n"
            f"listener {self.port} {HOST}\n"
            f"listener {self.websocket_port} {HOST}\n"
            "protocol websockets\n"
        )
        return [MOSQUITTO, "-c", str(path)]


@contextmanager
def start(kind: str, folder: Path) -> Iterator[TestBroker]:
    broker = TestBroker(kind, folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
