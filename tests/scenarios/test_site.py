"""Three nodes with one pipeline: archived over the network, asked at each, either side killed."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import argon2
import pytest
from benchmarks.ports import free_port
from deltalake import DeltaTable
from typer.testing import CliRunner

import accord
from accord.cli.main import app
from tests.brokers import HOST, start_accord

pytestmark = pytest.mark.timeout(600)  # a shared machine may take minutes to start Spark

NAMES: Final = ("n1", "n2", "n3")
PASSWORD: Final = "open:sesame"  # noqa: S105
LOGIN: Final = {"Authorization": f"Basic {base64.b64encode(f'site:{PASSWORD}'.encode()).decode()}"}
KEEP: Final = """
[[keep]]
channels = ["kept/#"]
attributes = { level = "float" }
"""
NODE: Final = """
[node]
name = "{name}"
[pipeline]
enabled = true
site = true
timeout_s = 600
[anonymous]
allowed = true
[users.site]
password = "{hashed}"
may = {{ subscribe = ["#"], system = true }}
"""


class SiteNode:
    """A node of the site; `start` again after `kill`, with the same data and addresses."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.data = folder / name
        self.port, self.http_port = free_port(), free_port()
        self.url = f"mqtt://{HOST}:{self.port}"
        hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        self._config = NODE.format(name=name, hashed=hasher.hash(PASSWORD)) + KEEP
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def http_url(self) -> str:
        return f"http://{HOST}:{self.http_port}"

    def start(self) -> None:
        extra = ["--pipeline", "--http", f"{HOST}:{self.http_port}"]
        running = start_accord(self.data, self._config, extra, port=self.port, is_killed=True)
        self._process = self._stack.enter_context(running).process

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._stack.close()

    def stop(self) -> None:
        self._stack.close()

    def status(self) -> dict[str, Any]:
        asked = urllib.request.Request(f"{self.http_url}/api/v1/status", headers=LOGIN)  # noqa: S310
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
            status: dict[str, Any] = json.load(answer)["statistics"]["pipeline"]
        return status

    def needed_from(self) -> int:
        return int((self.data / "journal" / "archive.reader").read_text())


