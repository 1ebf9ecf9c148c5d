"""A real standalone Spark cluster on this machine's loopback, from the pip package.

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
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import pyspark
from benchmarks.ports import free_port

from accord.pipeline.java import find_java
from tests.java_options import java_options

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_LOOPBACK: Final = "127.0.0.1"
_MASTER_READY: Final = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_WORKER_READY: Final = re.compile(r"(Successfully registered with master)")
JAVA_OPTIONS: Final = f"-XX:+UseSerialGC -XX:-UsePerfData {java_options(sys.prefix)}"


class SparkCluster:
    """`url` is the master's; executors get `memory_mb` and a core each."""

    def __init__(
        self, folder: Path, *, workers: int = 2, memory_mb: int = 512, patience_s: float = 120
    ) -> None:
        self.url = ""
        self._folder = folder
        self._workers = workers
        self._memory_mb = memory_mb
        self._daemon_mb = 160
        self._patience_s = patience_s
        self._processes: list[subprocess.Popen[bytes]] = []

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
        ports = ("--host", _LOOPBACK, "--port", "0", "--webui-port", "0")
        log = self._launch("master", _MASTER, *ports)
        self.url = self._await(log, _MASTER_READY)
        logs = []
        for number in range(self._workers):
            work = str(self._folder / f"work-{number}")
            sizes = ("--cores", "1", "--memory", f"{self._memory_mb}m", "--work-dir", work)
            logs.append(self._launch(f"worker-{number}", _WORKER, *ports, *sizes, self.url))
        for log in logs:
            self._await(log, _WORKER_READY)

    def _launch(self, name: str, kind: str, *arguments: str) -> Path:
        home = Path(pyspark.__file__).parent
        log = self._folder / f"{name}.log"
        environment = os.environ | {
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_DAEMON_MEMORY": f"{self._daemon_mb}m",
            "JAVA_HOME": find_java(work=self._folder).home,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": _LOOPBACK,
            "PYSPARK_PYTHON": sys.executable,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), kind, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=environment,
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def _await(self, log: Path, ready: re.Pattern[str]) -> str:
        """What the process says when it is ready."""
        until_s = time.monotonic() + self._patience_s
        while time.monotonic() < until_s:
            text = log.read_text(errors="replace")
            if found := ready.search(text):
                return found[1]
            if any(process.poll() is not None for process in self._processes):
                break
            time.sleep(0.05)
        raise RuntimeError(f"{log.name}: not ready\n{log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """Workers first: they end their executors, which a dead master's would outlive."""
        for process in reversed(self._processes):
            _signal(process, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            _signal(process, signal.SIGKILL)
            process.wait()
        self._processes = []


class SparkConnect(SparkCluster):
    """`url` begins with sc://."""

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._daemon_mb = self._memory_mb
        port = free_port()
        settings = {
            "spark.connect.grpc.binding.address": _LOOPBACK,
            "spark.connect.grpc.binding.port": str(port),
            "spark.ui.enabled": "false",
        }
        options = ["--master", f"local[{self._workers}]", "--class", _CONNECT]
        for name, value in settings.items():
            options += ["--conf", f"{name}={value}"]
        log = self._launch("connect", _SUBMIT, *options, "spark-internal")
        self._await(log, re.compile(f"(Spark Connect server started at: .*:{port})"))
        self.url = f"sc://{_LOOPBACK}:{port}"


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """To the process and all it has started; the group may be there without its leader."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
