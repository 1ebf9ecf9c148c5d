"""The contenders of Table 2: a node under each strategy, and mosquitto as the broker without any.

All have the same limits on what waits for a subscriber. A node gets its policies over HTTP, as an
administrator would give them; `fifo` is one queue for everything, without policies.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.contenders import ACCORD, CONTENDERS, StartError
from benchmarks.ports import free_ports
from benchmarks.processes import cpu_s, started, with_children
from benchmarks.table2.wires import NODE_HOST

IMPORTANT: Final = "table2/important"
NORMAL: Final = "table2/normal"
ALL: Final = "table2/+"
QUEUE_BYTES: Final = 20_000_000
IMPORTANCES: Final = {IMPORTANT: 5, NORMAL: 3}
WEIGHTS: Final = tuple(2**importance for importance in range(8))

_LOOPBACK: Final = "127.0.0.1"
_START_S: Final = 60.0
_CONFIG: Final = """\
[node]
data = ""
statistics_s = 0
[listen]
mqtt = [{mqtt}]
websocket = ""
http = "127.0.0.1:{http}"
[limits]
queue_bytes = {queue}
outbox_bytes = {queue}
[anonymous]
allowed = true
may = {{publish = ["#"], subscribe = ["#"], policies = true}}
"""
_MOSQUITTO: Final = """\
{listeners}
allow_anonymous true
persistence false
max_queued_messages 0
max_queued_bytes {queue}
set_tcp_nodelay true
log_dest none
"""


class NoPoliciesError(Exception):
    """A node that knows no policies yet."""


@dataclass(frozen=True)
class Contender:
    """`strategy` is a node's; a broker that is none has no strategy."""

    name: str
    strategy: str = ""

    @property
    def is_node(self) -> bool:
        return bool(self.strategy)

    def missing(self) -> str | None:
        return _missing("accord" if self.is_node else self.name)


@cache
def _missing(peer: str) -> str | None:
    return next(each for each in CONTENDERS if each.name == peer).missing()


FIFO: Final = Contender("fifo", "fifo")
WEIGHTED: Final = Contender("weighted fair", "weighted fair")
STRICT: Final = Contender("strict", "strict")
MOSQUITTO: Final = Contender("mosquitto")


class Node:
    """A contender that runs; `inside` begins commands that reach it on its loopback address."""

    def __init__(self, process_id: int, mqtt: int, http: int, inside: Sequence[str]) -> None:
        self.port = mqtt
        self._http = http
        self._inside = inside
        self._process_id = process_id

    def cpu_s(self) -> float:
        return cpu_s(with_children(self._process_id))

    def manage(self, contender: Contender) -> None:
        """Give it the strategy, and the policies that belong to it."""
        book: dict[str, object] = {"strategy": contender.strategy}
        if contender != FIFO:
            book["weights"] = WEIGHTS
            book["policies"] = [
                {"name": channel.rpartition("/")[2], "channel": channel, "importance": importance}
                for channel, importance in IMPORTANCES.items()
            ]
        code, text = self.ask("PUT", "/api/v1/policies", json.dumps(book))
        if code in {404, 405}:
            if contender != FIFO:
                raise NoPoliciesError("this node takes no policies")
        elif code >= 300:
            raise StartError(f"the node refused its policies: {code} {text.strip()[:200]}")

    def ask(self, method: str, path: str, body: str = "") -> tuple[int, str]:
        url = f"http://{_LOOPBACK}:{self._http}{path}"
        command = [*self._inside, sys.executable, "-m", "benchmarks.table2.ask", method, url]
        done = subprocess.run(command, input=body, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:]
            raise StartError(f"the node does not answer over HTTP: {' '.join(said)}")
        code, _, text = done.stdout.partition("\n")
        return int(code), text


@contextmanager
def running(contender: Contender, *, inside: Sequence[str] = ()) -> Iterator[Node]:
    """On the loopback address, or inside a namespace also on the one that others reach."""
    mqtt, http = free_ports(2)
    hosts = [_LOOPBACK, *([NODE_HOST] if inside else [])]
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        command = _command(contender, folder, hosts, mqtt, http)
        environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
        log = folder / "output"
        with started([*inside, *command], environment, log) as process:
            ports = [mqtt, http] if contender.is_node else [mqtt]
            _wait(process, ports, log, inside)
            yield Node(process.pid, mqtt, http, inside)


def _command(
    contender: Contender, folder: Path, hosts: Sequence[str], mqtt: int, http: int
) -> list[str]:
    settings = folder / "settings.toml"
    if contender.is_node:
        places = ", ".join(f'"{host}:{mqtt}"' for host in hosts)
        settings.write_text(_CONFIG.format(mqtt=places, http=http, queue=QUEUE_BYTES))
        return [ACCORD, "up", "--config", str(settings), "--no-demo", "--no-pipeline"]
    listeners = "\n".join(f"listener {mqtt} {host}" for host in hosts)
    settings.write_text(_MOSQUITTO.format(listeners=listeners, queue=QUEUE_BYTES))
    # Debian puts servers where an ordinary user's path does not look.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    return [shutil.which("mosquitto", path=path) or "mosquitto", "-c", str(settings)]


def _wait(
    process: subprocess.Popen[bytes], ports: Sequence[int], log: Path, inside: Sequence[str]
) -> None:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise StartError(f"it ended at once with code {process.returncode}: {' '.join(last)}")
        if all(_listens(port, inside) for port in ports):
            return
        time.sleep(0.1)
    raise StartError(f"it did not listen within {_START_S:.0f} s")


def _listens(port: int, inside: Sequence[str]) -> bool:
    if not inside:
        try:
            socket.create_connection((_LOOPBACK, port), 1).close()
        except OSError:
            return False
        return True
    # Another namespace's sockets can't be reached from here, but its table of them can be read.
    table = subprocess.run(
        [*inside, "cat", "/proc/net/tcp"], capture_output=True, text=True, check=False
    )
    return any(f":{port:04X} 00000000:0000 0A" in line for line in table.stdout.splitlines())
