"""The node restarts: the page says that it is stale, and recovers by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from benchmarks.ports import free_port

from tests.brokers import HOST, start_accord
from tests.browser.browsing import Visitor, eventually, expect
from tests.browser.traffic import Peer, Site


def is_up(site: Site) -> bool:
    with suppress(httpx.TransportError):
        return site.http.get(f"{site.url}/health").status_code == 200
    return False


def test_it_says_since_when_it_is_stale_and_recovers_without_a_reload(
    tmp_path: Path, visit: Callable[..., Visitor]
) -> None:
    port, http_port = free_port(), free_port()
    url = f"http://{HOST}:{http_port}"

    @contextmanager
    def node() -> Iterator[Site]:
        extra = ["--http", f"{HOST}:{http_port}"]
        with start_accord(tmp_path, port=port, extra=extra) as broker, httpx.Client() as http:
            site = Site(url, broker, http)
            eventually(lambda: is_up(site), what="the HTTP interface")
            yield site

    visitor, tapping = visit(url), visit(url)
    with node() as site, Peer(site, "first") as peer:
        page = visitor.open("/clients")
        tap = tapping.open("/channels/news/today")
        expect(tap.get_by_text("Nothing came yet.")).to_be_visible()
        peer.publish("news/today", "before the restart")
        expect(tap.get_by_text("before the restart").first).to_be_visible()
        expect(page.get_by_role("link", name="first")).to_be_visible()
        for each in (page, tap):
            each.evaluate("window.isSame = true")
    for each in (page, tap):
        expect(each.get_by_text(re.compile(r"Stale since \d\d:\d\d:\d\d"))).to_be_visible()
    # What was last known stays in sight, marked as stale.
    expect(page.get_by_role("link", name="first")).to_be_visible()
    expect(page.get_by_role("button", name="Stale")).to_be_visible()
    with node() as site, Peer(site, "second") as peer:
        for each in (page, tap):
            expect(each.get_by_text("Stale since")).to_have_count(0)
        expect(page.get_by_role("link", name="second")).to_be_visible()
        expect(page.get_by_role("link", name="first")).to_have_count(0)

        def came() -> bool:
            peer.publish("news/today", "after the restart")
            tap.wait_for_timeout(200)
            return tap.get_by_text("after the restart").count() > 0

        eventually(came, what="events after the restart", page=tap)
        for each in (page, tap):
            assert each.evaluate("window.isSame")
            each.goto("about:blank")
    for gone in (visitor, tapping):
        gone.forgive("net::ERR_", "WebSocket")  # browsers report connections that fail
