"""A node that is killed and started again, on the same port and folder."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.ports import free_port

from tests.brokers import HOST

START_S: Final = 60.0
STOP_S: Final = 20.0
_CONFIG: Final = """\
[[keep]]
channels = ["kept/#"]

[node]
name = "mortal"
statistics_s = 1
"""
NAME: Final = "mortal"


class MortalNode:
    def __init__(self, folder: Path, *, has_pipeline: bool = False) -> None:
        self.data = folder / "data"
        self.port = free_port()
        self.starts = 0
        self.start_s: list[float] = []  # until clients were served
        self._folder = folder
        self._pipeline = "--pipeline" if has_pipeline else "--no-pipeline"
        self._output = folder / "output.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._has_been_ready = False  # since its last start
        (folder / "accord.toml").write_text(_CONFIG)

    def start(self) -> None:
        command = [sys.executable, "-m", "accord", "up", "--mqtt", f"{HOST}:{self.port}"]
        command += ["--websocket", "", "--http", "", "--data", str(self.data)]
        command += ["--config", str(self._folder / "accord.toml"), "--no-demo", self._pipeline]
        with self._output.open("ab") as sink:
            self._process = subprocess.Popen(
                command, stdout=sink, stderr=subprocess.STDOUT, cwd=self._folder
            )
        self._started_s = time.monotonic()
        self._has_been_ready = False
        self.starts += 1

    async def wait_until_ready(self) -> None:
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            assert self._process is not None
            assert self._process.poll() is None, f"did not start:\n{self.output()[-4000:]}"
            with suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, self.port)
                writer.close()
                if not self._has_been_ready:
                    self.start_s.append(time.monotonic() - self._started_s)
                self._has_been_ready = True
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"not ready after {START_S} s:\n{self.output()[-4000:]}")

    def kill(self) -> None:
        process = self._process
        assert process is not None
        assert process.poll() is None, f"ended by itself:\n{self.output()[-4000:]}"
        process.kill()
        process.wait()
        self._process = None

    def stop(self) -> int:
        """Exit code of a node that was asked to stop; of one that did not, that of its end."""
        process = self._process
        if process is None:
            return 0
        self._process = None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def output(self) -> str:
        return self._output.read_text(errors="replace") if self._output.exists() else ""
