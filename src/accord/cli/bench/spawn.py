"""A temporary node for a measurement."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from accord.cli.bench.clients import BenchError

HOST: Final = "127.0.0.1"
START_S: Final = 30.0
STOP_S: Final = 10.0


class Spawned(NamedTuple):
    """A running node."""

    url: str
    pid: int

    def cpu_s(self) -> float | None:
        """CPU time used so far, if the system reports it."""
        with suppress(OSError, ValueError, IndexError):
            # After the name, which may contain anything, user and system time are 12th and 13th.
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return None


@contextmanager
def spawned_node() -> Iterator[Spawned]:
    """Start a node without persistence on a free port, and stop it afterwards."""
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="accord-bench-") as folder:
        # In a directory of its own, so that no accord.toml is found.
        output = Path(folder) / "output.txt"
        with output.open("wb") as sink:
            process = subprocess.Popen(  # noqa: S603 - this program itself
                _command(port),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                cwd=folder,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the tool, which then stops the node
            )
        try:
            _wait(process, port, output)
            yield Spawned(f"mqtt://{HOST}:{port}", process.pid)
        finally:
            _stop(process)


def _command(port: int) -> list[str]:
    options = ["--mqtt", f"{HOST}:{port}", "--websocket", "", "--http", "", "--data", ""]
    return [sys.executable, "-m", "accord", "up", *options, "--no-demo", "--no-pipeline"]


def _environment() -> dict[str, str]:
    """Uses the same package, although started in another directory."""
    environment = dict(os.environ)
    if paths := environment.get("PYTHONPATH"):
        absolute = [os.path.abspath(path) for path in paths.split(os.pathsep) if path]
        environment["PYTHONPATH"] = os.pathsep.join(absolute)
    return environment


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up and process.poll() is None:
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        time.sleep(0.02)
    lines = output.read_text(errors="replace").strip().splitlines()
    raise BenchError(f"the node did not start: {lines[-1] if lines else 'no output'}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
