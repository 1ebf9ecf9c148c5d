"""The map of the network: five cities in their phases, any moment of before, each hop's time."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any, Final, TypeVar
from urllib.parse import quote

import pytest

from accord.apps.five_cities.cities import (
    CHANNELS,
    CITIES,
    DENVER,
    LOCATIONS,
    LOOSE,
    ORLANDO,
    SEATTLE,
    SOURCE,
    TIGHT,
    WASHINGTON,
)
from accord.apps.five_cities.network import FiveCities
from accord.apps.five_cities.phases import Kind
from accord.client.session import connect
from tests.browser.browsing import DESK, PHONE, Page, Visitor, eventually, expect
from tests.browser.test_looks import AXE, PICTURES, serious
from tests.browser.traffic import Site

T = TypeVar("T")
START_S: Final = 90.0
MAP: Final = "[role=application]"
SLOW_LINK: Final = f"{DENVER}\0{SEATTLE}"
RATE_S: Final = 0.05


class Cities:
    """Five cities with traffic on both channels, in a thread of their own."""

    def __init__(self) -> None:
        self.net = FiveCities()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = AsyncExitStack()
        self._publishing: asyncio.Task[None] | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S)

    def inject(self, kind: Kind) -> None:
        self.run(self.net.inject(kind))

    def url(self, city: str) -> str:
        return self.net.nodes[city].http_url

    def open(self) -> None:
        self._thread.start()
        self.run(self._open())

    def close(self) -> None:
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        await self._stack.enter_async_context(self.net)
        urls = self.net.urls
        for channel in CHANNELS:
            session = await self._stack.enter_async_context(connect(urls[channel.destination]))
            await self._stack.enter_async_context(session.subscribe(channel.name, queue=10_000))
        source = await self._stack.enter_async_context(connect(urls[SOURCE]))
        self._publishing = asyncio.create_task(self._publish(source))

    async def _publish(self, source: Any) -> None:
        while True:
            for channel in CHANNELS:
                await source.publish(channel.name, b"shock", qos=1)
            await asyncio.sleep(RATE_S)

    async def _close(self) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
        await self._stack.aclose()


@pytest.fixture(scope="module")
def cities() -> Iterator[Cities]:
    running = Cities()
    running.open()
    yield running
    running.close()


def model(page: Page) -> dict[str, Any]:
    """What the map shows, as it says itself."""
    found: dict[str, Any] = page.locator(MAP).evaluate("(map) => map.accordMap()")
    return found


def paths(page: Page) -> set[tuple[str, ...]]:
    return {tuple(each["path"]) for each in model(page)["routes"]}


def use_link(page: Page) -> bool:
    """Whether a path goes over the link that gets slow."""
    return any({*hop} == {SEATTLE, DENVER} for path in paths(page) for hop in pairwise(path))


def link_state(page: Page, link: str = SLOW_LINK) -> str:
    return next(str(each["state"]) for each in model(page)["links"] if each["id"] == link)


def choose(page: Page, channel: str) -> None:
    """Show the routes of one channel."""
    head = page.locator("button.head", has_text=channel)
    if head.get_attribute("aria-expanded") == "false":
        head.click()
    expect(head).to_have_attribute("aria-expanded", "true")


def test_the_phases_of_five_cities(cities: Cities, visit: Callable[..., Visitor]) -> None:
    page = visit(cities.url(WASHINGTON)).open("/network")
    eventually(lambda: page.locator(MAP).count(), what="the map", page=page)
    shows_cities_at_their_places(page)
    shows_the_time_of_each_hop(page)
    shows_a_slow_link(cities, page)
    page.wait_for_timeout(1_500)
    when_slow = time.time() * 1_000
    page.wait_for_timeout(1_500)
    shows_a_failed_link(cities, page)
    shows_a_dead_node(cities, page)
    # Any other node shows the same; a page that was opened later knows what was before.
    query = f"channel={quote(LOOSE.name, safe='')}&at={when_slow:.0f}"
    visitor = visit(cities.url(ORLANDO))
    other = visitor.open(f"/network?{query}")
    eventually(lambda: other.locator(MAP).count(), what="the map", page=other)
    shows_what_was_then(other)
    goes_back_by_keys_and_pointer(other)
    # The line reaches back beyond the node's start, and these nodes have no archive to ask.
    visitor.forgive("/net/archive")


def shows_cities_at_their_places(page: Page) -> None:
    """Both channels over two paths each."""

    def is_normal() -> bool:
        found = paths(page)
        return len([each for each in found if each[-1] == WASHINGTON]) == 2 and len(found) == 4

    eventually(is_normal, what="two paths of each channel", page=page)
    at = {each["name"]: each["at"] for each in model(page)["nodes"]}
    assert set(at) == set(CITIES)
    east = [name for name, _ in sorted(at.items(), key=lambda each: each[1][0])]
    assert east == sorted(CITIES, key=lambda name: LOCATIONS[name][1])
    assert at[SEATTLE][1] < at[DENVER][1] < at[ORLANDO][1]
    # On a busy machine a link may be slow for a moment.
    expect(page.locator("h1")).to_contain_text(re.compile("^All 5 nodes are reachable|slow"))
    page.screenshot(path=picture("network-map"))


def shows_the_time_of_each_hop(page: Page) -> None:
    choose(page, TIGHT.name)
    assert f"channel={quote(TIGHT.name, safe='')}" in page.url
    first = page.locator("table", has_text="Path 1").first
    expect(first).to_contain_text(f"of {TIGHT.max_delay_ms}")
    expect(first).to_contain_text("to spare")
    assert all(each["slackMs"] > 0 for _, each in model(page)["hops"])


def shows_a_slow_link(cities: Cities, page: Page) -> None:
    """The channel with the tight bound leaves it, the other stays."""
    cities.inject("slow")
    eventually(lambda: link_state(page) == "slow", what="a slow link", page=page)
    eventually(lambda: paths(page) and not use_link(page), what="alerts elsewhere", page=page)
    expect(page.locator("h1")).to_contain_text("slow")
    choose(page, LOOSE.name)
    eventually(lambda: use_link(page), what="waveforms over the slow link", page=page)


def shows_a_failed_link(cities: Cities, page: Page) -> None:
    cities.inject("cut")
    eventually(lambda: link_state(page) == "failed", what="a failed link", page=page)
    eventually(lambda: paths(page) and not use_link(page), what="waveforms elsewhere", page=page)
    expect(page.get_by_text("Denver – Seattle failed").first).to_be_visible()


def shows_a_dead_node(cities: Cities, page: Page) -> None:
    cities.inject("kill")

    def is_away() -> bool:
        (found,) = (each for each in model(page)["nodes"] if each["name"] == DENVER)
        return not found["isReachable"]

    eventually(is_away, what="a node that is away", page=page)
    eventually(
        lambda: paths(page) and not any(DENVER in each for each in paths(page)),
        what="paths around it",
        page=page,
    )
    expect(page.locator("h1")).to_contain_text("Denver is not reachable")
    page.screenshot(path=picture("network-failed"))


def shows_what_was_then(page: Page) -> None:
    eventually(lambda: model(page)["isPast"], what="the map of then", page=page)
    assert link_state(page) == "slow"
    assert use_link(page)
    expect(page.get_by_role("button", name="back to live")).to_be_visible()
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile("^as of"))
    page.screenshot(path=picture("network-then"))
    page.keyboard.press("Escape")
    eventually(lambda: not model(page)["isPast"], what="the map of now", page=page)
    assert not any(DENVER in each for each in paths(page))


def goes_back_by_keys_and_pointer(page: Page) -> None:
    line = page.get_by_role("slider")
    line.focus()
    page.keyboard.press("Shift+ArrowLeft")
    eventually(lambda: model(page)["isPast"], what="the map of before", page=page)
    page.keyboard.press("End")
    eventually(lambda: not model(page)["isPast"], what="the map of now", page=page)
    box = line.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 66, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 200, box["y"] + 30, steps=5)
    page.mouse.up()
    eventually(lambda: "at=" in page.url, what="a moment in the address", page=page)


def test_dots_move_unless_less_motion_is_wanted(
    cities: Cities, visit: Callable[..., Visitor]
) -> None:
    page = visit(cities.url(WASHINGTON)).open("/network")
    eventually(lambda: paths(page), what="routes", page=page)
    assert model(page)["isMoving"] is False  # visitors of these tests want less
    page.emulate_media(reduced_motion="no-preference")
    eventually(lambda: model(page)["isMoving"], what="moving dots", page=page)
    before = model(page)["frames"]
    eventually(lambda: model(page)["frames"] > before + 5, what="frames", page=page)


def test_nodes_and_links_are_chosen_on_the_map_and_in_the_tables(
    cities: Cities, visit: Callable[..., Visitor]
) -> None:
    page = visit(cities.url(WASHINGTON)).open("/network")
    eventually(lambda: page.locator(MAP).count(), what="the map", page=page)
    (at,) = (each["at"] for each in model(page)["nodes"] if each["name"] == ORLANDO)
    page.locator(MAP).click(position={"x": at[0], "y": at[1]})
    eventually(lambda: f"node={ORLANDO}" in page.url, what="the node in the address", page=page)
    expect(page.get_by_role("heading", name=ORLANDO, exact=True)).to_be_visible()
    page.get_by_role("table", name="Links").get_by_role("button").first.click()
    eventually(lambda: "link=" in page.url, what="the link in the address", page=page)
    page.keyboard.press("Escape")
    eventually(lambda: "link=" not in page.url, what="nothing chosen", page=page)


def test_it_is_accessible_everywhere(cities: Cities, visit: Callable[..., Visitor]) -> None:
    visitor = visit(cities.url(WASHINGTON))
    page = visitor.open(f"/network?channel={quote(TIGHT.name, safe='')}")
    eventually(lambda: page.locator(MAP).count(), what="the map", page=page)
    found: list[str] = []
    for size in (PHONE, DESK):
        visitor.resize(size)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.wait_for_timeout(150)
            page.screenshot(path=picture(f"network-cities-{size[0]}-{theme}"), full_page=True)
            assert visitor.overflow() <= 0
            if AXE.is_file() and size == DESK:
                found += serious(page)
    assert found == []


def test_a_node_alone_says_what_to_do(visitor: Visitor, site: Site) -> None:
    page = visitor.open("/network")
    expect(page.locator("h1")).to_have_text("This node is alone.")
    expect(page.get_by_text("accord demo five-cities")).to_be_visible()
    found = site.get("/api/v1/net/history")
    assert found["node"] == site.get("/api/v1/net")["node"]


def picture(name: str) -> str:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return str(PICTURES / f"{name}.png")
