"""The client of embedded systems, unchanged: Eclipse Paho C, which wants a packet per message."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.brokers import Broker

SOURCE: Final = Path(__file__).with_name("paho_c.c")
COMPILER: Final = shutil.which("cc")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("there is no C compiler")
    program = tmp_path_factory.mktemp("paho") / "paho_c"
    built = subprocess.run(
        [COMPILER, str(SOURCE), "-lpaho-mqtt3c", "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "MQTTClient.h" in built.stderr:
        pytest.skip("Paho C is not installed (Debian: libpaho-mqtt-dev)")
    assert built.returncode == 0, built.stderr
    return program


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_burst_arrives_over_websocket(
    broker: Broker, topic: str, program: Path, qos: int
) -> None:
    tcp_url = f"tcp://{broker.host}:{broker.port}"
    done = subprocess.run(
        [program, broker.websocket_url, tcp_url, topic, str(qos), "300"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
