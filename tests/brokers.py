"""Brokers as separate processes, for tests that speak to a node over its sockets.

The same tests run against mosquitto (`ACCORD_TEST_BROKER=mosquitto`): what it does too was read
from the standard correctly. Where it does other than the standard says, `deviates` names why.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from benchmarks.ports import free_port

HOST: Final = "127.0.0.1"
BROKER: Final = os.environ.get("ACCORD_TEST_BROKER", "accord")
IS_ACCORD: Final = BROKER == "accord"
MOSQUITTO: Final = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
START_S: Final = 30.0
STOP_S: Final = 20.0


class Broker(NamedTuple):
    """Where a running broker listens; `websocket_url` is empty without such a listener."""

    host: str
    port: int
    websocket_url: str
    process: subprocess.Popen[bytes]


def deviates(reason: str) -> pytest.MarkDecorator:
    """Mark a test that mosquitto fails although the standard asks for it."""
    return pytest.mark.xfail(BROKER == "mosquitto", reason=f"mosquitto: {reason}", strict=True)


accord_only: Final = pytest.mark.skipif(not IS_ACCORD, reason="goes beyond MQTT")


@contextmanager
def start_mosquitto(config: str = "", *, has_websocket: bool = False) -> Iterator[Broker]:
    """A mosquitto without persistence; `config` is added to its configuration file."""
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    port, websocket_port = free_port(), free_port()
    lines = ["allow_anonymous true", "persistence false", "max_packet_size 4000000", config]
    lines.append(f"listener {port} {HOST}")
    if has_websocket:
        lines += [f"listener {websocket_port} {HOST}", "protocol websockets"]
    with tempfile.TemporaryDirectory(prefix="mosquitto-") as folder:
        path = Path(folder) / "mosquitto.conf"
        path.write_text("\n".join(lines) + "\n")
        url = f"ws://{HOST}:{websocket_port}/mqtt" if has_websocket else ""
        with _running([MOSQUITTO, "-c", str(path)], port, url, Path(folder)) as broker:
            yield broker


@contextmanager
def start_accord(
    data: Path | None = None,
    config: str | None = None,
    extra: Sequence[str] = (),
    *,
    has_websocket: bool = False,
    is_killed: bool = False,
    port: int | None = None,
) -> Iterator[Broker]:
    """An Accord node; `config` is the text of its accord.toml, `port` where it was before.

    Checks that it stops cleanly, unless it is to be killed without a chance to.
    """
    port, websocket_port = port or free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="accord-") as folder:
        command = [sys.executable, "-m", "accord", "up", "--mqtt", f"{HOST}:{port}", "--http", ""]
        command += ["--data", str(data or Path(folder) / "data"), "--no-demo", "--no-pipeline"]
        if config is not None:
            path = Path(folder) / "accord.toml"
            path.write_text(config)
            command += ["--config", str(path)]
        command += ["--websocket", f"{HOST}:{websocket_port}" if has_websocket else ""]
        url = f"ws://{HOST}:{websocket_port}/mqtt" if has_websocket else ""
        with _running([*command, *extra], port, url, Path(folder), is_killed) as broker:
            yield broker


@contextmanager
def start_with_http(
    config: str | None = None, extra: Sequence[str] = ()
) -> Iterator[tuple[Broker, str]]:
    """An Accord node, and the address of its HTTP interface."""
    port = free_port()
    with start_accord(config=config, extra=["--http", f"{HOST}:{port}", *extra]) as broker:
        for _ in range(round(START_S * 10)):
            with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
                break
            time.sleep(0.1)
        yield broker, f"http://{HOST}:{port}"


@contextmanager
def start_broker(*, has_websocket: bool = False) -> Iterator[Broker]:
    """The broker that this run of the tests is about."""
    if BROKER == "mosquitto":
        with start_mosquitto(has_websocket=has_websocket) as broker:
            yield broker
    elif BROKER == "accord":
        with start_accord(has_websocket=has_websocket) as broker:
            yield broker
    else:
        pytest.fail(f"ACCORD_TEST_BROKER: expected accord or mosquitto, got {BROKER!r}")


@contextmanager
def _running(
    command: list[str], port: int, url: str, folder: Path, is_killed: bool = False
) -> Iterator[Broker]:
    output = folder / "output.txt"
    with output.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, cwd=folder)
    try:
        _wait_until_open(port, process, output)
        yield Broker(HOST, port, url, process)
        assert is_killed or process.poll() is None, f"the broker ended by itself:\n{_text(output)}"
    except BaseException:
        print(f"{' '.join(command)}\n{_text(output)}")  # shown where a test fails
        raise
    finally:
        if is_killed:
            process.kill()
            process.wait()
        else:
            _stop(process)
    text = _text(output)
    assert is_killed or process.returncode == 0, f"exit code {process.returncode}:\n{text}"
    assert "Traceback" not in text, text


def _stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until_open(port: int, process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the broker did not start:\n{_text(output)}"
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        time.sleep(0.02)
    pytest.fail(f"nothing accepts connections on port {port}:\n{_text(output)}")


def _text(output: Path) -> str:
    return output.read_text(errors="replace")
