"""A node for a demonstration: a process of its own, on free ports, with data that goes with it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlencode

import msgspec

from accord.api.outcomes import LEDGER, Outcome, Outcomes
from accord.api.policy_answers import JSON, POLICIES, TOML
from accord.apps.targeting.meters import LOSSES, Fate
from accord.apps.targeting.story import Change
from accord.cli.node_http import NodeHttp
from accord.core.errors import AccordError

START_S: Final = 60.0
STOP_S: Final = 15.0
_MOST: Final = 1_000
_URL: Final = re.compile(r"\s+((?:mqtt|http)://\S+)")


class DemoError(AccordError):
    """The node of a demonstration does not do what it should."""


class DemoNode:
    """Runs until `stop`; changes policies and reads the ledger over HTTP, as anybody could."""

    def __init__(
        self, process: asyncio.subprocess.Process, folder: TemporaryDirectory[str]
    ) -> None:
        self.mqtt_url = ""
        self.http_url = ""
        self._process = process
        self._folder = folder
        self._reading: asyncio.Task[None] | None = None

    async def change(self, change: Change) -> None:
        is_toml = isinstance(change.body, str)
        body = change.body if isinstance(change.body, str) else json.dumps(change.body)
        answer = await asyncio.to_thread(
            self._http.ask,
            POLICIES + change.path,
            method=change.method,
            body=body.encode(),
            headers={"Content-Type": TOML if is_toml else JSON},
        )
        if answer.code >= 300:
            words = answer.body[:300].decode(errors="replace")
            raise DemoError(f"the node does not take its policies: {answer.code} {words}")

    async def fates(self, since_ms: int) -> Sequence[Fate]:
        query = urlencode({"since_ms": max(since_ms, 0), "limit": _MOST})
        answer = await asyncio.to_thread(self._http.ask, f"{LEDGER}?{query}")
        if answer.code != 200:
            raise DemoError(f"the node does not show its ledger: {answer.code}")
        outcomes = msgspec.json.decode(answer.body, type=Outcomes).outcomes
        return [_fate(each) for each in outcomes if each.outcome in {*LOSSES, *_ARRIVED}]

    async def wait_ready(self) -> None:
        """Until it has said where it listens."""
        assert self._process.stdout is not None
        said: list[str] = []
        while not (self.mqtt_url and self.http_url):
            line = (await self._process.stdout.readline()).decode(errors="replace")
            if not line:
                raise DemoError(f"the node did not start: {' '.join(said)[-300:]}")
            said.append(line.strip())
            if found := _URL.match(line):
                self._place(found[1])
        self._http = NodeHttp(self.http_url, None, None)
        # What it says later is not for this screen, but a full pipe would hold it up.
        self._reading = asyncio.create_task(self._read_on())

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_S)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._reading is not None:
            await self._reading
        self._folder.cleanup()

    def _place(self, url: str) -> None:
        if url.startswith("mqtt:"):
            self.mqtt_url = url
        else:
            self.http_url = url

    async def _read_on(self) -> None:
        assert self._process.stdout is not None
        while await self._process.stdout.read(65_536):
            pass


async def start_node() -> DemoNode:
    """Raises DemoError where it does not start."""
    folder = TemporaryDirectory(prefix="accord-demo-", ignore_cleanup_errors=True)
    anywhere = "127.0.0.1:0"
    # An empty configuration: that of the folder the command was given in is for other nodes.
    config = os.path.join(folder.name, "accord.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write("")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "accord", "up", "--no-demo", "--no-pipeline"),
        *("--mqtt", anywhere, "--websocket", "", "--http", anywhere, "--config", config),
        *("--data", os.path.join(folder.name, "data")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for the demonstration, which then ends it
    )
    node = DemoNode(process, folder)
    try:
        async with asyncio.timeout(START_S):
            await node.wait_ready()
    except BaseException as error:
        await node.stop()
        if isinstance(error, TimeoutError):
            raise DemoError(f"the node did not start within {START_S:.0f} s") from None
        raise
    return node


_ARRIVED: Final = ("delivered", "late", "shaped")


def _fate(outcome: Outcome) -> Fate:
    return Fate(
        event=outcome.event,
        channel=outcome.channel,
        source=outcome.publisher,
        outcome=outcome.outcome,
        published_ms=outcome.received_ms,
        count=outcome.count,
        policy=outcome.policy,
        importance=outcome.importance,
    )
