"""Each page shows true figures: compared with the API, and with what the test published."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.browser.browsing import Locator, Page, Visitor, eventually, expect
from tests.browser.traffic import Peer, Site, Stream, address

CHANNELS: Final = {"lab/temperature": b"21.5", "lab/report": b'{"wind": 4}', "uav/position": b"3"}


@pytest.fixture(scope="module", autouse=True)
def traffic(site: Site) -> Iterator[None]:
    """10 events per second on each channel; two of the channels have a subscriber."""
    with (
        Peer(site, "sensor") as sensor,
        Peer(site, "desk", "lab/#"),
        Stream(sensor, CHANNELS, 10),
    ):
        yield


def cells(page: Page, label: str, row: str) -> dict[str, str]:
    """A row of a table by the heads of its columns, as read: '' where it is not there."""
    found: dict[str, str] = page.evaluate(
        """([label, row]) => {
          const table = document.querySelector(`table[aria-label="${label}"]`);
          const heads = [...(table?.querySelectorAll('th') ?? [])].map((th) => th.innerText.trim());
          const found = [...(table?.querySelectorAll('tbody tr[data-index]') ?? [])].find(
            (tr) => tr.querySelector('bdi')?.innerText.trim() === row);
          return Object.fromEntries([...(found?.cells ?? [])].map(
            (td, i) => [heads[i], td.innerText.replace(/\\s+/g, ' ').trim()]));
        }""",
        [label, row],
    )
    return found


def is_about(shown: str, value: float) -> bool:
    """Whether `shown` may be the rounded `value`."""
    figures = re.search(r"[\d,.]+", shown)
    return figures is not None and abs(float(figures[0].replace(",", "")) - value) <= 0.06


def multiple(page: Page, name: str) -> Locator:
    cell = page.locator(".multiples > *", has=page.locator(".name", has_text=re.compile(name)))
    return cell.locator(".value")


def test_the_reference_of_the_interfaces_opens_without_an_error(visitor: Visitor) -> None:
    page = visitor.page
    page.goto("/docs", wait_until="networkidle")
    expect(page.get_by_text("/api/v1/status").first).to_be_visible()


def test_overview(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/")
    expect(page.locator(".facts")).to_contain_text("2 clients, 3 channels")
    expect(page.locator(".facts")).to_contain_text("0 policies")
    expect(multiple(page, "^Clients")).to_contain_text("2 connected")

    def agrees() -> bool:
        load = site.get("/api/v1/top")["load"]
        shown_in = multiple(page, r"^\s*In(?! time)").inner_text()
        shown_out = multiple(page, r"^\s*Out").inner_text()
        return is_about(shown_in, load["received_hz"]) and is_about(shown_out, load["sent_hz"])

    eventually(agrees, what="the rates of the API", page=page)
    # Three channels at 10 Hz come in; two of them go out.
    load = site.get("/api/v1/top")["load"]
    assert load["received_hz"] > load["sent_hz"] > 0
    expect(page.locator("h1")).to_have_text(site.get("/api/v1/status")["verdict"])


def test_channels(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/channels")
    for channel in CHANNELS:
        has_reader = channel.startswith("lab/")

        def agrees(channel: str = channel, has_reader: bool = has_reader) -> bool:
            row = cells(page, "Channels", channel)
            rows = {each["channel"]: each for each in site.get("/api/v1/top")["channels"]}
            return (
                row.get("publishers") == "1"
                and row["subscribers"] == str(int(has_reader))
                and row["in time"] == ("100 %" if has_reader else "–")
                and is_about(row["in /s"], rows[channel]["published_hz"])
                and is_about(row["out /s"], rows[channel]["delivered_hz"])
            )

        eventually(agrees, what=f"the figures of {channel}", page=page)


def test_channels_are_searched_and_sorted(visitor: Visitor) -> None:
    page = visitor.open("/channels")
    names = page.locator('table[aria-label="Channels"] tbody tr bdi')
    expect(names).to_have_count(3)
    page.get_by_role("searchbox", name="Search channels").fill("lab")
    expect(names).to_have_count(2)
    expect(page).to_have_url(re.compile(r"search=lab"))
    page.get_by_role("columnheader", name="channel").get_by_role("button").click()
    expect(names).to_have_text(["lab/report", "lab/temperature"])
    # Whoever gets the address sees the same.
    page.reload()
    expect(names).to_have_text(["lab/report", "lab/temperature"])
    page.get_by_role("searchbox", name="Search channels").fill("nothing like it")
    expect(page.get_by_text("No channel matches")).to_be_visible()


def test_a_channel(visitor: Visitor) -> None:
    page = visitor.open(address("channels", "lab/report"))
    page.get_by_role("button", name="Live").wait_for()
    figures = page.locator(".figures")
    expect(figures).to_contain_text("in, 1 publisher")
    expect(figures).to_contain_text("100 %")
    expect(page.locator("main")).to_contain_text("desk")
    page.get_by_text(re.compile("^Publishers")).first.click()
    expect(page.locator("main")).to_contain_text("sensor")


def test_clients(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/clients")
    expect(page.locator(".facts").first).to_contain_text("2 connected, 0 away")

    def agrees() -> bool:
        row = cells(page, "Clients", "desk")
        rows = {each["client"]: each for each in site.get("/api/v1/top")["clients"]}
        return (
            row.get("state", "").startswith("here")
            and row["address"] == "127.0.0.1"
            and row["protocol"] == "MQTT 5.0"
            and row["shed"] == "0"
            and is_about(row["events"], rows["desk"]["sent_hz"])
        )

    eventually(agrees, what="the figures of desk", page=page)


def test_internals(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/internals?search=sent_hz")

    def agrees() -> bool:
        row = cells(page, "Series", "sent_hz")
        found = site.get("/api/v1/series/sent_hz")["summary"]
        return bool(row) and is_about(row["last"], found["last"])

    eventually(agrees, what="the last value of sent_hz", page=page)


def test_keys_lead_to_pages_and_the_palette_finds_channels(visitor: Visitor) -> None:
    page = visitor.open("/")
    page.get_by_role("button", name="Live").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page).to_have_url(re.compile("/channels$"))
    page.keyboard.press("Control+k")
    page.keyboard.type("uav/pos")
    expect(page.get_by_role("dialog").get_by_text("uav/position").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/channels/uav/position$"))


@pytest.fixture
def visit_twice(visit: Callable[..., Visitor], site: Site) -> tuple[Visitor, Visitor]:
    return visit(site.url), visit(site.url)


def test_a_change_shows_to_all_viewers(site: Site, visit_twice: tuple[Visitor, Visitor]) -> None:
    pages = [visitor.open("/clients") for visitor in visit_twice]
    with Peer(site, "late-comer"):
        for page in pages:
            expect(page.get_by_role("link", name="late-comer")).to_be_visible()
    for page in pages:
        expect(page.get_by_role("link", name="late-comer")).to_have_count(0)
