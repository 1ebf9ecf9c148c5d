"""A demonstration's node in a process of its own, on free ports, with temporary data."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self
from urllib.parse import urlencode

import msgspec

from accord.apps.demonstrations.meters import LOSSES, OutcomeCount
from accord.apps.demonstrations.scenario import PolicyChange
from accord.cli.http_client import NodeHttpClient
from accord.core.model.errors import AccordError
from accord.http.ledger_schemas import LEDGER, DeliveryOutcome, DeliveryOutcomes
from accord.http.schemas import JSON, POLICIES, TOML

START_S: Final = 60.0
STOP_S: Final = 15.0
_LINES: Final = 100
_ADDRESS: Final = re.compile(r"\s+(?:links at )?((?:(?:mqtt|http)://)?[\d.]+:\d+)\s*$")


class DemoError(AccordError):
    """A node of a demonstration does not work as it should."""


class NodeProcess:
    """`accord up` with a configuration; `output` are its last lines of output."""

    def __init__(
        self, process: asyncio.subprocess.Process, folder: TemporaryDirectory[str]
    ) -> None:
        self.mqtt_url = ""
        self.http_url = ""
        self.links_port = 0  # port for links from other nodes, if enabled
        self.output: deque[str] = deque(maxlen=_LINES)
        self._process = process
        self._directory = folder
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, config: str) -> Self:
        """Start it; DemoError if that fails. `config` is the text of its accord.toml."""
        folder = TemporaryDirectory(prefix="accord-demo-", ignore_cleanup_errors=True)
        file = Path(folder.name) / "accord.toml"
        file.write_text(config, "utf-8")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "accord", "up", "--no-demo", "--config", str(file)),
            cwd=folder.name,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the demonstration, which then stops it
        )
        node = cls(process, folder)
        try:
            async with asyncio.timeout(START_S):
                await node._wait_ready()
        except BaseException as error:
            await node.stop()
            if isinstance(error, TimeoutError):
                raise DemoError(f"a node did not start within {START_S:.0f} s") from None
            raise
        return node

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def kill(self) -> None:
        """Kill it without notice."""
        if self.is_running:
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        if self.is_running:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_S)
            except TimeoutError:
                await self.kill()
        if self._reading is not None:
            await self._reading
        self._directory.cleanup()

    async def _wait_ready(self) -> None:
        """Wait until it has printed its addresses."""
        while True:
            line = await self._read()
            if not line:
                raise DemoError(f"a node did not start: {' '.join(self.output)[-300:]}")
            if found := _ADDRESS.match(line):
                self._set_address(found[1])
            elif self.mqtt_url and self.http_url:  # all addresses are printed together
                break
        # Later output is not shown, but a full pipe would block the node.
        self._reading = asyncio.create_task(self._drain())

    def _set_address(self, place: str) -> None:
        if place.startswith("mqtt:"):
            self.mqtt_url = place
        elif place.startswith("http:"):
            self.http_url = place
        else:
            self.links_port = int(place.rpartition(":")[2])

    async def _read(self) -> str:
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode(errors="replace")
        if line:
            self.output.append(line.strip())
        return line

    async def _drain(self) -> None:
        while await self._read():
            pass


_MOST: Final = 1_000
_CONFIG: Final = """
[node]
data = "data"
[listen]
mqtt = "127.0.0.1:0"
websocket = ""
http = "127.0.0.1:0"
[pipeline]
enabled = false
"""


class DemoNode(NodeProcess):
    """Runs until `stop`; policies and the ledger are accessed over HTTP, as by any client."""

    async def change(self, change: PolicyChange) -> None:
        is_toml = isinstance(change.body, str)
        body = change.body if isinstance(change.body, str) else json.dumps(change.body)
        answer = await asyncio.to_thread(
            self._http.request,
            POLICIES + change.path,
            method=change.method,
            body=body.encode(),
            headers={"Content-Type": TOML if is_toml else JSON},
        )
        if answer.code >= 300:
            words = answer.body[:300].decode(errors="replace")
            raise DemoError(f"the node rejected its policies: {answer.code} {words}")

    async def outcomes(self, since_ms: int) -> Sequence[OutcomeCount]:
        query = urlencode({"since_ms": max(since_ms, 0), "limit": _MOST})
        answer = await asyncio.to_thread(self._http.request, f"{LEDGER}?{query}")
        if answer.code != 200:
            raise DemoError(f"the node does not show its ledger: {answer.code}")
        outcomes = msgspec.json.decode(answer.body, type=DeliveryOutcomes).outcomes
        return [_outcome_count(each) for each in outcomes if each.outcome in {*LOSSES, *_ARRIVED}]

    @cached_property
    def _http(self) -> NodeHttpClient:
        return NodeHttpClient(self.http_url, None, None)


async def start_node() -> DemoNode:
    """Start the node; DemoError if it does not start."""
    return await DemoNode.start(_CONFIG)


_ARRIVED: Final = ("delivered", "late", "shaped")


def _outcome_count(outcome: DeliveryOutcome) -> OutcomeCount:
    return OutcomeCount(
        event=outcome.event,
        channel=outcome.channel,
        source=outcome.publisher,
        outcome=outcome.outcome,
        published_ms=outcome.received_ms,
        count=outcome.count,
        policy=outcome.policy,
        importance=outcome.importance,
    )
