"""A real standalone Spark cluster on this machine's loopback, by `accord spark`.

    with SparkCluster(folder) as cluster:
        SparkSession.builder.master(cluster.url)

One master and two workers, each a process with ports of its own that the system chose. Whatever
happens, all of them, and the executors they started, have ended when the block is left.
`SparkConnect` is the same for a server of Spark Connect, which has Spark within itself.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from benchmarks.ports import free_port

from tests.java_options import java_options

_LOOPBACK: Final = "127.0.0.1"
_MASTER_READY: Final = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_WORKER_READY: Final = re.compile(r"(Successfully registered with master)")
_DAEMON_MB: Final = 160
_STOP_S: Final = 60
JAVA_OPTIONS: Final = f"-XX:+UseSerialGC -XX:-UsePerfData {java_options(sys.prefix)}"


class SparkCluster:
    """`url` is the master's, the first of `processes`; workers have `memory_mb` and a core each."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        memory_mb: int = 512,
        port: int = 0,
        patience_s: float = 120,
    ) -> None:
        self.url = ""
        self._folder = folder
        self._workers = workers
        self._memory_mb = memory_mb
        self._port = port
        self._patience_s = patience_s
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._launch("master", "--port", str(self._port))
        self.url = self._await(log, _MASTER_READY)
        logs = []
        for number in range(self._workers):
            sizes = ("--cores", "1", "--memory-mb", str(self._memory_mb))
            logs.append(self._launch("worker", self.url, *sizes, name=f"worker-{number}"))
        for log in logs:
            self._await(log, _WORKER_READY)

    def _launch(self, kind: str, *arguments: str, name: str = "") -> Path:
        """Starts `accord spark KIND` with a folder of its own; returns its log."""
        folder = self._folder / (name or kind)
        log = folder.with_suffix(".log")
        environment = os.environ | {
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_DAEMON_MEMORY": f"{_DAEMON_MB}m",
            "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
        }
        command = [sys.executable, "-m", "accord", "spark", kind, "--work", str(folder)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        self.processes.append(process)
        return log

    def _await(self, log: Path, ready: re.Pattern[str]) -> str:
        """What the process says when it is ready."""
        until_s = time.monotonic() + self._patience_s
        while time.monotonic() < until_s:
            text = log.read_text(errors="replace")
            if found := ready.search(text):
                return found[1]
            if any(process.poll() is not None for process in self.processes):
                break
            time.sleep(0.05)
        raise RuntimeError(f"{log.name}: not ready\n{log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """Workers first: they end their executors, which a dead master's would outlive."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait(_STOP_S)
        self.processes = []


class SparkConnect(SparkCluster):
    """`url` begins with sc://."""

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        port = self._port or free_port()
        options = ["--spark", f"local[{self._workers}]", "--memory-mb", str(self._memory_mb)]
        log = self._launch("connect", *options, "--port", str(port))
        self._await(log, re.compile(f"(Spark Connect server started at: .*:{port})"))
        self.url = f"sc://{_LOOPBACK}:{port}"


def kill_servers(cluster: SparkCluster) -> None:
    """End the cluster's servers without a warning, as a machine that fails does."""
    ours = {process.pid for process in cluster.processes}
    for process in processes():
        if process.parent in ours:
            os.kill(process.number, signal.SIGKILL)


class RunningProcess(NamedTuple):
    number: int
    parent: int
    session: int


def processes() -> Iterator[RunningProcess]:
    """All processes of this machine that have not ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = path.read_text().partition(" ")
            state, parent, _, session = rest.rpartition(")")[2].split()[:4]
            if state != "Z":
                yield RunningProcess(int(number), int(parent), int(session))
