"""A node with its real pipeline, as a user has it: kept, found again, killed, caught up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.ports import free_port
from typer.testing import CliRunner

import accord
from accord.cli.main import app
from accord.pipeline.driver_lock import LOCK
from tests.brokers import HOST, start_accord
from tests.scenarios.history import Plan, run_history
from tests.scenarios.kills.run import Plan as KillPlan
from tests.scenarios.kills.whole import run_whole_kills

pytestmark = pytest.mark.timeout(600)  # a shared machine may take minutes to start Spark

CONFIG: Final = """
[[keep]]
channels = ["kept/#"]
attributes = { level = "float" }
[pipeline]
timeout_s = 600
"""


class Running:
    def __init__(self, port: int, http_port: int, folder: Path) -> None:
        self.url = f"mqtt://{HOST}:{port}"
        self.http_url = f"http://{HOST}:{http_port}"
        self.folder = folder

    def pipeline(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.http_url}/api/v1/status", timeout=30) as answer:  # noqa: S310
            status: dict[str, Any] = json.load(answer)["statistics"]["pipeline"]
        return status

    def wait_until_archived(self) -> None:
        """pytest's time-out is the limit."""
        while True:
            status = self.pipeline()
            if status["state"] == "ready" and status["lag_records"] == 0 and status["files"]:
                return
            time.sleep(0.1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, http_port = tmp_path_factory.mktemp("node"), free_port()
    extra = ["--pipeline", "--http", f"{HOST}:{http_port}"]
    with start_accord(data=folder, config=CONFIG, extra=extra) as broker:
        yield Running(broker.port, http_port, folder)


async def publish(running: Running, channel: str, numbers: range) -> None:
    async with accord.connect(running.url) as session:
        await asyncio.gather(
            *(session.publish(channel, str(n), level=n / 10, name=f"n{n}") for n in numbers)
        )


async def find(running: Running, channel: str, **question: Any) -> list[int]:
    async with accord.connect(running.url) as session:
        events = session.query(channel, newest_first=False, timeout_s=600, **question)
        return [int(event.payload) async for event in events]


def test_what_was_acknowledged_is_found_at_once_and_later(running: Running) -> None:
    asyncio.run(publish(running, "kept/a", range(300)))
    wanted = {"where": "level >= 10 AND name <> 'n150'"}
    expected = [n for n in range(100, 300) if n != 150]
    assert asyncio.run(find(running, "kept/a", **wanted)) == expected
    running.wait_until_archived()
    assert asyncio.run(find(running, "kept/a", **wanted)) == expected
    assert asyncio.run(find(running, "kept/#", limit=5)) == [0, 1, 2, 3, 4]


def test_the_command_finds_it_too(running: Running) -> None:
    asyncio.run(publish(running, "kept/b", range(20)))
    options = ["--where", "level > 1.7", "--format", "json", "--url", running.url]
    found = CliRunner().invoke(app, ["query", "kept/b", *options])
    assert found.exit_code == 0, found.output
    assert [json.loads(line)["payload"] for line in found.stdout.splitlines()] == ["19", "18"]


def test_history_then_live(running: Running) -> None:
    plan = Plan(runs=6, rate_hz=100, longest_s=5.0, live=30)
    outcome = asyncio.run(run_history(running.url, plan))
    assert outcome.failures() == []
    assert (outcome.runs, outcome.past > 0) == (6, True)


def test_traffic_does_not_notice_that_the_pipeline_is_killed(running: Running) -> None:
    async def scene() -> list[bytes]:
        async with (
            accord.connect(running.url) as session,
            session.subscribe("kept/c") as events,
        ):
            running.wait_until_archived()
            os.killpg(_driver(running.folder), signal.SIGKILL)
            for number in range(50):
                await session.publish("kept/c", str(number))
            return [(await anext(events)).payload for _ in range(50)]

    assert asyncio.run(scene()) == [str(number).encode() for number in range(50)]
    assert asyncio.run(find(running, "kept/c")) == list(range(50))
    running.wait_until_archived()
    assert running.pipeline()["restarts"] >= 1
    assert asyncio.run(find(running, "kept/c")) == list(range(50))


def test_node_and_pipeline_killed_together_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """`scripts/kill_loop.py --pipeline` does the same for longer."""
    plan = KillPlan(kills=2, seed=3, life_s=1.0, rate_hz=20)
    said: list[str] = []
    outcome = run_whole_kills(plan, tmp_path, said.append)
    assert outcome.failures() == [], said
    assert outcome.acknowledged == outcome.published > 0
    assert outcome.archived >= outcome.kept > 0


def _driver(folder: Path) -> int:
    """The process of the pipeline that works for this node."""
    holder: int = json.loads((folder / "pipeline" / LOCK).read_bytes())["process"]
    return holder
