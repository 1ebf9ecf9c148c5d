"""A node in a process of its own, on free ports, with temporary data.

Demonstrations, `accord bench --spawn` and benchmarks start it, and talk to it as any client does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from accord.core.model.errors import AccordError
from accord.operations.operation import Request

START_S: Final = 60.0
STOP_S: Final = 15.0
# A node for MQTT and HTTP, without a pipeline.
PLAIN: Final = """\
[listen]
mqtt = "127.0.0.1:0"
websocket = ""
http = "127.0.0.1:0"
[pipeline]
enabled = false
"""

_POLL_S: Final = 0.02
_ADDRESS: Final = re.compile(
    r"\s+(?:(?:links|console) at )?((?:(?:mqtt|http)://)?[\d.]+:\d+)$", re.MULTILINE
)
_LAST: Final = "  pipeline:"  # printed below all addresses

T = TypeVar("T")


class NodeCaller(Protocol):
    """Performs operations on a node; blocks until there is an answer."""

    def call(self, request: Request[T], timeout_s: float | None = None) -> T: ...


class NodeProcessError(AccordError):
    """A node did not start."""


class NodeProcess:
    """`accord up` with a configuration, from the constructor to `stop` or the end of `with`."""

    def __init__(self, config: str = PLAIN, *, has_data: bool = False) -> None:
        self.mqtt_url = ""
        self.http_url = ""
        self.links_port = 0  # port for links from other nodes, if enabled
        self._directory = TemporaryDirectory(prefix="accord-node-", ignore_cleanup_errors=True)
        folder = Path(self._directory.name)
        file, self._output = folder / "accord.toml", folder / "output.txt"
        file.write_text(config, "utf-8")
        data = str(folder / "data") if has_data else ""
        with self._output.open("wb") as sink:
            self._process = subprocess.Popen(  # noqa: S603 - this program itself
                [
                    *(sys.executable, "-m", "accord", "up", "--no-demo"),
                    *("--config", str(file), "--data", data),
                ],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,  # Ctrl-C is for the command, which then stops it
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until it has printed its addresses; NodeProcessError if it does not."""
        end_s = time.monotonic() + START_S
        while _LAST not in (output := self._output.read_text(errors="replace")):
            if not self.is_running:
                raise NodeProcessError(f"a node did not start: {' '.join(output.split())[-300:]}")
            if time.monotonic() >= end_s:
                raise NodeProcessError(f"a node did not start within {START_S:.0f} s")
            time.sleep(_POLL_S)
        for address in _ADDRESS.findall(output):
            if address.startswith("mqtt:"):
                self.mqtt_url = address
            elif address.startswith("http:"):
                self.http_url = address
            else:
                self.links_port = int(address.rpartition(":")[2])

    def cpu_s(self) -> float | None:
        """CPU time used so far, if the system reports it."""
        with suppress(OSError, ValueError, IndexError):
            # After the name, which may contain anything, user and system time are 12th and 13th.
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
            fields = stat.rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return None

    def kill(self) -> None:
        """Kill it without notice."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._directory.cleanup()