class Driver:
    """`accord pipeline` for these nodes."""

    def __init__(self, nodes: list[SiteNode], folder: Path) -> None:
        self.data = folder / "site"
        self.output = folder / "site.txt"
        lines = [f'{each.name} = "http://site@{HOST}:{each.http_port}"' for each in nodes]
        config = folder / "site.toml"
        config.write_text(
            "\n".join([KEEP, "[pipeline]\ntimeout_s = 600", "[pipeline.nodes]", *lines])
        )
        self._command = [sys.executable, "-m", "accord", "pipeline"]
        self._command += ["--config", str(config), "--data", str(self.data)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.output.open("ab") as sink:
            self.process = subprocess.Popen(
                self._command,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=os.environ | {"ACCORD_PASSWORD": PASSWORD},
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def archived(self) -> dict[str, Counter[str]]:
        """What the archive has of each node, read from its files."""
        found: dict[str, Counter[str]] = {name: Counter() for name in NAMES}
        table = DeltaTable(self.data / "archive" / "events")
        for row in table.to_pyarrow_table(columns=["node", "payload"]).to_pylist():
            found[row["node"]][bytes(row["payload"]).decode()] += 1
        return found


class Site:
    def __init__(self, folder: Path) -> None:
        self.nodes = [SiteNode(name, folder) for name in NAMES]
        self.driver = Driver(self.nodes, folder)
        self.acknowledged: dict[str, list[str]] = {name: [] for name in NAMES}

    def publish(self, count: int) -> None:
        """So many events at each node; all are acknowledged."""

        async def at(node: SiteNode) -> None:
            known = self.acknowledged[node.name]
            async with accord.connect(node.url) as session:
                for number in range(len(known), len(known) + count):
                    text = f"{node.name}-{number}"
                    await session.publish("kept/a", text, level=number / 10)
                    known.append(text)

        async def all_nodes() -> None:
            await asyncio.gather(*(at(node) for node in self.nodes))

        asyncio.run(all_nodes())

    def find(self, node: SiteNode, **question: Any) -> list[str]:
        async def ask() -> list[str]:
            async with accord.connect(node.url) as session:
                events = session.query("kept/#", newest_first=False, timeout_s=600, **question)
                return [event.payload.decode() async for event in events]

        return asyncio.run(ask())

    def wait(self, is_so: Callable[[dict[str, Any]], object], *nodes: SiteNode) -> None:
        """pytest's time-out is the limit."""
        while not all(is_so(node.status()) for node in nodes or self.nodes):
            assert self.driver.process is None or self.driver.process.poll() in (None, -9)
            time.sleep(0.1)

    def wait_until_archived(self) -> None:
        self.wait(lambda s: s["state"] == "ready" and s["lag_records"] == 0 and s["files"])


@contextmanager
def a_site(folder: Path) -> Iterator[Site]:
    site = Site(folder)
    try:
        for node in site.nodes:
            node.start()
        site.driver.start()
        yield site
        # Spark prints that a batch was interrupted if it is stopped in the middle of one.
        assert "Traceback" not in site.driver.output.read_text()
        assert site.driver.stop() == 0, site.driver.output.read_text()
    except BaseException:
        print(site.driver.output.read_text())
        raise
    finally:
        site.driver.kill()
        for node in site.nodes:
            node.stop()


def test_killed_on_either_side_the_archive_has_each_event_once(tmp_path: Path) -> None:
    with a_site(tmp_path) as site:
        n1, n2, _ = site.nodes
        site.publish(200)
        site.wait(lambda status: status["archived_offset"] > 0)
        site.driver.kill()
        site.publish(100)
        for node in site.nodes:
            assert "accord pipeline" in node.status()["problem"]
        site.driver.start()
        site.wait(lambda status: status["state"] == "ready")
        site.publish(100)
        n2.kill()
        site.wait(lambda status: "n2 is not connected" in status["problem"], n1)
        assert site.find(n1) == site.acknowledged["n1"]
        before = n1.status()["archived_offset"]
        asyncio.run(_publish_more(site, n1, 50))
        site.wait(lambda status: status["archived_offset"] > before, n1)
        n2.start()
        site.publish(50)
        site.wait_until_archived()
        expected = {name: Counter(texts) for name, texts in site.acknowledged.items()}
        assert site.driver.archived() == expected
        for node in site.nodes:
            assert site.find(node) == site.acknowledged[node.name]
        assert not re.search(re.escape(PASSWORD), site.driver.output.read_text())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with a_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def test_each_node_finds_its_own_events_in_tail_and_archive(site: Site) -> None:
    site.publish(50)
    for node in site.nodes:
        assert site.find(node, where="level >= 2") == site.acknowledged[node.name][20:]
    site.wait_until_archived()
    for node in site.nodes:
        assert site.find(node, where="level >= 2") == site.acknowledged[node.name][20:]
        assert node.needed_from() == node.status()["archived_offset"] >= 50


def test_history_then_live_at_a_node(site: Site) -> None:
    node = site.nodes[1]

    async def scene() -> list[str]:
        async with (
            accord.connect(node.url) as session,
            session.subscribe("kept/#", since="-1h") as events,
        ):
            expected = len(site.acknowledged[node.name])
            return [(await anext(events)).payload.decode() for _ in range(expected)]

    assert asyncio.run(scene()) == site.acknowledged[node.name]


def test_the_report_of_a_node_is_about_its_own_events(site: Site) -> None:
    site.wait_until_archived()
    for node in site.nodes:
        command = ["report", "--url", node.http_url, "--user", "site", "--json"]
        made = CliRunner().invoke(app, command, env={"ACCORD_PASSWORD": PASSWORD})
        assert made.exit_code == 0, made.output
        report = json.loads(made.stdout)
        assert report["node"] == node.name
        assert report["kept"] == len(site.acknowledged[node.name])


def test_one_java_for_all_nodes(site: Site) -> None:
    site.wait(lambda status: status["state"] == "ready")
    site_process = site.driver.process
    assert site_process is not None
    ours = {os.getpid()}
    javas = 0
    for pid, parent, name in _processes():
        if parent in ours:
            ours.add(pid)
            javas += name == "java"
    assert javas == 1


async def _publish_more(site: Site, node: SiteNode, count: int) -> None:
    known = site.acknowledged[node.name]
    async with accord.connect(node.url) as session:
        for number in range(len(known), len(known) + count):
            text = f"{node.name}-{number}"
            await session.publish("kept/a", text, level=number / 10)
            known.append(text)


def _processes() -> Iterator[tuple[int, int, str]]:
    """Process, parent and name of all processes, parents first."""
    for number in sorted(int(each.name) for each in Path("/proc").glob("[0-9]*")):
        try:
            name, _, rest = (Path(f"/proc/{number}/stat").read_text()).rpartition(") ")
        except OSError:
            continue
        yield number, int(rest.split()[1]), name.partition("(")[2]
