"""A client's page shows what it received; the page itself can be a client."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.browser.browsing import Page, Visitor, eventually, expect
from tests.browser.test_pages import cells
from tests.browser.traffic import Peer, Site, address
from tests.pictures import encoded, photo


@pytest.fixture(scope="module")
def sender(site: Site) -> Iterator[Peer]:
    with Peer(site, "sender") as peer:
        yield peer


def naturals(page: Page) -> list[int]:
    """Widths of the pictures that are shown, in their own pixels."""
    found: list[int] = page.evaluate(
        "[...document.querySelectorAll('main img')].map((image) => image.naturalWidth)"
    )
    return found


def test_its_rows_are_what_was_published(site: Site, sender: Peer, visitor: Visitor) -> None:
    published = {"row/a": 25, "row/b": 10, "row/c": 1}
    with Peer(site, "reader", "row/#") as reader:
        page = visitor.open(address("clients", "reader"))
        for channel, count in published.items():
            for _ in range(count):
                sender.publish(channel, b"x")
        eventually(lambda: reader.received == published, what="all events")
        for channel, count in published.items():

            def agrees(channel: str = channel, count: int = count) -> bool:
                row = cells(page, "What reader receives", channel)
                return (
                    row.get("received") == str(count)
                    and row["dropped"] == "0"
                    and row["source"] == "sender"
                    and row["in time"] == "no deadline"
                )

            eventually(agrees, what=f"the row of {channel}", page=page)
        expect(page.get_by_text("127.0.0.1").first).to_be_visible()
    expect(page.get_by_text("has left; this is what it got")).to_be_visible()


@pytest.mark.parametrize("width", [1440, 1280, 1120, 900, 390])
def test_names_of_channels_have_room(
    site: Site, sender: Peer, visitor: Visitor, width: int
) -> None:
    with Peer(site, "roomy", "room/temperature"):
        visitor.resize((width, 800))
        page = visitor.open(address("clients", "roomy"))
        sender.publish("room/temperature", b"x")
        name = page.get_by_role("table", name="What roomy receives").get_by_role("link").first
        expect(name).to_be_visible()
        box = name.bounding_box()
        assert box is not None
        assert box["width"] > 60


def test_a_limit_is_set_and_the_client_disconnected(site: Site, visitor: Visitor) -> None:
    with Peer(site, "limited", "row/#"):
        page = visitor.open(address("clients", "limited"))
        menu = page.get_by_role("button", name=re.compile("Actions for limited|^Actions$"))
        menu.click()
        page.get_by_role("menuitemradio", name="Limit its bandwidth").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox").or_(dialog.get_by_role("spinbutton")).first.fill("300")
        dialog.get_by_role("button", name=re.compile("^(Set|Limit)")).click()
        expect(page.get_by_text("limit 300 kbit/s").first).to_be_visible()
        policies = site.get("/api/v1/policies")
        assert [each["bandwidth"] for each in policies["limits"]] == [300_000]


def test_watching_as_a_client(site: Site, sender: Peer, visitor: Visitor) -> None:
    page = visitor.open("/clients/watch")
    page.get_by_role("textbox", name="Channels").fill("watched/#")
    page.get_by_role("textbox", name="Only events where").fill("n > 1")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.locator("h1")).to_contain_text("Nothing on watched/# yet")
    for number in (1, 2, 3):
        picture = encoded(photo(160 * number, 100), "JPEG")
        sender.publish("watched/camera", picture, {"n": str(number)})
    sender.publish("watched/text", "text", {"n": "2"})
    for channel, count in (("watched/camera", 2), ("watched/text", 1)):

        def agrees(channel: str = channel, count: int = count) -> bool:
            return cells(page, "What this page receives", channel).get("received") == str(count)

        eventually(agrees, what=f"{count} events of {channel}", page=page)
    eventually(lambda: 480 in naturals(page), what="the last picture", page=page)
    # The node knows this client like any other, with its predicate.
    name = page.locator(".facts a").first.inner_text()
    (subscription,) = [
        each
        for each in site.get(f"/api/v1/clients/{name}")["subscriptions"]
        if each["filter"] == "watched/#"
    ]
    assert subscription["where"] == "n > 1"
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("h1")).to_contain_text("Stopped. 3 events came.")

    def is_gone() -> bool:
        rows = site.get("/api/v1/clients")["clients"]
        return not any(each["client"] == name and each["is_connected"] for each in rows)

    eventually(is_gone, what="the end of its connection", page=page)


def test_watching_with_a_mistake_says_where_it_is(visitor: Visitor) -> None:
    query = httpx.QueryParams(filter="watched/#", where="n > > 1")
    page = visitor.open(f"/clients/watch?{query}")
    expect(page.get_by_role("textbox", name="Only events where")).to_have_attribute(
        "aria-invalid", "true"
    )
    expect(page.locator("mark")).to_have_text(">")


def test_a_thin_link_is_shown_beside_the_whole(site: Site, sender: Peer, visitor: Visitor) -> None:
    shaped = {"shaping": "scaling", "max_bytes": "6 KB"}
    policy = {"name": "Thin", "channel": "thin/#", "when": "link_kbps < 500", "preferences": shaped}
    answer = site.http.put("/api/v1/policies/Thin", json=policy)
    assert answer.status_code == 200, answer.text
    page = visitor.open("/clients/watch?filter=thin/%23&limit=300")
    expect(page.get_by_text("through 300 kbit/s").first).to_be_visible()
    picture = encoded(photo(640, 400), "JPEG", quality=90)

    def both_are_there() -> bool:
        sender.publish("thin/camera", picture)
        page.wait_for_timeout(500)
        found = naturals(page)
        return len(found) >= 2 and all(found) and page.get_by_text("shaped to").count() > 0

    eventually(both_are_there, what="the picture, whole and shaped", page=page)
    # The limit ends with the page.
    assert len(site.get("/api/v1/policies")["limits"]) >= 1
    page.goto("/channels")

    def is_lifted() -> bool:
        limits = site.get("/api/v1/policies")["limits"]
        return not any("console-" in str(each) for each in limits)

    eventually(is_lifted, what="the end of the limit", page=page)


def test_a_new_order_is_shown_with_the_pointer_on_the_table(site: Site, visitor: Visitor) -> None:
    with Peer(site, "order-a"), Peer(site, "order-b"):
        page = visitor.open("/clients?search=order-")
        names = page.locator("main table tbody tr[data-index] bdi")
        expect(names.filter(has_text="order-")).to_have_count(2)
        heading = page.get_by_role("columnheader").get_by_role("button", name="client", exact=True)
        for expected in (["order-a", "order-b"], ["order-b", "order-a"]):
            heading.click()

            def agrees(expected: list[str] = expected) -> bool:
                shown = names.all_text_contents()
                return [each for each in shown if each.startswith("order-")] == expected

            eventually(agrees, what=f"the order {expected}", page=page)
