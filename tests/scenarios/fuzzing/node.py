"""The node under attack, seen from outside: its process, its figures, what it prints."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import msgspec
from benchmarks.ports import free_port

from tests.brokers import HOST

START_S: Final = 60.0
STOP_S: Final = 30.0
# Limits that hostile clients reach soon, so that what they may hold is flat after one round.
CONFIG: Final = """\
[limits]
packet_bytes = 200000
connects_per_s = 1000000
connects_per_s_per_address = 1000000
connect_timeout_s = 2
session_expiry_s = 2
queue_messages = 500
queue_bytes = 1000000
outbox_bytes = 262144
retained_messages = 2000
retained_bytes = 1000000
subscriptions_per_client = 100

[[keep]]
channels = ["kept/#"]

[journal]
retain_bytes = 20000000
segment_bytes = 4000000
"""
_BAD_WORDS: Final = ("Traceback", " ERROR ", " CRITICAL ", "xception", "Fatal error")


class Usage(msgspec.Struct, frozen=True):
    """What the process holds and has used."""

    resident_bytes: int
    files: int
    cpu_s: float


class FuzzedNode:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.websocket_port = free_port()
        self._http_port = free_port()
        self._output = folder / "output.txt"
        self._read = 0  # how far the output was looked at
        (folder / "accord.toml").write_text(CONFIG)
        command = [sys.executable, "-m", "accord", "up", "--mqtt", f"{HOST}:{self.port}"]
        command += ["--websocket", f"{HOST}:{self.websocket_port}"]
        command += ["--http", f"{HOST}:{self._http_port}", "--data", str(folder / "data")]
        command += ["--config", str(folder / "accord.toml"), "--no-demo", "--no-pipeline"]
        with self._output.open("wb") as sink:
            self.process = subprocess.Popen(
                command, stdout=sink, stderr=subprocess.STDOUT, cwd=folder
            )

    def wait_until_ready(self) -> None:
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            assert self.process.poll() is None, self._output.read_text(errors="replace")
            with suppress(OSError, http.client.HTTPException):
                self.statistics()
                return
            time.sleep(0.05)
        raise AssertionError(f"not ready after {START_S} s")

    def statistics(self) -> dict[str, Any]:
        """What the node counts itself; OSError where it does not answer."""
        connection = http.client.HTTPConnection(HOST, self._http_port, timeout=20)
        try:
            connection.request("GET", "/api/v1/status")
            status: dict[str, Any] = msgspec.json.decode(connection.getresponse().read())
            found: dict[str, Any] = status["statistics"]
            return found
        finally:
            connection.close()

    def usage(self) -> Usage:
        folder = Path("/proc") / str(self.process.pid)
        resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        cpu_s = ticks / os.sysconf("SC_CLK_TCK")
        return Usage(resident, len(list((folder / "fd").iterdir())), cpu_s)

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def complaints(self) -> list[str]:
        """What it printed since this was last asked and no client should bring about."""
        with self._output.open("rb") as output:
            output.seek(self._read)
            data = output.read()
        self._read += len(data)
        found: dict[str, str] = {}  # each kind once: by its first line and its last
        lines = data.decode(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if any(word in line for word in _BAD_WORDS) and not _is_inner(line):
                rest = list(takewhile(_is_inner, lines[number + 1 :]))
                found[line[30:60] + (rest[-1] if rest else "")] = "\n".join([line, *rest])
        return list(found.values())

    def stop(self) -> int:
        """Its exit code."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def _is_inner(line: str) -> bool:
    """Whether `line` continues the one before, as those of a traceback do."""
    return line.startswith((" ", "Traceback", "AssertionError"))
