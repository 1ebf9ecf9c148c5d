"""The client of browsers and Node, unchanged: MQTT.js, over TCP and WebSocket."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.brokers import Broker, accord_only, start_with_http

MODULES: Final = Path(__file__).parents[2] / "build" / "node" / "node_modules"
SCRIPT: Final = Path(__file__).with_name("mqttjs.cjs")
READER: Final = Path(__file__).with_name("mqttjs_asyncapi.cjs")
NODE: Final = shutil.which("node")

IN_BOTH: Final = ("publishAndSubscribe", "wildcards", "retained", "will", "session", "large")
IN_5: Final = ("shared", "properties", "aliases", "requestAndResponse")
IN_ACCORD: Final = ("predicate", "badPredicate")

pytestmark = pytest.mark.skipif(
    NODE is None or not (MODULES / "mqtt").is_dir(),
    reason="needs Node and the npm package mqtt in build/node",
)


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
@pytest.mark.parametrize(
    ("scenario", "version"),
    [
        *((name, version) for name in IN_BOTH for version in (4, 5)),
        *((name, 5) for name in IN_5),
        *(pytest.param(name, 5, marks=accord_only) for name in IN_ACCORD),
    ],
)
def test_scenario(broker: Broker, topic: str, scenario: str, version: int, transport: str) -> None:
    is_websocket = transport == "websocket"
    url = broker.websocket_url if is_websocket else f"mqtt://{broker.host}:{broker.port}"
    run(SCRIPT, scenario, url, str(version), topic)


@accord_only
def test_operations_from_the_asyncapi_document_alone() -> None:
    with start_with_http() as (broker, url):
        run(READER, f"mqtt://{broker.host}:{broker.port}", f"{url}/asyncapi.json")


def run(script: Path, *arguments: str) -> None:
    assert NODE is not None
    done = subprocess.run(
        [NODE, str(script), *arguments],
        env={**os.environ, "NODE_PATH": str(MODULES)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
