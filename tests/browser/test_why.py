"""Why an event arrived as it did: the page says what the ledger says, of a real node's events."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.browsing import DESK, PHONE, Page, Visitor, eventually, expect
from tests.browser.test_looks import AXE, PICTURES, serious
from tests.browser.traffic import Peer, Site, address

CHANNEL: Final = "uav/imagery"
SLOW: Final = "patrol-1"
FAST: Final = "desk"


@pytest.fixture(scope="module", autouse=True)
def peers(site: Site) -> Iterator[Peer]:
    """A client with a slow link, and one without; alarms go first."""
    policies = {
        "Alarms": {"name": "Alarms", "channel": "alarm/#", "importance": 7},
        "Imagery": {"name": "Imagery", "channel": "uav/#", "preferences": {"deadline": "400 ms"}},
    }
    for name, policy in policies.items():
        answer = site.http.put(f"/api/v1/policies/{name}", json=policy)
        assert answer.status_code == 200, answer.text
    with (
        Peer(site, "raven-7") as raven,
        Peer(site, SLOW, "uav/#", "alarm/#"),
        Peer(site, FAST, "uav/#"),
    ):
        yield raven


def limit(site: Site, bandwidth: str) -> None:
    answer = site.http.put("/api/v1/limits", json={"clients": [SLOW], "bandwidth": bandwidth})
    assert answer.status_code == 200, answer.text


def outcomes(site: Site, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.get("/api/v1/ledger", **query)["outcomes"]
    return found


@pytest.fixture(scope="module")
def expired(site: Site, peers: Peer) -> dict[str, Any]:
    """An image that a limit kept from arriving in time, behind alarms."""
    limit(site, "200 kbit/s")
    deadline = time.monotonic() + 15
    found: list[dict[str, Any]] = []
    while not found and time.monotonic() < deadline:
        for number in range(8):
            peers.publish("alarm/fire", bytes(4_000))
            peers.publish(CHANNEL, bytes(6_000), {"number": str(number)})
        time.sleep(1.2)
        found = outcomes(site, outcome="expired", client=SLOW)
    assert found, "nothing expired"
    return found[0]


def sentence(page: Page) -> str:
    return " ".join(page.locator("h1").inner_text().split())


def test_the_page_says_what_the_ledger_says(
    site: Site, visitor: Visitor, expired: dict[str, Any]
) -> None:
    answer = site.get(f"/api/v1/events/{expired['event']}")
    page = visitor.open(address("why", expired["event"]))
    expect(page.locator("h1")).to_have_text(answer["verdict"]["sentence"])
    assert answer["verdict"]["cause"] in {"queued", "slow link of the client"}
    assert sentence(page).startswith(f"Expired for {SLOW}, due within 400 ms: ")
    table = page.locator('table[aria-label="Outcomes of the event"] tbody tr[data-index]')
    told = [each for each in answer["outcomes"] if each["hop"] is None]
    expect(table).to_have_count(len(told))
    for place, each in enumerate(told):  # the worst first, as the ledger's answer
        expect(table.nth(place)).to_contain_text(each["destination"])
    expect(page.get_by_role("img", name=re.compile("Where its time went"))).to_be_visible()
    expect(page.get_by_role("link", name="raven-7").first).to_have_attribute(
        "href", "/clients/raven-7"
    )


def test_the_command_prints_the_same_sentence(site: Site, expired: dict[str, Any]) -> None:
    answer = site.get(f"/api/v1/events/{expired['event']}")
    command = [str(Path(sys.executable).with_name("accord")), "why", expired["event"]]
    told = subprocess.run(
        [*command, "--url", site.url], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer["verdict"]["sentence"] in " ".join(told.stdout.split())


def test_another_destination_has_its_own_waterfall(
    visitor: Visitor, expired: dict[str, Any]
) -> None:
    page = visitor.open(address("why", expired["event"]))
    panel = page.get_by_role("region", name=re.compile("Where its"))
    expect(panel).to_contain_text(SLOW)
    expect(panel.locator("text.mark.expired")).to_have_text("given up")
    row = page.locator('table[aria-label="Outcomes of the event"] tbody tr', has_text=FAST)
    row.locator("td").nth(2).click()
    expect(page).to_have_url(re.compile(f"destination={FAST}"))
    expect(panel).to_contain_text(FAST)
    expect(panel.locator("text.mark.in-time")).to_have_text("arrived")


def test_counts_lead_to_events_and_events_to_why(visitor: Visitor, expired: dict[str, Any]) -> None:
    page = visitor.open("/why?outcome=expired")
    rows = page.locator('table[aria-label="Outcomes"] tbody tr[data-index]')
    expect(rows.first).to_contain_text("expired")
    rows.first.locator("td").nth(4).click()
    expect(page.locator("h1")).to_contain_text("Expired for")
    page.get_by_role("link", name="Why", exact=True).first.click()
    expect(page).to_have_url(re.compile(r"/why$"))


def test_found_by_channel_client_and_time(
    site: Site, visitor: Visitor, expired: dict[str, Any]
) -> None:
    page = visitor.open("/why")
    page.get_by_role("textbox", name="Channel or filter").fill(CHANNEL)
    page.get_by_role("textbox", name="To or from client").fill(SLOW)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(expired["done_ms"] / 1_000))
    page.get_by_label("About when").fill(moment)
    page.get_by_role("button", name="Find").click()
    expect(page).to_have_url(re.compile("at=20"))
    expect(page.get_by_role("heading", name=re.compile("Outcomes around"))).to_be_visible()
    rows = page.locator('table[aria-label="Outcomes"] tbody tr[data-index]')
    expect(rows.first).to_contain_text(CHANNEL)
    page.get_by_label("About when").fill("2020-01-01T00:00:00")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_text("No such outcome is known.")).to_be_visible()


def test_an_event_that_waits_is_asked_again(site: Site, visitor: Visitor, peers: Peer) -> None:
    assert site.http.delete("/api/v1/policies/Imagery").status_code == 200
    limit(site, "16 kbit/s")
    since_ms = str(time.time_ns() // 1_000_000)
    for _ in range(4):
        peers.publish(CHANNEL, bytes(20_000))
        time.sleep(0.02)  # events of one millisecond are one entry
    newest = eventually(
        lambda: (
            outcomes(site, client=FAST, channel=CHANNEL, since_ms=since_ms)[3:]
            and outcomes(site, client=FAST, channel=CHANNEL, since_ms=since_ms)
        ),
        what="the outcomes",
    )[0]
    page = visitor.open(address("why", newest["event"]))
    expect(page.locator("h1")).to_contain_text(f"Still waiting for {SLOW}")
    expect(page.get_by_text("limit of the client").first).to_be_visible()
    limit(site, "10 Mbit/s")
    expect(page.locator("h1")).to_contain_text("Delivered to all 2 destinations", timeout=30_000)


def test_an_unknown_event(visitor: Visitor) -> None:
    page = visitor.open("/why/0")
    expect(page.locator("h1")).to_have_text("This event is not known here.")
    expect(page.get_by_text(re.compile("event 0 is unknown"))).to_be_visible()
    visitor.forgive("/api/v1/events/")  # browsers report each answer of 400 and above


def test_its_looks(visit: Callable[..., Visitor], site: Site, expired: dict[str, Any]) -> None:
    visitor = visit(site.url)
    page = visitor.open(address("why", expired["event"]))
    expect(page.get_by_role("img", name=re.compile("Where its time went"))).to_be_visible()
    PICTURES.mkdir(parents=True, exist_ok=True)
    for size in (PHONE, DESK):
        visitor.resize(size)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.wait_for_timeout(150)
            page.screenshot(path=PICTURES / f"why-event-{size[0]}-{theme}.png")
            assert visitor.overflow() <= 0, f"{size[0]}, {theme}"
            if AXE.is_file() and size == DESK:
                assert serious(page) == []
