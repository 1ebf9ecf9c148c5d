"""Spark's own servers from the pip package: a master, a worker, a Spark Connect server.

Each runs in the foreground in a process group of its own. On SIGTERM, SIGINT and SIGHUP Java ends
cleanly; what is then left of its group is killed, such as an executor that a master has asked a
worker to start while the worker was ending.

Spark's scripts would listen on all addresses, take programs from anybody over REST, write below
the installed package, and run whatever `python3` is on the PATH. Here all of it is given.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from msgspec import Struct

from accord.core.model.errors import AccordError
from accord.pipeline.java import find_java

INSTALL: Final = "pip install 'accord[pipeline]'"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_DAEMON_JAVA: Final = "-Dspark.master.rest.enabled=false -Dspark.worker.cleanup.enabled=true"
_DAEMON_MEMORY: Final = "512m"
_STOP_S: Final = 15


class Listening(Struct, frozen=True, kw_only=True):
    """Where a server listens: at `host`; the system chooses ports that are 0."""

    host: str
    port: int
    ui_port: int = 0


def master_arguments(at: Listening, properties: Path | None) -> tuple[str, ...]:
    return _MASTER, *_addresses(at), *_settings(properties)


def worker_arguments(  # noqa: PLR0913 (by keyword)
    at: Listening,
    properties: Path | None,
    *,
    url: str,
    folder: Path,
    cores: int | None,
    memory_mb: int | None,
) -> tuple[str, ...]:
    """Of the master at `url`; by default with all cores, and all memory but a gigabyte."""
    sizes: tuple[str, ...] = ("--work-dir", str(folder.absolute()))
    sizes += () if cores is None else ("--cores", str(cores))
    sizes += () if memory_mb is None else ("--memory", f"{memory_mb}m")
    return _WORKER, *_addresses(at), *sizes, *_settings(properties), url


def connect_arguments(
    at: Listening, properties: Path | None, *, url: str, folder: Path, memory_mb: int
) -> tuple[str, ...]:
    """A Spark Connect server whose driver uses the master at `url`; without `ui_port` no page."""
    settings = {
        "spark.connect.grpc.binding.address": at.host,
        "spark.connect.grpc.binding.port": str(at.port),
        "spark.driver.host": at.host,
        "spark.local.dir": str(folder.absolute()),
        "spark.ui.enabled": "true" if at.ui_port else "false",
        "spark.ui.port": str(at.ui_port),
    }
    given = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
    start = ("--master", url, "--driver-memory", f"{memory_mb}m", "--class", _CONNECT)
    return _SUBMIT, *start, *given, *_settings(properties), "spark-internal"


def run(arguments: tuple[str, ...], *, host: str, folder: Path) -> int:
    """Run a server to its end; its exit code, 0 if it was stopped by a signal to us."""
    home = _spark_home()
    folder.mkdir(parents=True, exist_ok=True)
    stopping = Stopping()
    server = subprocess.Popen(  # noqa: S603
        [str(home / "bin" / "spark-class"), *arguments],
        cwd=folder,
        env=_environment(arguments, home, host, folder),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        stopping.watch(server)
        code = server.wait()
    finally:
        _kill(server)
    if stopping.is_asked:
        return 0
    return code if code >= 0 else 128 - code  # a shell's exit code for a signal


class Stopping:
    """Ends a server on a signal, also one that comes before the server is there."""

    def __init__(self) -> None:
        self.is_asked = False
        self._server: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGALRM, self._kill)

    def watch(self, server: subprocess.Popen[bytes]) -> None:
        self._server = server
        if self.is_asked:
            self._ask()

    def _ask(self, *_: object) -> None:
        self.is_asked = True
        if self._server is not None:
            self._server.terminate()
            signal.alarm(_STOP_S)

    def _kill(self, *_: object) -> None:
        assert self._server is not None
        _kill(self._server)


def _kill(server: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)


def _environment(arguments: tuple[str, ...], home: Path, host: str, folder: Path) -> dict[str, str]:
    environment = os.environ | {
        "JAVA_HOME": find_java(work=folder.absolute()).home,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_JAVA_OPTS": f"{_DAEMON_JAVA} {os.environ.get('SPARK_DAEMON_JAVA_OPTS', '')}",
        # Executors run the `python3` that has this package, if the driver names no other.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("SPARK_DAEMON_MEMORY", _DAEMON_MEMORY)
    if _CONNECT in arguments:
        del environment["SPARK_DAEMON_MEMORY"]  # it would count instead of --driver-memory
    return environment


def _addresses(at: Listening) -> tuple[str, ...]:
    return "--host", at.host, "--port", str(at.port), "--webui-port", str(at.ui_port)


def _settings(properties: Path | None) -> tuple[str, ...]:
    return () if properties is None else ("--properties-file", str(properties.absolute()))


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    for place in (spec and spec.submodule_search_locations) or ():
        return Path(place)
    raise AccordError(f"Spark is not installed: {INSTALL}")
