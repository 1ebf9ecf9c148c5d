"""The brokers to compare, each on a loopback port of its own, in a temporary folder.

Nothing is kept, nothing is dropped by a limit, no log is written: what remains is moving messages.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.options import Options, progress
from benchmarks.ports import free_ports
from benchmarks.processes import cpu_s, memory_bytes, started, with_children

ACCORD: Final = str(Path(sys.executable).with_name("accord"))
# Another build of Accord, to race beside this one: the path of its `accord`.
ACCORD_OLD: Final = os.environ.get("ACCORD_OLD", "")
_SWITCH: Final = Path(__file__).with_name("ledger_switch.py")
_START_S: Final = 60
_PATIENCE_S: Final = 30

_MOSQUITTO: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
sys_interval 0
log_dest none
"""
_FORGETFUL: Final = "persistence false\n"
_NATS: Final = """\
host: 127.0.0.1
port: {port}
ping_interval: "1h"
max_connections: 100000
"""


@dataclass(frozen=True)
class Setup:
    """What is configured besides where to listen."""

    name: str = "plain"
    accord: str = ""
    policies: str = ""
    mosquitto: str = _FORGETFUL
    has_ledger_switch: bool = False


PLAIN: Final = Setup()


@dataclass(frozen=True)
class Contender:
    """How to start a broker, and what it can do."""

    name: str
    missing: Callable[[], str | None]
    command: Callable[[Path, int, Setup], list[str]]
    is_mqtt: bool = True
    has_predicates: bool = False


class Broker:
    """A contender that runs."""

    def __init__(self, contender: Contender, process_id: int, port: int) -> None:
        self.contender = contender
        self.name = contender.name
        self.process_id = process_id
        self._process_ids = with_children(process_id)
        self._address = ("127.0.0.1", port)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """From an address of our choice: one has no more than about 28,000 ports."""
        connection = socket.create_connection(self._address, _PATIENCE_S, (source, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def cpu_s(self) -> float:
        """CPU time used so far, with child processes."""
        return cpu_s(self._process_ids)

    def memory_bytes(self) -> int:
        return memory_bytes(self._process_ids)


@dataclass
class Field:
    """The brokers that run, and why others don't."""

    brokers: list[Broker]
    absent: list[str]


@contextmanager
def running(
    options: Options, *, suits: Callable[[Contender], bool], setup: Setup = PLAIN
) -> Iterator[Field]:
    """All contenders that were asked for and that suit the benchmark."""
    with ExitStack() as stack:
        brokers, absent = [], []
        for contender in CONTENDERS:
            if not options.has_contender(contender.name) or not suits(contender):
                continue
            reason = contender.missing()
            try:
                if reason is None:
                    brokers.append(stack.enter_context(_running(contender, setup)))
            except StartError as error:
                reason = str(error)
            if reason is not None:
                progress(f"no {contender.name}: {reason}")
                absent.append(f"Left out: {contender.name}, {reason}.")
        yield Field(brokers, absent)


class StartError(Exception):
    """A contender is there but does not start."""


@contextmanager
def _running(contender: Contender, setup: Setup) -> Iterator[Broker]:
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, (port,) = Path(name), free_ports(1)
        environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
        log = folder / "output"
        with started(contender.command(folder, port, setup), environment, log) as process:
            wait_for(process, port, log)
            yield Broker(contender, process.pid, port)


def wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until it listens; StartError where it does not."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise StartError(f"it ended at once with code {process.returncode}: {' '.join(last)}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise StartError(f"it did not listen within {_START_S} s")


def _installed(program: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        if _program(program) is None:
            return f"{program} is not installed (scripts/peers installs it)"
        return None

    return missing


def _program(name: str) -> str | None:
    # Debian puts servers where an ordinary user's path does not look.
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _mosquitto(folder: Path, port: int, setup: Setup) -> list[str]:
    text = _MOSQUITTO.format(port=port) + setup.mosquitto.format(folder=folder)
    return _configured("mosquitto", folder, text)


def _nats(folder: Path, port: int, setup: Setup) -> list[str]:
    del setup  # there is nothing else to configure
    return _configured("nats-server", folder, _NATS.format(port=port))


def _configured(program: str, folder: Path, text: str) -> list[str]:
    settings = folder / "settings"
    settings.write_text(text)
    # Who starts as root is another user afterwards, and writes here.
    folder.chmod(0o777)
    return [_program(program) or program, "-c", str(settings)]


def _accord(program: str) -> Callable[[Path, int, Setup], list[str]]:
    def command(folder: Path, port: int, setup: Setup) -> list[str]:
        book, settings = folder / "policies.toml", folder / "accord.toml"
        book.write_text(setup.policies)
        policies = f'[policies]\nfile = "{book}"\n' if setup.policies else ""
        settings.write_text(f"{setup.accord}\n{policies}")
        python = str(Path(program).with_name("python"))
        start = [python, "-P", str(_SWITCH)] if setup.has_ledger_switch else [program]
        listen = ["--mqtt", f"127.0.0.1:{port}", "--websocket", "", "--http", ""]
        where = ["--config", str(settings), "--data", str(folder / "data")]
        return [*start, "up", *listen, *where, "--no-demo", "--no-pipeline"]

    return command


def _accord_missing(program: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        try:
            subprocess.run([program, "up", "--help"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return f"there is no `{program} up`"
        return None

    return missing


def _accords() -> Iterator[Contender]:
    yield Contender("accord", _accord_missing(ACCORD), _accord(ACCORD), has_predicates=True)
    if ACCORD_OLD:
        missing, command = _accord_missing(ACCORD_OLD), _accord(ACCORD_OLD)
        yield Contender("accord-before", missing, command, has_predicates=True)


CONTENDERS: Final[Sequence[Contender]] = (
    Contender("mosquitto", _installed("mosquitto"), _mosquitto),
    Contender("nats", _installed("nats-server"), _nats, is_mqtt=False),
    *_accords(),
)
