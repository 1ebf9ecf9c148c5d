"""The map of a time that the node does not keep any more: from the archive."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.ports import free_port

from tests.brokers import HOST, start_accord
from tests.browser.browsing import Page, Visitor, eventually, expect
from tests.browser.test_network import MAP, model, picture
from tests.browser.test_restart import is_up
from tests.browser.traffic import WAIT_S, Site

pytestmark = pytest.mark.timeout(600)  # Spark starts twice, on a busy machine
SPARK_S = 180.0


@contextmanager
def seattle(data: Path, link_port: int) -> Iterator[Site]:
    config = f'[node]\nname = "seattle"\n[net]\nlisten = "{HOST}:{link_port}"\n'
    http_port = free_port()
    extra = ["--http", f"{HOST}:{http_port}", "--pipeline"]
    url = f"http://{HOST}:{http_port}"
    with (
        start_accord(data, config, extra) as broker,
        httpx.Client(base_url=url, timeout=WAIT_S) as http,
    ):
        site = Site(url, broker, http)
        eventually(lambda: is_up(site), what="the HTTP interface")
        yield site


@contextmanager
def denver(link_port: int) -> Iterator[None]:
    own, other = f"{HOST}:{free_port()}", f"{HOST}:{link_port}"
    config = f'[node]\nname = "denver"\n[net]\nlisten = "{own}"\nneighbours = "{other}"\n'
    with start_accord(None, config):
        yield


def archive(site: Site, since_ms: float, until_ms: float) -> dict[str, Any]:
    query = {"since_ms": round(since_ms), "until_ms": round(until_ms)}
    found = site.http.get("/api/v1/net/archive", params=query, timeout=SPARK_S)
    return found.json() if found.status_code == 200 else {}


def is_told(site: Site, since_ms: float, until_ms: float) -> bool:
    """Whether the archive has that denver failed in this time."""
    steps = archive(site, since_ms, until_ms).get("steps", ())
    return any("denver" in each["rows"]["nodes"] for each in steps)


def with_spark(look: Callable[[], bool], *, what: str) -> None:
    deadline = time.monotonic() + SPARK_S
    while not look():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.5)


def reachable(page: Page) -> dict[str, bool]:
    return {each["name"]: each["isReachable"] for each in model(page)["nodes"]}


def test_a_moment_before_the_node_restarted(tmp_path: Path, visit: Callable[..., Visitor]) -> None:
    link_port = free_port()
    with seattle(tmp_path, link_port) as site:

        def last_row() -> dict[str, Any]:
            """What the map has of denver now."""
            found = [each["rows"]["nodes"] for each in site.get("/api/v1/net/history")["steps"]]
            rows: list[dict[str, Any]] = [each["denver"] for each in found if "denver" in each]
            return rows[-1] if rows else {}

        with denver(link_port):
            eventually(last_row, what="both nodes")
            linked_ms = time.time() * 1_000
        eventually(lambda: last_row().get("is_reachable") is False, what="a node that is away")
        alone_ms = time.time() * 1_000
        with_spark(lambda: is_told(site, linked_ms, alone_ms), what="the failure in the archive")
    with seattle(tmp_path, link_port) as site:
        with_spark(lambda: is_told(site, linked_ms, alone_ms), what="the archive")
        visitor = visit(site.url)
        page = visitor.open(f"/network?at={linked_ms:.0f}")
        eventually(lambda: page.locator(MAP).count(), what="the map", page=page)
        then = {"seattle": True, "denver": True}
        eventually(lambda: reachable(page) == then, what="both nodes", page=page)
        expect(page.get_by_text("from the archive").first).to_be_visible()
        expect(page.get_by_text(re.compile("denver is not reachable", re.I)).first).to_be_hidden()
        page.screenshot(path=picture("network-archive"))
        page.goto(f"{site.url}/network?at={alone_ms:.0f}")
        now = {"seattle": True, "denver": False}
        eventually(lambda: reachable(page) == now, what="a node that is away", page=page)
        page.get_by_role("button", name="back to live").click()
        expect(page.locator("h1")).to_have_text("This node is alone.")
        page.goto("about:blank")  # the node ends before the page
