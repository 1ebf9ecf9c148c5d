"""The live tap of a channel: predicates, their mistakes, payloads, pause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.browser.browsing import Locator, Page, Visitor, eventually, expect
from tests.browser.traffic import Peer, Site, address
from tests.pictures import encoded, photo

CHANNEL = "uav/imagery"


@pytest.fixture(scope="module")
def camera(site: Site) -> Iterator[Peer]:
    with Peer(site, "camera") as peer:
        yield peer


@pytest.fixture
def open_tap(visitor: Visitor) -> Callable[..., Page]:
    """Opens the tap and waits until it receives what is published from then on."""

    def enter(channel: str = CHANNEL, **query: str) -> Page:
        page = visitor.open(address("channels", channel, **query))
        expect(page.get_by_text(re.compile(r"Nothing came yet|No event matches"))).to_be_visible()
        return page

    return enter


def rows(page: Page) -> Locator:
    return page.locator('table[aria-label="Events"] tbody tr[data-index]')


def predicate(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Predicate")


def test_a_predicate_filters(camera: Peer, open_tap: Callable[..., Page]) -> None:
    page = open_tap(where="altitude_m > 300")
    expect(predicate(page)).to_have_value("altitude_m > 300")
    for altitude in (100, 301, 200, 302, 300, 303):
        camera.publish(CHANNEL, f"at {altitude}", {"altitude_m": str(altitude)})
    expect(rows(page)).to_have_count(3)
    for altitude in (301, 302, 303):
        expect(page.get_by_text(f"at {altitude}").first).to_be_visible()
    for altitude in (100, 200, 300):
        expect(page.get_by_text(f"at {altitude}", exact=True)).to_have_count(0)


def test_a_mistake_is_pointed_at_and_the_last_good_filter_counts(
    camera: Peer, open_tap: Callable[..., Page], visitor: Visitor
) -> None:
    page = open_tap(where="altitude_m > 300")
    predicate(page).fill("altitude_m > > 300")
    expect(page.get_by_text("Character 14:")).to_be_visible()
    expect(page.locator(".editor .wrong")).to_have_text(">")
    expect(predicate(page)).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_text("the last good filter still counts")).to_be_visible()
    camera.publish(CHANNEL, "low", {"altitude_m": "299"})
    camera.publish(CHANNEL, "high", {"altitude_m": "301"})
    expect(rows(page)).to_have_count(1)
    predicate(page).fill("altitude_m < 300")
    expect(page.get_by_text("Character 14:")).to_have_count(0)
    expect(page).to_have_url(re.compile("where=altitude_m"))
    expect(page.get_by_text("No event matches")).to_be_visible()
    camera.publish(CHANNEL, "low again", {"altitude_m": "298"})
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_text("low again").first).to_be_visible()
    visitor.forgive("/api/v1/predicates/check")  # browsers report each answer of 400 and above


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_an_image_is_rendered(camera: Peer, open_tap: Callable[..., Page], kind: str) -> None:
    page = open_tap()
    camera.publish(CHANNEL, encoded(photo(320, 200), kind), {"platform": "UAV"})
    image = page.get_by_alt_text("What the event carries")
    expect(image).to_be_visible()
    eventually(
        lambda: image.evaluate("(image) => image.naturalWidth") == 320,
        what="the image's pixels",
        page=page,
    )
    expect(page.get_by_text("320 × 200").first).to_be_visible()


def test_a_damaged_image_is_shown_as_bytes(camera: Peer, open_tap: Callable[..., Page]) -> None:
    page = open_tap()
    camera.publish(CHANNEL, encoded(photo(64, 64), "PNG")[:40] + bytes(200))
    expect(page.get_by_text("The picture is damaged")).to_be_visible()
    expect(page.get_by_label("Bytes")).to_contain_text("89 50 4e 47")


def test_json_is_folded_and_xml_and_bytes_are_shown(
    camera: Peer, open_tap: Callable[..., Page]
) -> None:
    page = open_tap()
    camera.publish(CHANNEL, '{"wind": {"speed": 4.25}, "gusts": [7, 9]}')
    detail = page.locator("main")
    expect(detail.get_by_text("4.25").first).to_be_visible()
    camera.publish(CHANNEL, "<report><wind unit='m/s'>5.75</wind></report>")
    expect(detail.get_by_text("5.75").first).to_be_visible()
    camera.publish(CHANNEL, bytes(range(200, 256)))
    expect(page.get_by_label("Bytes")).to_contain_text("c8 c9 ca")


def test_pause_holds_the_list_and_goes_on(camera: Peer, open_tap: Callable[..., Page]) -> None:
    page = open_tap()
    camera.publish(CHANNEL, "before")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    for number in range(5):
        camera.publish(CHANNEL, f"while paused {number}")
    expect(page.get_by_text("5 newer wait")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Go on").click()
    page.mouse.move(0, 0)
    expect(rows(page)).to_have_count(6)
    expect(rows(page).first).to_contain_text("while paused 4")


def test_a_filter_taps_many_channels_and_its_command_can_be_copied(
    camera: Peer, open_tap: Callable[..., Page]
) -> None:
    page = open_tap("tapped/#", where="n = 1")
    camera.publish("tapped/a", "a", {"n": "1"})
    camera.publish("tapped/b", "b", {"n": "1"})
    camera.publish("tapped/c", "c", {"n": "2"})
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Copy", exact=True).first.click()
    expect(page.get_by_role("dialog").locator("pre, code, textarea").first).to_contain_text(
        "accord sub --where 'n = 1' 'tapped/#'"
    )
